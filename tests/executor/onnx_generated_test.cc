// Small generated graphs of every type and rank, with outputs that are inputs, constants, equal
// values and others: what they answer is what npm's onnxruntime-node answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/tensor.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::onnx_generated_test {
namespace {

namespace onnx = support::onnx;

constexpr int kGraphs = 200;
constexpr std::size_t kSlotBytes = 96;

struct Type {
  DataType type;
  int number;
  const char* name;  // in JavaScript
};
constexpr Type kFloat{DataType::fp32, onnx::kFloat, "float32"};
constexpr Type kDouble{DataType::fp64, onnx::kDouble, "float64"};
constexpr Type kHalf{DataType::fp16, onnx::kFloat16, "float16"};
constexpr Type kInt64{DataType::int64, onnx::kInt64, "int64"};
constexpr Type kBool{DataType::boolean, 9, "bool"};
constexpr Type kString{DataType::bytes, onnx::kString, "string"};
// JavaScript has no BF16.
constexpr Type kTypes[] = {kFloat,
                           kDouble,
                           kHalf,
                           kInt64,
                           kBool,
                           kString,
                           {DataType::int32, 6, "int32"},
                           {DataType::int16, 5, "int16"},
                           {DataType::int8, 3, "int8"},
                           {DataType::uint8, 2, "uint8"}};

struct Value {
  std::string name;
  Type type;
  std::vector<std::int64_t> row;  // the shape of one request
};

// A graph in the making.
class Graph {
 public:
  explicit Graph(std::uint32_t seed) : random_(seed) {
    fixed_ = below(4) == 0;
    model_.operators = 20;
    model_.constants = {onnx::integers_constant("one", {1}), onnx::integers_constant("last", {-1}),
                        onnx::integers_constant("seven", {7}),
                        onnx::strings_constant("mark", {1}, {"!"})};
    model_.weights = {{"half", {1}, {0.5F}}};
    const std::size_t count = 1 + below(2);
    for (std::size_t i = 0; i < count; ++i) add_input(i);
    const std::size_t outputs = 1 + below(5);
    for (std::size_t i = 0; i < outputs; ++i) add_output();
  }

  [[nodiscard]] std::string file() const { return encode(model_); }
  [[nodiscard]] std::uint32_t max_batch() const { return fixed_ ? 1 : 4; }
  [[nodiscard]] const std::vector<Value>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Value>& outputs() const { return outputs_; }
  [[nodiscard]] std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  [[nodiscard]] onnx::Tensor tensor(const Value& value) const {
    std::vector<onnx::Dimension> shape;
    shape.push_back(fixed_ ? onnx::Dimension(std::int64_t{1}) : onnx::Dimension("n"));
    shape.insert(shape.end(), value.row.begin(), value.row.end());
    return {value.name, value.type.number, shape};
  }

  void add_input(std::size_t index) {
    Value input{"x" + std::to_string(index), kTypes[below(std::size(kTypes))], {}};
    for (std::size_t rank = below(4); rank > 0; --rank)
      input.row.push_back(static_cast<std::int64_t>(1 + below(3)));
    model_.inputs.push_back(tensor(input));
    inputs_.push_back(input);
  }

  void node(std::string operation, std::vector<std::string> inputs, const std::string& output,
            std::vector<std::string> attributes = {}) {
    model_.nodes.push_back(
        {std::move(operation), std::move(inputs), {output}, std::move(attributes)});
  }

  void add_output() {
    const Value x = inputs_[below(inputs_.size())];
    const std::string name = "y" + std::to_string(outputs_.size());
    Value output{name, x.type, x.row};
    switch (below(9)) {
      case 0:  // an input
      case 1:
        if (!is_output(x.name)) {
          output.name = x.name;
        } else {
          node("Identity", {x.name}, name);
        }
        return take(output);
      case 2:  // the value of an earlier output
        if (!outputs_.empty()) output = outputs_[below(outputs_.size())];
        node("Identity", {outputs_.empty() ? x.name : output.name}, name);
        output.name = name;
        return take(output);
      case 3:  // a constant
        return add_constant(x, name);
      case 4:  // a branch that only passes a value on
        return add_branch(x, output);
      case 5:
        if (x.row.empty()) return add_arithmetic(x, output);
        node("Concat", {x.name, x.name}, name, {onnx::integer_attribute("axis", 1)});
        output.row[0] *= 2;
        return take(output);
      case 6:
        node("Flatten", {x.name}, name, {onnx::integer_attribute("axis", 1)});
        output.row = {static_cast<std::int64_t>(element_count(spec_of(x)))};
        return take(output);
      case 7:
        return add_reduction(x, output);
      default:
        return add_arithmetic(x, output);
    }
  }

