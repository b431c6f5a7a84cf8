// What generated ONNX graphs answer is what npm's onnxruntime-node answers; those that cannot be
// served are refused when they are loaded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "tests/executor/onnx_graphs.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::onnx_generated_test {
namespace {

using onnx_graphs::Graph;
using onnx_graphs::Value;

constexpr std::uint32_t kGraphs = 500;

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
    case DataType::bf16:
      return add(static_cast<std::uint16_t>(0x3f80U + random % 0x100U));
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

std::vector<std::byte> any_batch(const Graph& graph, std::uint32_t count, std::mt19937& random) {
  std::vector<std::byte> bytes;
  for (const TensorSpec& spec : specs_of(graph, graph.inputs)) {
    for (std::uint32_t row = 0; row < count; ++row) {
      std::string slot;
      for (std::size_t i = 0; i < element_count(spec); ++i) {
        if (spec.type != DataType::bytes) {
          append_number(spec.type, random(), bytes);
        } else {
          append_element(slot, std::to_string(random() % 1'000'000).substr(random() % 2));
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

std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 0xfU];
  }
  return text;
}

// FP32 numbers, whose upper halves are those of BF16.
std::vector<std::byte> widened(std::span<const std::byte> numbers) {
  std::vector<std::byte> wide;
  for (std::size_t i = 0; i < numbers.size(); i += 2)
    wide.insert(wide.end(), {std::byte{0}, std::byte{0}, numbers[i], numbers[i + 1]});
  return wide;
}

std::string strings_json(const TensorSpec& spec, std::uint32_t count,
                         std::span<const std::byte> slots) {
  std::string strings;
  for (std::uint32_t row = 0; row < count; ++row) {
    const auto elements =
        elements_in(slots.subspan(row * spec.max_bytes, spec.max_bytes), element_count(spec));
    EXPECT_TRUE(elements.has_value()) << spec.name;
    if (!elements) continue;
    for (const std::string_view each : *elements)
      strings += (strings.empty() ? "\"" : ",\"") + std::string(each) + "\"";
  }
  return "[" + strings + "]";
}

// `{"name":"x0","type":"float32","dims":[2,3],"hex":"00..."}` for each tensor.
std::string json_of(const Graph& graph, const std::vector<Value>& values, std::uint32_t count,
                    std::span<const std::byte> bytes) {
  std::string json;
  for (const TensorSpec& spec : specs_of(graph, values)) {
    const auto part = bytes.first(byte_size(spec).value() * count);
    bytes = bytes.subspan(part.size());
    std::string dimensions;
    for (const std::int64_t size : batch_shape(spec, count))
      dimensions += (dimensions.empty() ? "" : ",") + std::to_string(size);
    const bool bf16 = spec.type == DataType::bf16;
    const char* const type = bf16 ? "float32" : onnx_graphs::type_of(spec.type).name;
    json += (json.empty() ? "" : ",") + (R"({"name":")" + spec.name) + (bf16 ? "_wide" : "") +
            R"(","type":")" + type + R"(","dims":[)" + dimensions + "],";
    json += spec.type == DataType::bytes
                ? R"("strings":)" + strings_json(spec, count, part) + "}"
                : R"("hex":")" + (bf16 ? hexadecimal(widened(part)) : hexadecimal(part)) + "\"}";
  }
  return json;
}

class OnnxGenerated : public ::testing::Test {
 protected:
  [[nodiscard]] Status load(const Graph& graph, const std::string& name) {
    return executor_
        ->load({.name = name,
                .file = folder_.write(name, graph.file),
                .inputs = specs_of(graph, graph.inputs),
                .outputs = specs_of(graph, graph.outputs),
                .max_batch = graph.max_batch})
        .status();
  }

