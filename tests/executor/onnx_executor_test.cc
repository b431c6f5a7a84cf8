#include "gpulet/executor/onnx/onnx_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "executor/onnx/onnx_library.h"
#include "gpulet/core/tensor.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/onnx_models.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::onnx_executor_test {
namespace {

namespace onnx = support::onnx;
using support::holds;
using support::names;

// y = x * w, for rows of two numbers.
onnx::Model linear() {
  return {.inputs = {{"x", onnx::kFloat, {{"batch", 2}}}},
          .outputs = {{"y", onnx::kFloat, {{"batch", 3}}}},
          .nodes = {{"MatMul", {"x", "w"}, {"y"}}},
          .weights = {{"w", {2, 3}, {1, 2, 3, 10, 20, 30}}}};
}

// linear() with other weights: {1, 1} gives {5, 5, 5}.
onnx::Model fives() {
  onnx::Model model = linear();
  model.weights[0].numbers = {5, 5, 5, 0, 0, 0};
  return model;
}

class OnnxExecutor : public ::testing::Test {
 protected:
  [[nodiscard]] ModelToLoad request(const std::string& file) const {
    return {.name = "m",
            .file = folder_.write("m.onnx", file),
            .inputs = {{"x", DataType::fp32, {2}}},
            .outputs = {{"y", DataType::fp32, {3}}},
            .max_batch = 4};
  }
  [[nodiscard]] ModelToLoad request(const onnx::Model& model) const {
    return request(encode(model));
  }
  Status load(const ModelToLoad& model) { return executor_->load(model).status(); }
  void must_load(const ModelToLoad& model) {
    const Status status = load(model);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void expect_invalid(const ModelToLoad& model, const std::string& value) {
    const Status status = load(model);
    EXPECT_EQ(status.code(), StatusCode::invalid) << status.to_string();
    EXPECT_TRUE(names(status, value, model.file));
    EXPECT_EQ(executor_->run({.model = "m", .count = 1}).status().code(), StatusCode::not_found);
  }

  template <typename Input, typename Output>
  Result<std::size_t> run(std::uint32_t count, const std::vector<Input>& input,
                          std::vector<Output>& output) {
    return executor_->run({.model = "m",
                           .count = count,
                           .input = std::as_bytes(std::span(input)),
                           .output = std::as_writable_bytes(std::span(output))});
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_onnx_executor();
};

TEST_F(OnnxExecutor, RunsBatchesOfEverySize) {
  must_load(request(linear()));
  for (std::uint32_t count = 1; count <= 5; ++count) {
    std::vector<float> input;
    std::vector<float> expected;
    for (std::uint32_t row = 0; row < count; ++row) {
      const auto a = static_cast<float>(row);
      input.insert(input.end(), {a, 1});
      expected.insert(expected.end(), {a + 10, 2 * a + 20, 3 * a + 30});
    }
    std::vector<float> output(expected.size() + 1, -7);
    const auto written = run(count, input, output);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    EXPECT_EQ(written.value(), expected.size() * sizeof(float));
    EXPECT_EQ(output.back(), -7) << "the number beyond the outputs must not change";
    output.pop_back();
    EXPECT_EQ(output, expected);
  }
}

// An image of 2 x 2 pixels, of which clients send bytes: twice what the model makes of them.
onnx::Model twice_image() {
  return {.inputs = {{"image", onnx::kFloat, {{"batch", 3, 2, 2}}}},
          .outputs = {{"twice", onnx::kFloat, {{"batch", 3, 2, 2}}}},
          .nodes = {{"Add", {"image", "image"}, {"twice"}}}};
}

TEST_F(OnnxExecutor, ConvertsTheBytesOfAnImage) {
  ModelToLoad wanted = request(twice_image());
  TensorSpec image{"image", DataType::uint8, {2, 2, 3}};
  image.conversion = InputConversion{
      .from_channels_last = true, .scale = 1, .mean = {0, 100, 200}, .deviation = {2}};
  wanted.inputs = {image};
  wanted.outputs = {{"twice", DataType::fp32, {3, 2, 2}}};
  must_load(wanted);
  for (std::uint32_t count = 1; count <= 5; ++count) {
    std::vector<std::uint8_t> input(count * 12);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::uint8_t>(29 * i);
    std::vector<float> output(input.size() + 1, -7);
    const auto written = run(count, input, output);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    EXPECT_EQ(written.value(), input.size() * sizeof(float));
    EXPECT_EQ(output.back(), -7);
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t channel = i % 3;
      const std::size_t pixel = i / 3 % 4;
      const float mean = 100.F * static_cast<float>(channel);
      EXPECT_EQ(output[i / 12 * 12 + channel * 4 + pixel], static_cast<float>(input[i]) - mean);
    }
  }
}

TEST_F(OnnxExecutor, AConversionMustFitTheFile) {
  ModelToLoad wanted = request(twice_image());
  wanted.outputs = {{"twice", DataType::fp32, {3, 2, 2}}};
  wanted.inputs = {{"image", DataType::uint8, {3, 2, 2}}};
  expect_invalid(wanted, "UINT8");
  wanted.inputs[0].conversion = InputConversion{.type = DataType::fp16};
  expect_invalid(wanted, "FP16");
  wanted.inputs[0].conversion = InputConversion{.to_channels_last = true};
  expect_invalid(wanted, "image");
  wanted.inputs[0].conversion = InputConversion{.deviation = {0}};
  expect_invalid(wanted, "image");
  wanted.inputs[0].conversion = InputConversion{};
  must_load(wanted);
}

TEST_F(OnnxExecutor, TakesTheDeclaredOrderOfTensors) {
  onnx::Model model{
      .inputs = {{"a", onnx::kFloat, {{"n", 1}}}, {"b", onnx::kFloat, {{"n", 2}}}},
      .outputs = {{"sum", onnx::kFloat, {{"n", 2}}}, {"twice", onnx::kFloat, {{"n", 1}}}},
      .nodes = {{"Add", {"a", "b"}, {"sum"}}, {"Add", {"a", "a"}, {"twice"}}}};
  ModelToLoad wanted = request(model);
  wanted.inputs = {{"b", DataType::fp32, {2}}, {"a", DataType::fp32, {1}}};
  wanted.outputs = {{"twice", DataType::fp32, {1}}, {"sum", DataType::fp32, {2}}};
  must_load(wanted);
  std::vector<float> output(6);
  const auto written = run<float>(2, {1, 2, 3, 4, 100, 200}, output);
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_EQ(output, (std::vector<float>{200, 400, 101, 102, 203, 204}));

  wanted.outputs = {{"sum", DataType::fp32, {2}}};
  must_load(wanted);
  output.assign(2, 0);
  ASSERT_TRUE(run<float>(1, {1, 2, 100}, output).ok());
  EXPECT_EQ(output, (std::vector<float>{101, 102}));
}

TEST_F(OnnxExecutor, CopiesTensorsThatAreNotAligned) {
  must_load(request(linear()));
  std::vector<std::byte> input(1 + 2 * sizeof(float));
  std::vector<std::byte> output(1 + 3 * sizeof(float));
  const float numbers[] = {1, 1};
  std::memcpy(input.data() + 1, numbers, sizeof numbers);
  const auto written = executor_->run({.model = "m",
                                       .count = 1,
                                       .input = std::span(input).subspan(1),
                                       .output = std::span(output).subspan(1)});
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  float answer[3];
  std::memcpy(answer, output.data() + 1, sizeof answer);
  EXPECT_THAT(answer, ::testing::ElementsAre(11, 22, 33));
}

struct TypeCase {
  DataType type;
  int number;
};
class OnnxTypes : public ::testing::TestWithParam<TypeCase> {};

// Identity over every type that a request can have.
TEST_P(OnnxTypes, PassThrough) {
  const auto [type, number] = GetParam();
  const support::TemporaryFolder folder;
  const onnx::Model model{.inputs = {{"x", number, {{"n", 4}}}},
                          .outputs = {{"y", number, {{"n", 4}}}},
                          .nodes = {{"Identity", {"x"}, {"y"}}}};
  const auto executor = make_onnx_executor();
  const auto loaded = executor->load({.name = "m",
                                      .file = folder.write("m.onnx", encode(model)),
                                      .inputs = {{"x", type, {4}}},
                                      .outputs = {{"y", type, {4}}},
                                      .max_batch = 2});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  std::vector<std::byte> input(2 * 4 * byte_size(type));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i % 2);
  std::vector<std::byte> output(input.size());
  const auto written = executor->run({.model = "m", .count = 2, .input = input, .output = output});
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_EQ(output, input);
}

INSTANTIATE_TEST_SUITE_P(
    All, OnnxTypes,
    ::testing::Values(TypeCase{DataType::boolean, 9}, TypeCase{DataType::uint8, 2},
                      TypeCase{DataType::int8, 3}, TypeCase{DataType::int16, 5},
                      TypeCase{DataType::int32, 6}, TypeCase{DataType::int64, 7},
                      TypeCase{DataType::fp16, 10}, TypeCase{DataType::bf16, 16},
                      TypeCase{DataType::fp32, 1}, TypeCase{DataType::fp64, 11}));

TEST_F(OnnxExecutor, PassesOnNumbersThatAreNone) {
  must_load(request(linear()));
  std::vector<float> output(6);
  const float none = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(run<float>(2, {none, 0, 1, 0}, output).ok());
  EXPECT_TRUE(std::isnan(output[0]));
  EXPECT_EQ(output[3], 1) << "the other row is as ever";
}

TEST_F(OnnxExecutor, ReplacesAModelOfTheSameName) {
  must_load(request(linear()));
  must_load(request(fives()));
  std::vector<float> output(3);
  ASSERT_TRUE(run<float>(1, {1, 1}, output).ok());
  EXPECT_EQ(output, (std::vector<float>{5, 5, 5}));
}

TEST_F(OnnxExecutor, ServesOneFileUnderSeveralNames) {
  const std::string file = encode(linear());
  ModelToLoad first = request(file);
  must_load(first);
  ModelToLoad second = first;
  second.name = "second";
  must_load(second);
  // The first is replaced by other content at the same path; the second stays as it is.
  must_load(request(fives()));
  std::vector<float> output(3);
  ASSERT_TRUE(run<float>(1, {1, 1}, output).ok());
  EXPECT_EQ(output, (std::vector<float>{5, 5, 5}));
  const std::vector<float> input{1, 1};
  const auto outcome = executor_->run({.model = "second",
                                       .count = 1,
                                       .input = std::as_bytes(std::span(input)),
                                       .output = std::as_writable_bytes(std::span(output))});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(output, (std::vector<float>{11, 22, 33}));
}

TEST_F(OnnxExecutor, KeepsAModelWhoseReplacementFails) {
  must_load(request(linear()));
  EXPECT_EQ(load(request("no model")).code(), StatusCode::invalid);
  std::vector<float> output(3);
  EXPECT_TRUE(run<float>(1, {1, 1}, output).ok());
}

// ---- failures of load

TEST_F(OnnxExecutor, RefusesOtherFiles) {
  expect_invalid(request("no model"), "ONNX");
  expect_invalid(request(""), "ONNX");
  ModelToLoad none = request(linear());
  none.file = folder_.path() / "none.onnx";
  EXPECT_EQ(load(none).code(), StatusCode::not_found);
  none.file = folder_.path();
  EXPECT_EQ(load(none).code(), StatusCode::not_found);
}

TEST_F(OnnxExecutor, RefusesOperatorsThatDoNotExist) {
  onnx::Model model = linear();
  model.nodes[0].operation = "Telepathy";
  expect_invalid(request(model), "Telepathy");
  model = linear();
  model.operators = 9999;
  expect_invalid(request(model), "9999");
}

TEST_F(OnnxExecutor, RefusesBrokenGraphs) {
  onnx::Model model = linear();
  model.nodes[0].inputs[1] = "nothing";
  expect_invalid(request(model), "nothing");
  model = linear();
  model.weights[0].numbers.pop_back();
  expect_invalid(request(model), "ONNX Runtime");
}

TEST_F(OnnxExecutor, RefusesOtherTensorsThanDeclared) {
  ModelToLoad wanted = request(linear());
  wanted.inputs[0].name = "other";
  expect_invalid(wanted, "\"other\"");
  wanted = request(linear());
  wanted.inputs[0].shape = {3};
  expect_invalid(wanted, "[3]");
  wanted = request(linear());
  wanted.outputs[0].type = DataType::int64;
  expect_invalid(wanted, "INT64");
}

// The file says nothing about the shapes, so the outputs of a batch show it.
TEST_F(OnnxExecutor, RefusesOutputsThatTurnOutOtherwise) {
  onnx::Model model = linear();
  model.outputs[0].shape.reset();
  ModelToLoad wanted = request(model);
  must_load(wanted);
  wanted.name = "n";
  wanted.outputs[0].shape = {4};
  const Status status = load(wanted);
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, "FP32[1,3]"));
}