  [[nodiscard]] bool is_output(const std::string& name) const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [&name](const Value& output) { return output.name == name; });
  }

  // An initializer, or one for each row.
  void add_constant(const Value& x, const std::string& name) {
    if (fixed_) {
      model_.weights.push_back({name, {1, 2}, {3, static_cast<float>(outputs_.size())}});
      return take({name, kFloat, {2}});
    }
    node("Shape", {x.name}, name + "_shape",
         {onnx::integer_attribute("start", 0), onnx::integer_attribute("end", 1)});
    node("Expand", {"seven", name + "_shape"}, name);
    take({name, kInt64, {}});
  }

  void add_branch(const Value& x, const Value& output) {
    node("Cast", {"one"}, output.name + "_condition",
         {onnx::integer_attribute("to", kBool.number)});
    const auto branch = [&](const std::string& result) {
      return encode_graph(onnx::Model{.outputs = {{result, x.type.number}},
                                      .nodes = {{"Identity", {x.name}, {result}}}});
    };
    node("If", {output.name + "_condition"}, output.name,
         {onnx::graph_attribute("then_branch", branch(output.name + "_then")),
          onnx::graph_attribute("else_branch", branch(output.name + "_else"))});
    take(output);
  }

  void add_reduction(const Value& x, Value output) {
    const bool sums = x.type.type == DataType::fp32 || x.type.type == DataType::int64;
    if (!sums || x.row.empty()) return add_arithmetic(x, output);
    if (below(2) == 0) {
      node("ArgMax", {x.name}, output.name,
           {onnx::integer_attribute("axis", 1), onnx::integer_attribute("keepdims", 0)});
      output.type = kInt64;
      output.row.erase(output.row.begin());
    } else {
      node("ReduceSum", {x.name, "last"}, output.name, {onnx::integer_attribute("keepdims", 1)});
      output.row.back() = 1;
    }
    take(output);
  }

  void add_arithmetic(const Value& x, Value output) {
    switch (x.type.type) {
      case DataType::bytes:
        node("StringConcat", {x.name, "mark"}, output.name);
        break;
      case DataType::boolean:
        node("Not", {x.name}, output.name);
        break;
      case DataType::fp32:
        node("Mul", {x.name, "half"}, output.name);
        break;
      case DataType::fp64:
      case DataType::int32:
      case DataType::int64:
        node("Add", {x.name, x.name}, output.name);
        break;
      default:
        node("Cast", {x.name}, output.name, {onnx::integer_attribute("to", kFloat.number)});
        output.type = kFloat;
    }
    take(output);
  }

  void take(const Value& output) {
    model_.outputs.push_back(tensor(output));
    outputs_.push_back(output);
  }

 public:
  static TensorSpec spec_of(const Value& value) {
    TensorSpec spec{value.name, value.type.type, value.row};
    if (spec.type == DataType::bytes) spec.max_bytes = kSlotBytes * element_count(spec);
    return spec;
  }

 private:
  std::mt19937 random_;
  bool fixed_ = false;  // batches of one
  onnx::Model model_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
};

std::vector<TensorSpec> specs_of(const std::vector<Value>& values) {
  std::vector<TensorSpec> specs;
  for (const Value& value : values) specs.push_back(Graph::spec_of(value));
  return specs;
}

// ---- the bytes of a batch

void append_number(DataType type, std::size_t random, std::vector<std::byte>& to) {
  const auto add = [&to](auto number) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  const auto whole = static_cast<int>(random % 200) - 100;
  switch (type) {
    case DataType::fp32:
      return add(static_cast<float>(whole) / 8);
    case DataType::fp64:
      return add(static_cast<double>(whole) / 8);
    case DataType::fp16:
      return add(static_cast<std::uint16_t>(0x3c00U + random % 0x800U));
    case DataType::boolean:
      return add(static_cast<std::uint8_t>(random % 2));
    case DataType::int64:
      return add(static_cast<std::int64_t>(whole));
    case DataType::int32:
      return add(static_cast<std::int32_t>(whole));
    case DataType::int16:
      return add(static_cast<std::int16_t>(whole));
    default:
      return add(static_cast<std::int8_t>(whole));
  }
}

std::vector<std::byte> any_batch(Graph& graph, std::uint32_t count) {
  std::vector<std::byte> bytes;
  for (const TensorSpec& spec : specs_of(graph.inputs())) {
    for (std::uint32_t row = 0; row < count; ++row) {
      std::string slot;
      for (std::size_t i = 0; i < element_count(spec); ++i) {
        if (spec.type != DataType::bytes) {
          append_number(spec.type, graph.below(1'000'000), bytes);
        } else {
          append_element(slot, std::to_string(graph.below(1'000'000)).substr(graph.below(4)));
        }
      }
      if (spec.type != DataType::bytes) continue;
      slot.resize(spec.max_bytes, '\0');
      const auto made = std::as_bytes(std::span(slot));
      bytes.insert(bytes.end(), made.begin(), made.end());
    }
  }
  return bytes;
}