  // Runs a batch in memory that held other bytes; all of them must be written.
  void run(const Graph& graph, const std::string& name, std::uint32_t count,
           const std::vector<std::byte>& input, std::vector<std::byte>& output) {
    output.assign(count * byte_size(specs_of(graph, graph.outputs)).value(), std::byte{0xa5});
    std::vector<std::byte> again(output.size(), std::byte{0x3c});
    for (auto* const to : {&output, &again}) {
      const auto written =
          executor_->run({.model = name, .count = count, .input = input, .output = *to});
      ASSERT_TRUE(written.ok()) << name << ": " << written.status().to_string()
                                << executor_->failure_text();
      ASSERT_EQ(written.value(), to->size());
    }
    ASSERT_EQ(output, again) << name << ": some bytes were not written";
  }

  // The cases of a graph for Node.js.
  void serve(const Graph& graph, const std::string& name, std::mt19937& random) {
    std::string batches;
    for (int runs = 0; runs < 3; ++runs) {
      const auto count = static_cast<std::uint32_t>(1 + random() % graph.max_batch);
      const std::vector<std::byte> input = any_batch(graph, count, random);
      std::vector<std::byte> output;
      ASSERT_NO_FATAL_FAILURE(run(graph, name, count, input, output));
      batches += (batches.empty() ? "" : ",") +
                 (R"({"inputs":[)" + json_of(graph, graph.inputs, count, input)) +
                 R"(],"outputs":[)" + json_of(graph, graph.outputs, count, output) + "]}";
    }
    folder_.write("for-node-" + name, graph.for_node);
    cases_ += (cases_.empty() ? "" : ",\n") + (R"({"model":"for-node-)" + name) +
              R"(","batches":[)" + batches + "]}";
    ++served_;
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_onnx_executor();
  std::string cases_;
  int served_ = 0;
};

// What the graphs are made of, so that the test notices where the generator stops to make it.
struct Seen {
  std::map<DataType, int> types;
  std::set<int> operators;
  std::set<std::size_t> ranks;
  std::set<std::string> operations;
  int inputs_as_outputs = 0;
  int optional_given = 0;

  void add(const Graph& graph) {
    operators.insert(graph.operators);
    operations.insert(graph.operations.begin(), graph.operations.end());
    for (const Value& output : graph.outputs) {
      ++types[output.type];
      ranks.insert(output.shape.size() + (graph.whole ? 0 : 1));
      for (const Value& input : graph.inputs)
        inputs_as_outputs += input.name == output.name ? 1 : 0;
    }
    for (const Value& input : graph.inputs) optional_given += input.name == "optional" ? 1 : 0;
  }
  void expect_all() const {
    for (const onnx_graphs::ElementType& type : onnx_graphs::kTypes)
      EXPECT_TRUE(types.contains(type.type)) << type.name;
    EXPECT_EQ(operators.size(), 11U);  // versions 11 to 21
    EXPECT_EQ(ranks.size(), 6U);
    for (const char* const operation : {"If", "Loop", "Constant", "ConstantOfShape", "Where"})
      EXPECT_TRUE(operations.contains(operation)) << operation;
    EXPECT_GT(inputs_as_outputs, 0);
    EXPECT_GT(optional_given, 0);
  }
};

TEST_F(OnnxGenerated, AnswersAreThoseOfTheLibraryForNodeOrTheFileIsRefused) {
  Seen seen;
  for (std::uint32_t seed = 0; seed < kGraphs; ++seed) {
    const Graph graph = onnx_graphs::generate(seed);
    const std::string name = std::to_string(seed) + ".onnx";
    std::mt19937 random(seed);
    const Status loaded = load(graph, name);
    if (graph.refused) {
      EXPECT_EQ(loaded.code(), StatusCode::invalid) << loaded.to_string();
      EXPECT_TRUE(support::names(loaded, name, *graph.refused)) << loaded.to_string();
      continue;
    }
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    seen.add(graph);
    ASSERT_NO_FATAL_FAILURE(serve(graph, name, random));
  }
  seen.expect_all();

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
  EXPECT_TRUE(support::names(text, std::to_string(served_) + " models"));
}

}  // namespace
}  // namespace gpulet::executor::onnx_generated_test