TEST_F(OnnxExecutor, RefusesModelsForOneBatchSize) {
  onnx::Model model = linear();
  model.inputs[0].shape = {1, 2};
  expect_invalid(request(model), "FP32[1,2]");
  ModelToLoad wanted = request(model);
  wanted.max_batch = 1;
  must_load(wanted);
}

// The file promises any size, but the graph has the size of the export in it.
TEST_F(OnnxExecutor, RefusesModelsThatTakeOneBatchSizeOnly) {
  onnx::Model model = linear();
  model.weights[0] = {"w", {1, 3}, {1, 2, 3}};
  model.nodes[0].inputs[0] = "sum";
  model.nodes.insert(model.nodes.begin(), {"ReduceSum", {"x"}, {"sum"}});
  expect_invalid(request(model), "'y'");
}

TEST_F(OnnxExecutor, RefusesOtherNumerics) {
  ModelToLoad wanted = request(linear());
  wanted.numerics.precision = Precision::bfloat16;
  expect_invalid(wanted, "\"precision\"");
  wanted.numerics = {.channels_last = true};
  expect_invalid(wanted, "\"memory_format\"");
}

TEST_F(OnnxExecutor, RefusesWeightsInOtherFiles) {
  onnx::Model model = linear();
  model.weights[0].external = true;
  expect_invalid(request(model), "weights");
}