// `{"name":"x0","type":"float32","dims":[2,3],"hex":"00..."}` for each tensor.
std::string json_of(const std::vector<Value>& values, std::uint32_t count,
                    std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string json;
  for (const Value& value : values) {
    const TensorSpec spec = Graph::spec_of(value);
    const auto part = bytes.first(byte_size(spec).value() * count);
    bytes = bytes.subspan(part.size());
    std::string dimensions = std::to_string(count);
    for (const std::int64_t size : value.row) dimensions += "," + std::to_string(size);
    json += (json.empty() ? "" : ",") + (R"({"name":")" + value.name) + R"(","type":")" +
            value.type.name + R"(","dims":[)" + dimensions;
    if (spec.type != DataType::bytes) {
      json += R"(],"hex":")";
      for (const std::byte byte : part) {
        json += kDigits[std::to_integer<unsigned>(byte) >> 4U];
        json += kDigits[std::to_integer<unsigned>(byte) & 0xfU];
      }
      json += "\"}";
      continue;
    }
    std::string strings;
    for (std::uint32_t row = 0; row < count; ++row) {
      const auto slot = part.subspan(row * spec.max_bytes, spec.max_bytes);
      const auto elements = elements_in(slot, element_count(spec));
      EXPECT_TRUE(elements.has_value()) << value.name;
      if (!elements) continue;
      for (const std::string_view each : *elements)
        strings += (strings.empty() ? "\"" : ",\"") + std::string(each) + "\"";
    }
    json += "],\"strings\":[" + strings + "]}";
  }
  return json;
}

class OnnxGenerated : public ::testing::Test {
 protected:
  // The cases of a graph for Node.js: it runs batches in memory that held other bytes.
  void add(Graph& graph, const std::string& file) {
    const auto loaded = executor_->load({.name = file,
                                         .file = folder_.write(file, graph.file()),
                                         .inputs = specs_of(graph.inputs()),
                                         .outputs = specs_of(graph.outputs()),
                                         .max_batch = graph.max_batch()});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    const std::size_t output_bytes = byte_size(specs_of(graph.outputs())).value();
    std::string batches;
    for (int run = 0; run < 3; ++run) {
      const auto count = static_cast<std::uint32_t>(1 + graph.below(graph.max_batch()));
      const std::vector<std::byte> input = any_batch(graph, count);
      std::vector<std::byte> first(count * output_bytes, std::byte{0xa5});
      std::vector<std::byte> second(count * output_bytes, std::byte{0x3c});
      for (auto* const output : {&first, &second}) {
        const auto written =
            executor_->run({.model = file, .count = count, .input = input, .output = *output});
        ASSERT_TRUE(written.ok()) << file << ": " << written.status().to_string();
        ASSERT_EQ(written.value(), output->size());
      }
      ASSERT_EQ(first, second) << file << ": some bytes were not written";
      batches += (batches.empty() ? "" : ",") +
                 (R"({"inputs":[)" + json_of(graph.inputs(), count, input)) + R"(],"outputs":[)" +
                 json_of(graph.outputs(), count, first) + "]}";
    }
    cases_ += (cases_.empty() ? "" : ",\n") + (R"({"model":")" + file) + R"(","batches":[)" +
              batches + "]}";
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_onnx_executor();
  std::string cases_;
};

TEST_F(OnnxGenerated, AnswersAreThoseOfTheLibraryForNode) {
  std::map<std::string, int> types;
  for (std::uint32_t seed = 0; seed < kGraphs; ++seed) {
    Graph graph(seed);
    for (const Value& output : graph.outputs()) ++types[output.type.name];
    ASSERT_NO_FATAL_FAILURE(add(graph, std::to_string(seed) + ".onnx"));
  }
  for (const Type& type : kTypes) EXPECT_GT(types[type.name], 0) << type.name;

  const std::filesystem::path packages = GPULET_NODE_PACKAGES;
  if (!std::filesystem::exists(packages / "onnxruntime-node"))
    GTEST_SKIP() << packages << " is missing; run scripts/setup --for test";
  if (std::system("command -v node >/dev/null") != 0)  // NOLINT(concurrency-mt-unsafe)
    GTEST_SKIP() << "node is missing; run scripts/setup --for test";
  folder_.write("cases.json", "[" + cases_ + "]");
  const std::filesystem::path printed = folder_.path() / "printed";
  const std::string command = "ORT_DISABLE_TELEMETRY=1 node '" GPULET_SOURCE_DIR
                              "/tests/executor/compare_with_node.cjs' '" +
                              packages.string() + "' '" + folder_.path().string() + "' >'" +
                              printed.string() + "' 2>&1";
  const int ended = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
  std::ifstream stream(printed);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_EQ(ended, 0) << text;
  EXPECT_TRUE(support::names(text, "200 models"));
}

}  // namespace
}  // namespace gpulet::executor::onnx_generated_test
