// ONNX models without a batch dimension, with optional inputs, and whose output shapes are found by
// running them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::onnx_whole_test {
namespace {

namespace onnx = support::onnx;
using Shape = std::vector<std::int64_t>;
using ::testing::ElementsAre;

TensorSpec whole(const std::string& name, DataType type, Shape shape) {
  TensorSpec spec{name, type, std::move(shape)};
  spec.whole = true;
  return spec;
}

// As a recurrent network: next = state + rate * input, and last is the input.
onnx::Model recurrent() {
  return {.inputs = {{"input", onnx::kFloat, std::vector<onnx::Dimension>{"batch", 2}},
                     {"state", onnx::kFloat, std::vector<onnx::Dimension>{3, "batch", 2}},
                     {"rate", onnx::kFloat, std::vector<onnx::Dimension>{}}},
          .outputs = {{"next", onnx::kFloat, std::vector<onnx::Dimension>{3, "batch", 2}},
                      {"input", onnx::kFloat, std::vector<onnx::Dimension>{"batch", 2}},
                      {"level", onnx::kFloat, std::vector<onnx::Dimension>{}}},
          .nodes = {{"Mul", {"input", "rate"}, {"scaled"}},
                    {"Add", {"state", "scaled"}, {"next"}},
                    {"Identity", {"rate"}, {"level"}}}};
}

class OnnxWhole : public ::testing::Test {
 protected:
  [[nodiscard]] ModelToLoad request(const onnx::Model& model) const {
    return {
        .name = "m",
        .file = folder_.write("m.onnx", encode(model)),
        .inputs = {whole("input", DataType::fp32, {1, 2}),
                   whole("state", DataType::fp32, {3, 1, 2}), whole("rate", DataType::fp32, {})},
        .outputs = {whole("next", DataType::fp32, {3, 1, 2}),
                    whole("input", DataType::fp32, {1, 2}), whole("level", DataType::fp32, {})},
        .max_batch = 1};
  }
  [[nodiscard]] Status load(const ModelToLoad& model) { return executor_->load(model).status(); }
  [[nodiscard]] Result<std::vector<float>> run(const std::vector<float>& input, std::size_t numbers,
                                               std::uint32_t count = 1) {
    std::vector<float> output(numbers, -7);
    const auto written = executor_->run({.model = "m",
                                         .count = count,
                                         .input = std::as_bytes(std::span(input)),
                                         .output = std::as_writable_bytes(std::span(output))});
    if (!written.ok()) return written.status();
    output.resize(written.value() / sizeof(float));
    return output;
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_onnx_executor();
};

TEST_F(OnnxWhole, TakesScalarsAndStatesAndGivesInputsBack) {
  const Status loaded = load(request(recurrent()));
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const auto output = run({1, 2, 10, 20, 30, 40, 50, 60, 0.5F}, 9);
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_THAT(output.value(), ElementsAre(10.5F, 21, 30.5F, 41, 50.5F, 61, 1, 2, 0.5F));
}

TEST_F(OnnxWhole, TakesOneRequestAtATime) {
  ModelToLoad wanted = request(recurrent());
  wanted.max_batch = 2;
  const Status refused = load(wanted);
  EXPECT_EQ(refused.code(), StatusCode::invalid);
  EXPECT_TRUE(support::names(refused, "max_batch")) << refused.to_string();
  wanted.max_batch = 1;
  ASSERT_TRUE(load(wanted).ok());
  EXPECT_EQ(run(std::vector<float>(18), 18, 2).status().code(), StatusCode::internal);
}

TEST_F(OnnxWhole, MustBeDeclaredAsItIs) {
  ModelToLoad wanted = request(recurrent());
  wanted.inputs[1].shape = {2, 1, 2};
  EXPECT_EQ(load(wanted).code(), StatusCode::invalid);
  wanted = request(recurrent());
  wanted.outputs[0].shape = {3, 2};
  EXPECT_EQ(load(wanted).code(), StatusCode::invalid);
  wanted = request(recurrent());
  for (TensorSpec& input : wanted.inputs) input.whole = false;
  EXPECT_EQ(load(wanted).code(), StatusCode::invalid);
}

// Computes the index `i` of a table whose only row of numbers is the last one.
TEST_F(OnnxWhole, SamplesHaveTheValuesOfARange) {
  onnx::Model model;
  model.inputs = {{"i", onnx::kInt64, std::vector<onnx::Dimension>{"n", 1}}};
  model.outputs = {{"y", onnx::kFloat, std::vector<onnx::Dimension>{"n", 1}}};
  model.nodes = {{"Sub", {"i", "thousand"}, {"row"}}, {"Gather", {"w", "row"}, {"y"}}};
  model.weights = {{"w", {3}, {5, 6, 7}}};
  model.constants = {onnx::integers_constant("thousand", {1000})};
  ModelToLoad wanted{.name = "m",
                     .file = folder_.write("g.onnx", encode(model)),
                     .inputs = {{"i", DataType::int64, {1}}},
                     .outputs = {{"y", DataType::fp32, {1}}},
                     .max_batch = 4};
  EXPECT_EQ(load(wanted).code(), StatusCode::invalid) << "the samples are no indices";
  wanted.inputs[0].range = ValueRange{1000, 1002};
  const Status loaded = load(wanted);
  EXPECT_TRUE(loaded.ok()) << loaded.to_string();
}

// y = x * scale, where the file has a scale.
onnx::Model scaled() {
  onnx::Model model;
  model.inputs = {{"x", onnx::kFloat, std::vector<onnx::Dimension>{2}},
                  {"scale", onnx::kFloat, std::vector<onnx::Dimension>{2}}};
  model.outputs = {{"y", onnx::kFloat, std::vector<onnx::Dimension>{2}},
                   {"scale", onnx::kFloat, std::vector<onnx::Dimension>{2}}};
  model.nodes = {{"Mul", {"x", "scale"}, {"y"}}};
  model.weights = {{"scale", {2}, {10, 100}}};
  return model;
}

TEST_F(OnnxWhole, AnOptionalInputMayBeGivenOrNot) {
  ModelToLoad wanted = request(scaled());
  wanted.inputs = {whole("x", DataType::fp32, {2})};
  wanted.outputs = {whole("y", DataType::fp32, {2}), whole("scale", DataType::fp32, {2})};
  ASSERT_TRUE(load(wanted).ok()) << load(wanted).to_string();
  EXPECT_THAT(run({1, 2}, 4).value(), ElementsAre(10, 200, 10, 100));
  wanted.inputs.push_back(whole("scale", DataType::fp32, {2}));
  ASSERT_TRUE(load(wanted).ok()) << load(wanted).to_string();
  EXPECT_THAT(run({1, 2, 3, 4}, 4).value(), ElementsAre(3, 8, 3, 4));
}

// ---- shapes found by running

TEST_F(OnnxWhole, ShapesOfOutputsAreFoundByRunning) {
  ModelToLoad wanted = request(recurrent());
  for (TensorSpec& output : wanted.outputs) output.shape.clear();
  const auto shapes = find_output_shapes(wanted);
  ASSERT_TRUE(shapes.ok()) << shapes.status().to_string();
  EXPECT_THAT(shapes.value(), ElementsAre(Shape{3, 1, 2}, Shape{1, 2}, Shape{}));
}

TEST_F(OnnxWhole, ShapesOfAModelThatDoesNotRunAreNotFound) {
  ModelToLoad wanted = request(recurrent());
  wanted.inputs[0].shape = {1, 5};
  EXPECT_EQ(find_output_shapes(wanted).status().code(), StatusCode::invalid);
  wanted.file = folder_.write("none.onnx", "no model");
  EXPECT_FALSE(find_output_shapes(wanted).ok());
}

}  // namespace
}  // namespace gpulet::executor::onnx_whole_test