// ---- failures of run

TEST_F(OnnxExecutor, FailsOnBatchesOfOtherSizes) {
  std::vector<float> output(3);
  EXPECT_EQ(run<float>(1, {1, 1}, output).status().code(), StatusCode::not_found);
  must_load(request(linear()));
  EXPECT_EQ(run<float>(0, {}, output).status().code(), StatusCode::internal);
  EXPECT_EQ(run<float>(1, {1, 1, 1}, output).status().code(), StatusCode::internal);
  EXPECT_EQ(run<float>(2, {1, 1, 1, 1}, output).status().code(), StatusCode::internal);
}

TEST_F(OnnxExecutor, TellsInputsAtFaultFromOtherFailures) {
  const onnx::Model model{.inputs = {{"i", onnx::kInt64, {{"n", 1}}}},
                          .outputs = {{"y", onnx::kFloat, {{"n", 1}}}},
                          .nodes = {{"Gather", {"table", "i"}, {"y"}}},
                          .weights = {{"table", {3}, {7, 8, 9}}}};
  ModelToLoad wanted = request(model);
  wanted.inputs = {{"i", DataType::int64, {1}}};
  wanted.outputs = {{"y", DataType::fp32, {1}}};
  must_load(wanted);
  const auto gather = [this](std::int64_t index, float& answer) {
    return executor_->run({.model = "m",
                           .count = 1,
                           .input = std::as_bytes(std::span(&index, 1)),
                           .output = std::as_writable_bytes(std::span(&answer, 1))});
  };
  float answer = 0;
  const auto outside = gather(1'000'000, answer);
  EXPECT_EQ(outside.status().code(), StatusCode::invalid);
  EXPECT_FALSE(holds(outside.status(), "1000000"));
  ASSERT_TRUE(gather(2, answer).ok());
  EXPECT_EQ(answer, 9);
}

