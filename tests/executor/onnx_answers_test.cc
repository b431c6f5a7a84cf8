// What an ONNX model answers: only memory that its own batch wrote, and each row by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::onnx_answers_test {
namespace {

namespace onnx = support::onnx;
using support::holds;
using support::names;

constexpr int kBool = 9;
constexpr int kBf16 = 16;

struct Type {
  DataType type;
  int number;
};
constexpr Type kTypes[] = {{DataType::boolean, kBool},
                           {DataType::uint8, 2},
                           {DataType::int8, 3},
                           {DataType::int16, 5},
                           {DataType::int32, 6},
                           {DataType::int64, onnx::kInt64},
                           {DataType::fp16, onnx::kFloat16},
                           {DataType::bf16, kBf16},
                           {DataType::fp32, onnx::kFloat},
                           {DataType::fp64, onnx::kDouble},
                           {DataType::bytes, onnx::kString}};

class OnnxAnswers : public ::testing::Test {
 protected:
  Status load(const onnx::Model& model, std::vector<TensorSpec> inputs,
              std::vector<TensorSpec> outputs, std::uint32_t max_batch) {
    return executor_
        ->load({.name = "m",
                .file = folder_.write("m.onnx", encode(model)),
                .inputs = std::move(inputs),
                .outputs = std::move(outputs),
                .max_batch = max_batch})
        .status();
  }
  // The outputs of a batch, in memory that held other bytes.
  std::vector<std::byte> run(std::uint32_t count, const std::vector<std::byte>& input,
                             std::size_t output_bytes, std::byte poison) {
    std::vector<std::byte> output(output_bytes, poison);
    const auto written =
        executor_->run({.model = "m", .count = count, .input = input, .output = output});
    EXPECT_TRUE(written.ok()) << written.status().to_string();
    if (written.ok()) {
      EXPECT_EQ(written.value(), output_bytes);
    }
    return output;
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_onnx_executor();
};

// Bytes of `count` requests that differ from call to call; every type has these as values.
std::vector<std::byte> content(const TensorSpec& spec, std::uint32_t count, std::size_t seed) {
  std::vector<std::byte> bytes;
  for (std::uint32_t row = 0; row < count; ++row) {
    if (spec.type == DataType::bytes) {
      std::string slot;
      for (std::size_t i = 0; i < element_count(spec); ++i)
        append_element(slot, std::string(seed % 3, static_cast<char>('a' + row)));
      slot.resize(spec.max_bytes, '\0');
      const auto made = std::as_bytes(std::span(slot));
      bytes.insert(bytes.end(), made.begin(), made.end());
    } else {
      for (std::size_t i = 0; i < byte_size(spec).value(); ++i)
        bytes.push_back(static_cast<std::byte>((i + row + seed) % 2));
    }
  }
  return bytes;
}

TensorSpec spec_of(const std::string& name, DataType type, std::vector<std::int64_t> shape) {
  TensorSpec spec{name, type, std::move(shape)};
  if (type == DataType::bytes) spec.max_bytes = 64;
  return spec;
}

// ---- memory

// ONNX Runtime does not write outputs that are inputs of the graph where it is told to.
TEST_F(OnnxAnswers, OutputsThatAreInputsAreThoseOfTheRequest) {
  for (const auto& [type, number] : kTypes) {
    for (const std::vector<std::int64_t>& row : {std::vector<std::int64_t>{}, {3}, {2, 2}}) {
      std::vector<onnx::Dimension> shape{"n"};
      shape.insert(shape.end(), row.begin(), row.end());
      const onnx::Model model{.inputs = {{"x", number, shape}},
                              .outputs = {{"x", number, shape}, {"y", number, shape}},
                              .nodes = {{"Identity", {"x"}, {"y"}}}};
      const TensorSpec x = spec_of("x", type, row);
      const TensorSpec y = spec_of("y", type, row);
      const Status loaded = load(model, {x}, {x, y}, 4);
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      for (const std::uint32_t count : {1U, 3U, 4U}) {
        const auto input = content(x, count, count);
        auto expected = input;
        expected.insert(expected.end(), input.begin(), input.end());
        for (const auto poison : {std::byte{0xa5}, std::byte{0x5a}})
          EXPECT_EQ(run(count, input, expected.size(), poison), expected) << to_string(type);
      }
    }
  }
}

TEST_F(OnnxAnswers, OutputsThatAreConstantsAreWritten) {
  const onnx::Model model{.inputs = {{"x", onnx::kFloat, {{1, 2}}}},
                          .outputs = {{"c", onnx::kFloat, {{1, 3}}},
                                      {"x", onnx::kFloat, {{1, 2}}},
                                      {"d", onnx::kInt64, {{1}}}},
                          .nodes = {{"Identity", {"k"}, {"d"}}},
                          .weights = {{"c", {1, 3}, {7, 8, 9}}},
                          .constants = {onnx::integers_constant("k", {5})}};
  const Status loaded = load(model, {spec_of("x", DataType::fp32, {2})},
                             {spec_of("c", DataType::fp32, {3}), spec_of("x", DataType::fp32, {2}),
                              spec_of("d", DataType::int64, {})},
                             1);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const std::vector<float> input{1, 2};
  const auto bytes = std::as_bytes(std::span(input));
  const auto output = run(1, {bytes.begin(), bytes.end()}, 28, std::byte{0xa5});
  std::vector<float> numbers(5);
  std::memcpy(numbers.data(), output.data(), 20);
  EXPECT_THAT(numbers, ::testing::ElementsAre(7, 8, 9, 1, 2));
  std::int64_t last = 0;
  std::memcpy(&last, output.data() + 20, sizeof last);
  EXPECT_EQ(last, 5);
}

// Keeps the columns whose largest number is above 0.
onnx::Model selection() {
  return {
      .inputs = {{"x", onnx::kFloat, {{"n", 2}}}},
      .outputs = {{"y", onnx::kFloat, {{"n", "columns"}}}},
      .nodes = {{"ReduceMax",
                 {"x"},
                 {"largest"},
                 {onnx::integers_attribute("axes", {0}), onnx::integer_attribute("keepdims", 0)}},
                {"Greater", {"largest", "zero"}, {"kept"}},
                {"Compress", {"x", "kept"}, {"y"}, {onnx::integer_attribute("axis", 1)}}},
      .weights = {{"zero", {1}, {0}}}};
}

TEST_F(OnnxAnswers, AnOutputOfAnotherSizeIsAFailure) {
  const Status loaded = load(selection(), {spec_of("x", DataType::fp32, {2})},
                             {spec_of("y", DataType::fp32, {2})}, 1);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  for (const std::vector<float>& input : {std::vector<float>{1, -1}, {-1, -1}}) {
    std::vector<float> output(2, 77);
    const auto written = executor_->run({.model = "m",
                                         .count = 1,
                                         .input = std::as_bytes(std::span(input)),
                                         .output = std::as_writable_bytes(std::span(output))});
    EXPECT_EQ(written.status().code(), StatusCode::invalid);
    EXPECT_FALSE(holds(written.status(), "[1,"));
    EXPECT_TRUE(names(executor_->failure_text(), "[1,2]"));
  }
  const std::vector<float> input{1, 2};
  const auto bytes = std::as_bytes(std::span(input));
  EXPECT_EQ(run(1, {bytes.begin(), bytes.end()}, 8, std::byte{0xa5}),
            std::vector(bytes.begin(), bytes.end()));
}

// ---- rows

struct RowCase {
  const char* name;
  std::vector<onnx::Node> nodes;  // from x to y
  bool depends;
  int type = onnx::kFloat;
};

std::vector<RowCase> row_cases() {
  using onnx::integer_attribute;
  using onnx::integers_attribute;
  const std::vector<onnx::Node> reversed = {
      {"Slice", {"x", "end", "begin", "zero", "back"}, {"y"}}};
  const std::vector<onnx::Node> sorted_by = {
      {"Shape", {"x"}, {"shape"}},
      {"Slice", {"shape", "zero", "one"}, {"rows"}},
      {"TopK", {"x", "rows"}, {"y", "order"}, {integer_attribute("axis", 0)}}};
  std::vector<onnx::Node> ascending = sorted_by;
  ascending[2].attributes.push_back(integer_attribute("largest", 0));
  return {
      {"running sum", {{"CumSum", {"x", "zero"}, {"y"}}}, true},
      {"reverse running sum",
       {{"CumSum", {"x", "zero"}, {"y"}, {integer_attribute("reverse", 1)}}},
       true},
      {"running sum of integers", {{"CumSum", {"x", "zero"}, {"y"}}}, true, onnx::kInt64},
      {"softmax over rows", {{"Softmax", {"x"}, {"y"}, {integer_attribute("axis", 0)}}}, true},
      {"centred",
       {{"ReduceMean", {"x"}, {"mean"}, {integers_attribute("axes", {0})}},
        {"Sub", {"x", "mean"}, {"y"}}},
       true},
      {"mean of all",
       {{"ReduceMean", {"x"}, {"mean"}},
        {"Mul", {"mean", "small"}, {"part"}},
        {"Add", {"x", "part"}, {"y"}}},
       true},
      {"largest of all", {{"ReduceMax", {"x"}, {"most"}}, {"Max", {"x", "most"}, {"y"}}}, true},
      {"difference from the first row",
       {{"Gather", {"x", "zero"}, {"first"}}, {"Sub", {"x", "first"}, {"y"}}},
       true},
      {"reversed", reversed, true},
      {"reversed integers", reversed, true, onnx::kInt64},
      {"reversed truth", reversed, true, kBool},
      {"reversed half", reversed, true, onnx::kFloat16},
      {"reversed strings", reversed, true, onnx::kString},
      {"sorted, falling", sorted_by, true},
      {"sorted, rising", ascending, true},
      {"softmax in a row", {{"Softmax", {"x"}, {"y"}, {integer_attribute("axis", 1)}}}, false},
      {"multiplied", {{"MatMul", {"x", "w"}, {"y"}}}, false},
      {"not a number", {{"Log", {"x"}, {"y"}}}, false},
      {"infinite", {{"Sub", {"x", "x"}, {"none"}}, {"Div", {"x", "none"}, {"y"}}}, false},
      {"random", {{"RandomNormalLike", {"x"}, {"y"}}}, false},
      {"random beside",
       {{"RandomUniformLike", {"x"}, {"noise"}}, {"Add", {"x", "noise"}, {"y"}}},
       false},
      {"truth", {{"Not", {"x"}, {"y"}}}, false, kBool},
      {"strings", {{"Identity", {"x"}, {"y"}}}, false, onnx::kString},
  };
}

onnx::Model model_of(const RowCase& one) {
  onnx::Model model{.inputs = {{"x", one.type, {{"n", 3}}}},
                    .outputs = {{"y", one.type, {{"n", 3}}}},
                    .nodes = one.nodes,
                    .weights = {{"w", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                                {"ones", {3}, {1, 1, 1}},
                                {"zeros", {3}, {0, 0, 0}},
                                {"small", {1}, {0.02F}}},
                    .operators = 15};
  model.constants = {onnx::integers_constant("zero", {0}), onnx::integers_constant("one", {1}),
                     onnx::integers_constant("end", {-1}), onnx::integers_constant("back", {-1}),
                     onnx::integers_constant("begin", {std::numeric_limits<std::int64_t>::min()})};
  return model;
}

TEST_F(OnnxAnswers, ModelsWhoseRowsDependOnEachOtherAreServedOneByOne) {
  for (const RowCase& one : row_cases()) {
    DataType type = DataType::fp32;
    for (const Type& each : kTypes) {
      if (each.number == one.type) type = each.type;
    }
    const TensorSpec x = spec_of("x", type, {3});
    const TensorSpec y = spec_of("y", type, {3});
    const Status alone = load(model_of(one), {x}, {y}, 1);
    EXPECT_TRUE(alone.ok()) << one.name << ": " << alone.to_string();
    for (const std::uint32_t max_batch : {2U, 3U, 4U, 32U}) {
      const Status status = load(model_of(one), {x}, {y}, max_batch);
      EXPECT_EQ(status.ok(), !one.depends)
          << one.name << " of at most " << max_batch << ": " << status.to_string();
      if (!one.depends) continue;
      EXPECT_EQ(status.code(), StatusCode::invalid);
      EXPECT_TRUE(names(status, "--max-batch 1", "'y'"));
    }
  }
}

// A row of one element has few orders.
TEST_F(OnnxAnswers, RowsOfOneElementAreComparedToo) {
  for (const RowCase& one : row_cases()) {
    if (!one.depends || one.type != onnx::kFloat) continue;
    onnx::Model model = model_of(one);
    model.inputs[0].shape = {"n", 1};
    model.outputs[0].shape = {"n", 1};
    const TensorSpec x = spec_of("x", DataType::fp32, {1});
    const TensorSpec y = spec_of("y", DataType::fp32, {1});
    EXPECT_TRUE(load(model, {x}, {y}, 1).ok()) << one.name;
    for (const std::uint32_t max_batch : {2U, 3U, 8U})
      EXPECT_EQ(load(model, {x}, {y}, max_batch).code(), StatusCode::invalid) << one.name;
  }
}

// ONNX Runtime changes the statistics in the model with each batch.
TEST_F(OnnxAnswers, ModelsThatKeepWhatEarlierBatchesLeftAreRefused) {
  const onnx::Model model = model_of({"normalised by its batch",
                                      {{"BatchNormalization",
                                        {"x", "ones", "zeros", "zeros", "ones"},
                                        {"y", "mean", "variance"},
                                        {onnx::integer_attribute("training_mode", 1)}}},
                                      true});
  for (const std::uint32_t max_batch : {1U, 4U}) {
    const Status status = load(model, {spec_of("x", DataType::fp32, {3})},
                               {spec_of("y", DataType::fp32, {3})}, max_batch);
    EXPECT_EQ(status.code(), StatusCode::invalid);
    EXPECT_TRUE(names(status, "'y'"));
    EXPECT_FALSE(holds(status, "--max-batch")) << "no smaller batch helps";
  }
}

// ---- what the model says of a failure

TEST_F(OnnxAnswers, TheLibrarysWordsAreForTheLogOnly) {
  const onnx::Model model{.inputs = {{"i", onnx::kInt64, {{"n", 1}}}},
                          .outputs = {{"y", onnx::kFloat, {{"n", 1}}}},
                          .nodes = {{"Gather", {"table", "i"}, {"y"}}},
                          .weights = {{"table", {3}, {7, 8, 9}}}};
  ASSERT_TRUE(
      load(model, {spec_of("i", DataType::int64, {1})}, {spec_of("y", DataType::fp32, {1})}, 2)
          .ok());
  std::int64_t index = 1'234'567;
  float answer = 0;
  const auto gather = [&] {
    return executor_->run({.model = "m",
                           .count = 1,
                           .input = std::as_bytes(std::span(&index, 1)),
                           .output = std::as_writable_bytes(std::span(&answer, 1))});
  };
  const auto outside = gather();
  EXPECT_EQ(outside.status().code(), StatusCode::invalid);
  EXPECT_FALSE(holds(outside.status(), "1234567"));
  EXPECT_TRUE(names(executor_->failure_text(), "1234567"));
  index = 1;
  EXPECT_TRUE(gather().ok());
  EXPECT_EQ(executor_->failure_text(), "");
}

}  // namespace
}  // namespace gpulet::executor::onnx_answers_test