// ---- devices and the library

TEST(OnnxDevice, IsTheCpuOrAGpu) {
  EXPECT_NO_THROW((void)make_onnx_executor("cpu"));
  EXPECT_NO_THROW((void)make_onnx_executor("cuda"));
  EXPECT_NO_THROW((void)make_onnx_executor("cuda:1"));
  for (const char* wrong : {"", "tpu", "cuda:", "cuda:x", "cuda1", "cpu:0"})
    EXPECT_THROW((void)make_onnx_executor(wrong), std::invalid_argument) << wrong;
}

TEST(OnnxDevice, WithoutCudaIsReportedAtLoad) {
  const support::TemporaryFolder folder;
  const auto loaded =
      make_onnx_executor("cuda:0")->load({.name = "m",
                                          .file = folder.write("m.onnx", encode(linear())),
                                          .inputs = {{"x", DataType::fp32, {2}}},
                                          .outputs = {{"y", DataType::fp32, {3}}}});
  EXPECT_EQ(loaded.status().code(), StatusCode::internal);
  EXPECT_TRUE(names(loaded.status(), "CUDA"));
}

TEST(OnnxLibraryTest, ThatIsMissingOrAnotherOneIsReported) {
  const auto missing = OnnxLibrary::open("/nonexistent/libonnxruntime.so", nullptr);
  EXPECT_EQ(missing.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(missing.status(), "/nonexistent/libonnxruntime.so"));
  EXPECT_EQ(OnnxLibrary::open("libz.so.1", nullptr).status().code(), StatusCode::unavailable);
}

TEST(OnnxLibraryTest, ThatIsTooOldIsReported) {
  const auto old = OnnxLibrary::open(GPULET_OLD_ONNXRUNTIME, nullptr);
  EXPECT_EQ(old.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(old.status(), "1.16.3", "1.17"));
}

TEST(OnnxLibraryTest, HasAVersion) {
  const auto& library = OnnxLibrary::of_process();
  ASSERT_TRUE(library.ok()) << library.status().to_string();
  EXPECT_FALSE(library.value().version().empty());
}

// ---- strings

class OnnxStrings : public OnnxExecutor {
 protected:
  static constexpr std::size_t kText = 40;
  static constexpr std::size_t kWords = 64;

  [[nodiscard]] ModelToLoad tokens() const {
    ModelToLoad model = request(onnx::tokeniser());
    model.inputs = {{"text", DataType::bytes, {1}, kText}};
    model.outputs = {{"words", DataType::bytes, {4}, kWords},
                     {"ids", DataType::int64, {4}},
                     {"loud", DataType::bytes, {1}, kText}};
    return model;
  }
  static std::string slot(const std::vector<std::string>& strings, std::size_t bytes) {
    std::string text;
    for (const std::string& each : strings) append_element(text, each);
    text.resize(bytes, '\0');
    return text;
  }
  // The outputs of a batch with these slots.
  Result<std::string> run_slots(const std::string& input) {
    const auto count = static_cast<std::uint32_t>(input.size() / kText);
    std::string output(count * (kWords + 4 * sizeof(std::int64_t) + kText), '?');
    const auto written = executor_->run({.model = "m",
                                         .count = count,
                                         .input = std::as_bytes(std::span(input)),
                                         .output = std::as_writable_bytes(std::span(output))});
    if (!written.ok()) return written.status();
    EXPECT_EQ(written.value(), output.size());
    return output;
  }
};

TEST_F(OnnxStrings, ComeFromSlotsAndGoIntoSlots) {
  must_load(tokens());
  const std::string zeros("a\0b c", 5);
  const auto output = run_slots(slot({"hello big world"}, kText) + slot({zeros}, kText));
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  std::vector<std::int64_t> ids(8);
  std::memcpy(ids.data(), output.value().data() + 2 * kWords, 64);
  EXPECT_THAT(ids, ::testing::ElementsAre(7, -1, 8, -1, -1, -1, -1, -1));
  EXPECT_EQ(output.value().substr(0, 2 * kWords),
            slot({"hello", "big", "world", ""}, kWords) +
                slot({std::string("a\0b", 3), "c", "", ""}, kWords));
  EXPECT_EQ(output.value().substr(2 * kWords + 64),
            slot({"hello big world!"}, kText) + slot({zeros + "!"}, kText));
}

TEST_F(OnnxStrings, MayBeNumbersToTheModel) {
  constexpr std::uint64_t kToInt64 = 7;
  ModelToLoad model = request(onnx::Model{
      .inputs = {{"text", onnx::kString, {{"n", 1}}}},
      .outputs = {{"number", onnx::kInt64, {{"n", 1}}}},
      .nodes = {{"Cast", {"text"}, {"number"}, {onnx::integer_attribute("to", kToInt64)}}}});
  model.inputs = {{"text", DataType::bytes, {1}, kText}};
  model.outputs = {{"number", DataType::int64, {1}}};
  must_load(model);
  const std::string input = slot({"42"}, kText);
  std::vector<std::int64_t> output(1);
  const auto written = executor_->run({.model = "m",
                                       .count = 1,
                                       .input = std::as_bytes(std::span(input)),
                                       .output = std::as_writable_bytes(std::span(output))});
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_EQ(output.front(), 42);
}

TEST_F(OnnxStrings, AnOutputAboveItsSlotFailsTheBatchAlone) {
  must_load(tokens());
  const auto status = run_slots(slot({std::string(kText - 4, 'x')}, kText)).status();
  EXPECT_EQ(status.code(), StatusCode::invalid) << status.to_string();
  EXPECT_TRUE(names(status, "loud", "max_bytes"));
  EXPECT_TRUE(run_slots(slot({std::string(kText - 5, 'x')}, kText)).ok());
}

TEST_F(OnnxStrings, SlotsWithoutTheirElementsAreHarmless) {
  must_load(tokens());
  for (const std::string& hostile : {std::string(kText, '\xff'), std::string("\x25\0\0\0", 4)}) {
    std::string bytes = hostile;
    bytes.resize(kText, '\0');
    EXPECT_EQ(run_slots(bytes).status().code(), StatusCode::invalid);
  }
  EXPECT_TRUE(run_slots(slot({""}, kText)).ok());
}

TEST_F(OnnxStrings, AreDeclaredAsBytes) {
  ModelToLoad model = tokens();
  model.inputs[0] = {"text", DataType::uint8, {1}};
  expect_invalid(model, "text");
}

}  // namespace
}  // namespace gpulet::executor::onnx_executor_test
