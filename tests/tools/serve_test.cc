// The parts of `gpulet serve`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/config/daemon_config.h"
#include "gpulet/profile/store.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tools/serve/example_request.h"
#include "tools/serve/local_daemons.h"
#include "tools/serve/measured_models.h"
#include "tools/serve/model_arguments.h"
#include "tools/serve/proxy_formats.h"
#include "tools/serve/serving_devices.h"
#include "tools/serve/serving_files.h"
#include "tools/serve/serving_folder.h"

namespace gpulet::tools::serve_test {
namespace {

namespace fs = std::filesystem;
namespace onnx = support::onnx;
using support::holds;
using support::names;
using ::testing::UnorderedElementsAre;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    std::string path = (fs::temp_directory_path() / "gpulet-serve-test-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~Folder() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  fs::path write(const std::string& name, std::vector<onnx::Dimension> input,
                 std::vector<onnx::Dimension> output) {
    onnx::Model model;
    model.inputs = {{"image", onnx::kFloat, std::move(input)}};
    model.outputs = {{"logits", onnx::kFloat, std::move(output)}};
    model.nodes = {{"Identity", {"image"}, {"logits"}}};
    return write(name, onnx::encode(model));
  }

  fs::path folder_;
};

// ---- arguments

TEST(ServeArguments, TensorsAndTimes) {
  const auto tensor = parse_tensor("image:FP32:3,224,224");
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_EQ(tensor.value(), (TensorSpec{"image", DataType::fp32, {3, 224, 224}}));
  EXPECT_EQ(parse_tensor("a:b:INT64:7").value().name, "a:b");
  EXPECT_EQ(parse_tensor("scalar:FP32:").value().shape.size(), 0U);
  EXPECT_EQ(parse_tensor("tokens:INT64:-1,2").value().shape, (std::vector<std::int64_t>{-1, 2}));
  for (const char* const wrong :
       {"", "image", "image:FP32", ":FP32:3", "image:F32:3", "image:FP32:0", "image:FP32:3,x",
        "image:FP32:-2", "image:FP32:-1,-1", "image:FP32:3 4"})
    EXPECT_EQ(parse_tensor(wrong).status().code(), StatusCode::invalid) << wrong;
  EXPECT_EQ(parse_milliseconds("50ms").value(), 50);
  EXPECT_EQ(parse_milliseconds("0.05s").value(), 50);
  EXPECT_EQ(parse_milliseconds("50").value(), 50);
  for (const char* const wrong : {"", "ms", "-5ms", "0", "5m", "nan", "inf", "1e9s", "50 ms"})
    EXPECT_EQ(parse_milliseconds(wrong).status().code(), StatusCode::invalid) << wrong;
}

using ServeModels = Folder;

TEST_F(ServeModels, AnOnnxFileDescribesItself) {
  ModelArguments arguments;
  arguments.files = {write("digits.onnx", {"batch", 1, 28, 28}, {"batch", 10})};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().models.size(), 1U);
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.name, "digits");
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"image", DataType::fp32, {1, 28, 28}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"logits", DataType::fp32, {10}}}));
  EXPECT_EQ(model.max_batch, 32U);
  EXPECT_TRUE(model.file.is_absolute());
}

TEST_F(ServeModels, ImagesAreRecognisedByTheirChannels) {
  const auto formats = [&](const std::vector<onnx::Dimension>& input) {
    ModelArguments arguments;
    arguments.files = {write("image.onnx", input, {"batch", 10})};
    return describe_models(arguments).value().models.front().formats;
  };
  using Formats = std::map<std::string, config::ImageFormat>;
  const Formats nchw = {{"image", config::ImageFormat::nchw}};
  const Formats nhwc = {{"image", config::ImageFormat::nhwc}};
  EXPECT_EQ(formats({"batch", 1, 28, 28}), nchw);
  EXPECT_EQ(formats({"batch", 3, 224, 224}), nchw);
  EXPECT_EQ(formats({"batch", 224, 224, 3}), nhwc);
  for (const auto& other : std::vector<std::vector<onnx::Dimension>>{
           {"batch", 28, 28}, {"batch", 3, 224, 3}, {"batch", 4, 28, 28}, {"batch", 3, 2, 8, 8}})
    EXPECT_EQ(formats(other), Formats());
}

TEST_F(ServeModels, ClientsMaySendBytes) {
  ModelArguments arguments;
  arguments.files = {write("net.onnx", {"batch", 3, 8, 6}, {"batch", 10})};
  const auto described = [&](const std::string& text) {
    arguments.byte_inputs = {text};
    return describe_models(arguments);
  };
  const TensorSpec own{"image", DataType::fp32, {3, 8, 6}};
  const auto plain = described("image");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain.value().models.front().inputs, std::vector{sent_input(own, {}).value()});
  const InputConversion imagenet{.from_channels_last = true,
                                 .mean = {0.485, 0.456, 0.406},
                                 .deviation = {0.229, 0.224, 0.225}};
  for (const char* const text :
       {"image:NHWC:imagenet", "net/image:NHWC:0.485,0.456,0.406:0.229,0.224,0.225"}) {
    const auto converted = described(text);
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    config::ModelConfig model = converted.value().models.front();
    model.slo_ms = 50;
    EXPECT_EQ(model.inputs, std::vector{sent_input(own, imagenet).value()});
    EXPECT_EQ(model.formats.at("image"), config::ImageFormat::nhwc);
    // What is served is read from a file again.
    const auto read = config::parse_models(models_text({model}, {}), folder_ / "models.json");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().front().inputs, model.inputs);
  }
  for (const char* const wrong :
       {"picture", "other/image", "image:HWC", "image:NHWC:other", "image:NHWC:1", "image:NHWC:1:0",
        "image:NHWC:1,2:1", "image:NHWC:x:1", "image:NHWC:0:1:2"}) {
    const Status status = described(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << wrong;
    EXPECT_TRUE(names(status, "--uint8")) << wrong;
  }
  arguments.files = {write("open.onnx", {"batch", 3, "height", 6}, {"batch", 10})};
  arguments.shapes = {"height:8"};
  EXPECT_TRUE(described("image:NHWC").ok());
}

TEST_F(ServeModels, StringsOfAnOnnxFileGetTheDefaultLimit) {
  ModelArguments arguments;
  const support::onnx::Model model{.inputs = {{"text", support::onnx::kString, {{"batch", 2}}}},
                                   .outputs = {{"words", support::onnx::kString, {{"batch", 2}}}}};
  arguments.files = {write("tokens.onnx", encode(model))};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs,
            (std::vector<TensorSpec>{{"text", DataType::bytes, {2}, 512}}));
  arguments.files = {write("net.pt", std::string("PK\x03\x04", 4) + "...")};
  arguments.inputs = {"text:BYTES:1"};
  arguments.outputs = {"logits:FP32:10"};
  EXPECT_TRUE(names(describe_models(arguments).status(), "TorchScript"));
}

TEST_F(ServeModels, ABatchOfOneIsKept) {
  ModelArguments arguments;
  arguments.files = {write("fixed.onnx", {1, 4}, {1, 4})};
  const config::ModelConfig model = describe_models(arguments).value().models.front();
  EXPECT_EQ(model.max_batch, 1U);
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"image", DataType::fp32, {4}}}));
}

// ---- models without a batch dimension

TensorSpec whole(const std::string& name, DataType type, std::vector<std::int64_t> shape) {
  TensorSpec spec{name, type, std::move(shape)};
  spec.whole = true;
  return spec;
}

// As voice detectors are: samples, a state of their own order, and a scalar.
onnx::Model recurrent() {
  return {.inputs = {{"input", onnx::kFloat, {{"batch", "samples"}}},
                     {"state", onnx::kFloat, {{2, onnx::Dimension(-1, ""), 128}}},
                     {"rate", onnx::kInt64, std::vector<onnx::Dimension>{}}},
          .outputs = {{"output", onnx::kFloat, std::vector<onnx::Dimension>{"batch", 1}},
                      {"next", onnx::kFloat, {{-1, -1, -1}}}}};
}

TEST_F(ServeModels, AFirstDimensionThatIsNoBatchMakesAModelWhole) {
  ModelArguments arguments;
  for (const auto& [input, output] :
       std::vector<std::pair<std::vector<onnx::Dimension>, std::vector<onnx::Dimension>>>{
           {{8, 4}, {8, 4}}, {{8, 4}, {}}, {{}, {"n", 4}}}) {
    arguments.files = {write("fixed.onnx", input, output)};
    if (!output.empty() && output.front().size == -1) arguments.shapes = {"logits:8,4"};
    const auto models = describe_models(arguments);
    ASSERT_TRUE(models.ok()) << models.status().message();
    const config::ModelConfig& model = models.value().models.front();
    EXPECT_EQ(model.max_batch, 1U);
    EXPECT_TRUE(model.inputs.front().whole && model.outputs.front().whole);
    EXPECT_EQ(model.inputs.front().shape.size(), input.size());
    EXPECT_TRUE(holds(Status(StatusCode::invalid, limits_text(models.value())), "one at a time"));
  }
}

TEST_F(ServeModels, AModelWithoutABatchKeepsItsShapesInTheModelsFile) {
  ModelArguments arguments;
  arguments.files = {write("fixed.onnx", {8, 4}, {8, 4})};
  config::ModelConfig model = describe_models(arguments).value().models.front();
  model.slo_ms = 50;
  const auto read = config::parse_models(models_text({model}, {}), folder_ / "models.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().front().inputs, std::vector{whole("image", DataType::fp32, {8, 4})});
  EXPECT_EQ(read.value().front().max_batch, 1U);
}

TEST_F(ServeModels, AnyModelMayBeServedWithoutABatch) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", 4}, {"batch", 2})};
  arguments.max_batch = 0;
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs,
            std::vector{whole("image", DataType::fp32, {1, 4})});
  EXPECT_EQ(models.value().models.front().outputs,
            std::vector{whole("logits", DataType::fp32, {1, 2})});
}

// Learns shapes from a function of the inputs' shapes.
using Sizes = std::vector<std::vector<std::int64_t>>;
LearnShapes learning(std::function<Result<Sizes>(const Sizes&)> run) {
  return [run = std::move(run)](const config::ModelConfig&, const std::vector<TensorSpec>& inputs,
                                const std::vector<std::string>&) {
    Sizes shapes;
    for (const TensorSpec& input : inputs) shapes.push_back(batch_shape(input, 0));
    return run(shapes);
  };
}

TEST_F(ServeModels, ARecurrentModelTakesOneCallAtATime) {
  ModelArguments arguments;
  arguments.files = {write("voice.onnx", encode(recurrent()))};
  arguments.shapes = {"samples:512"};
  arguments.ranges = {"rate:16000,16000"};
  const LearnShapes learn = learning([](const Sizes& inputs) -> Result<Sizes> {
    EXPECT_EQ(inputs, (Sizes{{1, 512}, {2, 1, 128}, {}}));
    return Sizes{{1, 1}, {2, 1, 128}};
  });
  const auto models = describe_models(arguments, learn);
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().models.front();
  TensorSpec rate = whole("rate", DataType::int64, {});
  rate.range = ValueRange{16000, 16000};
  EXPECT_EQ(model.inputs, (std::vector{whole("input", DataType::fp32, {1, 512}),
                                       whole("state", DataType::fp32, {2, 1, 128}), rate}));
  EXPECT_EQ(model.outputs, (std::vector{whole("output", DataType::fp32, {1, 1}),
                                        whole("next", DataType::fp32, {2, 1, 128})}));
  // The lengths that run are proposed.
  arguments.shapes.clear();
  const auto open = describe_models(arguments, learning([](const Sizes& inputs) -> Result<Sizes> {
                                      if (inputs[0][1] % 256 != 0)
                                        return Status(StatusCode::invalid, "too short");
                                      return Sizes{{1, 1}, {2, 1, 128}};
                                    }));
  EXPECT_TRUE(names(open.status(), "--shape input:N,N")) << open.status().message();
  EXPECT_TRUE(names(open.status(), "--buckets 256,512")) << open.status().message();
}

// ---- shapes found by running

TEST_F(ServeModels, OpenOutputsAreLearnedByRunning) {
  ModelArguments arguments;
  arguments.files = {write("frames.onnx", {"n", 3, "width"}, {"n", "steps", 7})};
  arguments.shapes = {"image:3,320"};
  const LearnShapes learn = learning([](const Sizes& inputs) -> Result<Sizes> {
    return Sizes{{inputs[0][0], inputs[0][2] / 8, 7}};
  });
  const auto fixed = describe_models(arguments, learn);
  ASSERT_TRUE(fixed.ok()) << fixed.status().message();
  EXPECT_EQ(fixed.value().models.front().outputs.front().shape, (std::vector<std::int64_t>{40, 7}));
  EXPECT_EQ(fixed.value().models.front().max_batch, 32U);
  // With buckets, the output has a length of its own in each.
  arguments.shapes.clear();
  arguments.buckets = {80, 320};
  const auto models = describe_models(arguments, learn);
  ASSERT_TRUE(models.ok()) << models.status().message();
  config::ModelConfig model = models.value().models.front();
  EXPECT_EQ(model.outputs.front().shape, (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(model.dynamic->output_lengths.at("logits"), (std::vector<std::int64_t>{10, 40}));
  const auto buckets = config::buckets_of(model);
  EXPECT_EQ(buckets.front().outputs.front().shape, (std::vector<std::int64_t>{10, 7}));
  EXPECT_EQ(buckets.back().bucket->outputs.front().shape, (std::vector<std::int64_t>{40, 7}));
  model.slo_ms = 50;
  const auto read = config::parse_models(models_text({model}, {}), folder_ / "models.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().front().dynamic, model.dynamic);
}

TEST_F(ServeModels, OutputsOfTheLengthOfTheRequestAreCutToIt) {
  ModelArguments arguments;
  arguments.files = {write("tags.onnx", {"n", "tokens"}, {"n", "other", "two"})};
  arguments.buckets = {32};
  const auto models = describe_models(arguments, learning([](const Sizes& inputs) -> Result<Sizes> {
                                        return Sizes{{inputs[0][0], inputs[0][1], 2}};
                                      }));
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().outputs.front().shape,
            (std::vector<std::int64_t>{-1, 2}));
  EXPECT_TRUE(models.value().models.front().dynamic->output_lengths.empty());
}

TEST_F(ServeModels, AnOutputThatDoesNotFollowTheBatchMakesAModelWhole) {
  ModelArguments arguments;
  arguments.files = {write("spectrum.onnx", {"batch_size", "samples"}, {"time", 1, "d", 32})};
  arguments.shapes = {"samples:1280"};
  const auto models = describe_models(arguments, learning([](const Sizes& inputs) -> Result<Sizes> {
                                        return Sizes{{inputs[0][1] / 256, 1, 1, 32}};
                                      }));
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.max_batch, 1U);
  EXPECT_EQ(model.inputs, std::vector{whole("image", DataType::fp32, {1, 1280})});
  EXPECT_EQ(model.outputs, std::vector{whole("logits", DataType::fp32, {5, 1, 1, 32})});
  // Who gives the shape need not know whether there is a batch.
  for (const char* const shape : {"image:1280", "image:1,1280"}) {
    arguments.shapes = {shape};
    const auto same = describe_models(arguments, learning([](const Sizes& inputs) -> Result<Sizes> {
                                        return Sizes{{inputs[0][1] / 256, 1, 1, 32}};
                                      }));
    ASSERT_TRUE(same.ok()) << same.status().message();
    EXPECT_EQ(same.value().models.front().inputs, model.inputs) << shape;
  }
}

TEST_F(ServeModels, AModelThatDoesNotRunNeedsTheShapesOfItsOutputs) {
  ModelArguments arguments;
  arguments.files = {write("odd.onnx", {"n", 4}, {"n", "steps"})};
  const LearnShapes learn = learning(
      [](const Sizes&) -> Result<Sizes> { return Status(StatusCode::invalid, "out of luck"); });
  const Status refused = describe_models(arguments, learn).status();
  EXPECT_TRUE(names(refused, "--shape logits:N")) << refused.message();
  EXPECT_TRUE(names(refused, "out of luck")) << refused.message();
  arguments.shapes = {"logits:7"};
  EXPECT_TRUE(describe_models(arguments, learn).ok());
}

// ---- optional inputs

TEST_F(ServeModels, AnInputWithAValueInTheFileIsOfferedWhereAsked) {
  onnx::Model model;
  model.inputs = {{"image", onnx::kFloat, {{"n", 2}}}, {"scale", onnx::kFloat, {{1, 2}}}};
  model.outputs = {{"logits", onnx::kFloat, {{"n", 2}}}};
  model.weights = {{"scale", {1, 2}, {0.5F, 3}}};
  ModelArguments arguments;
  arguments.files = {write("scaled.onnx", encode(model))};
  EXPECT_EQ(describe_models(arguments).value().models.front().inputs.size(), 1U);
  arguments.optional_inputs = {"scale"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  config::ModelConfig served = models.value().models.front();
  EXPECT_EQ(served.inputs.size(), 2U);
  EXPECT_EQ(served.max_batch, 1U) << "the file has the value of one request";
  served.slo_ms = 50;
  const auto read = config::parse_models(models_text({served}, {}), folder_ / "models.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().front().defaults, served.defaults);
  EXPECT_EQ(served.defaults.at("scale").size(), 2 * sizeof(float));
  arguments.optional_inputs = {"image"};
  EXPECT_TRUE(names(describe_models(arguments).status(), "--optional image"));
}

TEST_F(ServeModels, OpenDimensionsNeedAShape) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", "length", 3}, {"batch", 2})};
  EXPECT_TRUE(names(describe_models(arguments).status(), "--shape image:N,N"));
  arguments.shapes = {"image:128,3"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs.front().shape,
            (std::vector<std::int64_t>{128, 3}));
  for (const char* const wrong :
       {"image:128", "image:128,4", "image:0,3", "image", "other:128,3"}) {
    arguments.shapes = {wrong};
    EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid) << wrong;
  }
  arguments.shapes = {"image:128,3", "other:5"};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

TEST_F(ServeModels, AShapeMayNameADimension) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", "tokens", 3}, {"batch", "tokens"})};
  arguments.shapes = {"tokens:5"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs.front().shape, (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(models.value().models.front().outputs.front().shape, std::vector<std::int64_t>{5});
  // The size of a dimension holds for the other tensors that have it.
  arguments.shapes = {"image:6,3"};
  EXPECT_EQ(describe_models(arguments).value().models.front().outputs.front().shape,
            std::vector<std::int64_t>{6});
}

TEST_F(ServeModels, AShapeMayBeForOneModel) {
  ModelArguments arguments;
  arguments.files = {write("a.onnx", {"n", "x", "y"}, {"n", 2}),
                     write("b.onnx", {"n", "x", "y"}, {"n", 2}),
                     write("c.onnx", {"n", "x"}, {"n", 2})};
  arguments.shapes = {"image:1,2", "b/image:3,4", "image:9"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  const auto shape = [&](std::size_t i) { return models.value().models[i].inputs.front().shape; };
  EXPECT_EQ(shape(0), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(shape(1), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(shape(2), std::vector<std::int64_t>{9});
}

TEST_F(ServeModels, BucketsAreProposedWhereTheyCanWork) {
  ModelArguments arguments;
  arguments.files = {write("equal.onnx", {"n", "tokens"}, {"n", "tokens"})};
  EXPECT_TRUE(names(describe_models(arguments).status(), "--buckets 32"));
  arguments.files = {write("other.onnx", {"n", "tokens"}, {"n", "frames"})};
  EXPECT_FALSE(holds(describe_models(arguments).status(), "--buckets"));
  arguments.buckets = {32};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

TEST_F(ServeModels, ARangeIsForAnInput) {
  ModelArguments arguments;
  arguments.files = {write("a.onnx", {"n", 4}, {"n", 4}), write("b.onnx", {"n", 4}, {"n", 4})};
  arguments.ranges = {"b/image:-2,2", "image:0,1"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs.front().range, (config::ValueRange{0, 1}));
  EXPECT_EQ(models.value().models.back().inputs.front().range, (config::ValueRange{-2, 2}));
  for (const char* const wrong :
       {"image", "image:1", "image:2,1", "other:0,1", "image:a,b", "image:0,inf"}) {
    arguments.ranges = {wrong};
    EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid) << wrong;
  }
}

TEST_F(ServeModels, AnOpenDimensionMayHaveBuckets) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", "length", 3}, {"batch", "length"})};
  arguments.buckets = {32, 64};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.inputs.front().shape, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(model.outputs.front().shape, (std::vector<std::int64_t>{-1}));
  EXPECT_EQ(model.dynamic, (config::DynamicLength{{32, 64}, {0}}));
  const std::vector<std::vector<std::int64_t>> impossible = {{64, 32}, {32, 32}, {0, 8}, {-8}};
  for (const auto& wrong : impossible) {
    arguments.buckets = wrong;
    EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
  }
  arguments.buckets = {32};
  arguments.files = {write("two.onnx", {"batch", "height", "width"}, {"batch", 2})};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

TEST_F(ServeModels, ATorchScriptFileNeedsItsTensors) {
  ModelArguments arguments;
  arguments.files = {write("net.pt", std::string("PK\x03\x04", 4) + "...")};
  EXPECT_TRUE(names(describe_models(arguments).status(), "--input"));
  arguments.inputs = {"image:FP32:3,8,8"};
  arguments.outputs = {"logits:FP32:10"};
  arguments.name = "mine";
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().name, "mine");
  EXPECT_EQ(models.value().models.front().outputs.front().shape, std::vector<std::int64_t>{10});
}

TEST_F(ServeModels, WrongFilesAreNamed) {
  ModelArguments arguments;
  arguments.files = {folder_ / "missing.onnx"};
  EXPECT_TRUE(names(describe_models(arguments).status(), "missing.onnx"));
  arguments.files = {write("noise.onnx", "not a model at all")};
  EXPECT_TRUE(names(describe_models(arguments).status(), "noise.onnx"));
  const fs::path one = write("one.onnx", {"n", 4}, {"n", 4});
  arguments.files = {one, one};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid) << "two of one name";
  arguments.files = {one, write("two.onnx", {"n", 4}, {"n", 4})};
  EXPECT_EQ(describe_models(arguments).value().models.size(), 2U);
  arguments.name = "both";
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

// ---- models files

TEST_F(ServeModels, AModelsFileIsServedAsItIs) {
  write("net.onnx", {"n", 4}, {"n", 4});
  const fs::path listed = write("models.json", R"({"models":[{"name":"a","file":"net.onnx",
    "inputs":[{"name":"image","type":"FP32","shape":[4]},
      {"name":"picture","type":"UINT8","shape":[8,8,3],"format":"NHWC"},
      {"name":"bytes","type":"FP32","shape":[3,8,8],"from":{"type":"UINT8","format":"NHWC",
        "mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]},"range":[16,235]},
      {"name":"more","type":"FP16","shape":[8,8,3],"format":"NHWC",
        "from":{"type":"UINT8","format":"NCHW","scale":1}},
      {"name":"vector","type":"FP32","shape":[5],"from":{"type":"UINT8","mean":0.5}}],
    "outputs":[{"name":"logits","type":"FP32","shape":[4]}],
    "slo_ms":70,"rate":3,"max_batch":8,"memory_mb":20,"largest_error":0.1,
    "measured":{"cpu-core":{"cells":[{"batch":1,"partition":50,"latency_ms":0.123456789},
      {"batch":2,"partition":50,"latency_ms":3,"p99_ms":4,"cv":0.25}],"memory_mb":30}},
    "queue":{"priority_levels":2,"default_priority_level":2,
      "default_policy":{"timeout_action":"delay","default_timeout_ms":20},
      "level_policies":{"1":{"allow_timeout_override":true,"max_queue_size":7}}}}]})");
  ModelArguments arguments;
  arguments.files = {listed};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  profile::Profile profile;
  profile.name = "cpu-core";
  profile.models.emplace(
      "a", profile::ModelProfile{
               profile::LatencyTable::create({{.batch = 1, .share = Share{100}, .latency_ms = 1}})
                   .value(),
               {},
               {}});
  const MachineDevices machine{{0}, "none", {}, {}, {}, Status(StatusCode::not_found, "none")};
  const fs::path out = folder_ / "out";
  fs::create_directories(out);
  const auto files = write_serving_files(out, models.value().models, profile, machine, {});
  ASSERT_TRUE(files.ok()) << files.status().message();
  const auto read = config::load_models(out / "models.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value(), models.value().models);
  const auto user = [&](const ServingSettings& settings) {
    ServingPorts ports;
    ports.backends = {"127.0.0.1", 7001};
    const auto chosen =
        write_serving_files(out, models.value().models, profile, machine, ports, settings);
    return config::load_backend(chosen.value().backend).value().proxy_user;
  };
  EXPECT_EQ(user({}), "");
  EXPECT_EQ(user({.proxies_as_root = true}), "root");
  const auto shares_memory = [&](const ServingSettings& settings) {
    ServingPorts ports;
    ports.clients = ports.backends = ports.http = ports.grpc = ports.metrics = {"127.0.0.1", 0};
    const auto chosen =
        write_serving_files(out, models.value().models, profile, machine, ports, settings);
    return config::load_frontend(chosen.value().frontend).value().shared_memory;
  };
  EXPECT_FALSE(shares_memory({}));
  EXPECT_TRUE(shares_memory({.shared_memory = true}));

  // Both daemons allow native code, or none does.
  for (const bool native : {false, true}) {
    ServingPorts ports;
    ports.clients = ports.backends = ports.http = ports.grpc = ports.metrics = {"127.0.0.1", 0};
    const auto chosen = write_serving_files(out, models.value().models, profile, machine, ports,
                                            {.native_models = native});
    EXPECT_EQ(config::load_frontend(chosen.value().frontend).value().model_format,
              native ? config::ModelFormat::native : config::ModelFormat::known);
    EXPECT_EQ(config::load_backend(chosen.value().backend).value().native_models, native);
  }
}

TEST_F(ServeModels, TheApplicationsOfAModelsFileAreServed) {
  ModelArguments arguments;
  arguments.files = {write("models.json", R"({"models":[{"name":"a","file":"net.onnx",
    "inputs":[{"name":"x","type":"FP32","shape":[4]}],
    "outputs":[{"name":"y","type":"FP32","shape":[4]}],"slo_ms":70}],
    "applications":[{"name":"two","inputs":[{"name":"x","type":"FP32","shape":[4]}],
      "nodes":[{"name":"first","model":"a","inputs":["request.x"]}],
      "outputs":[{"name":"y","from":"first.y"}],"slo_ms":90}]})")};
  const auto described = describe_models(arguments);
  ASSERT_TRUE(described.ok()) << described.status().message();
  const std::string text = models_text(described.value().models, described.value().applications);
  const auto read = config::parse_serving(text, folder_ / "written.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read.value().applications.size(), 1U);
  EXPECT_EQ(read.value().applications.front().name, "two");
}

// ---- Triton's repositories

class ServeRepository : public Folder {
 protected:
  // A model with a version 1 and 2 of the file.
  void add(const std::string& name, const std::string& config,
           const std::string& file = "model.onnx") {
    for (const char* const version : {"1", "2", "notes"}) {
      fs::create_directories(folder_ / name / version);
      write(name + "/" + version + "/" + file, {"n", 4}, {"n", 4});
    }
    if (!config.empty()) write(name + "/config.pbtxt", config);
  }
  [[nodiscard]] Result<DescribedModels> describe() const {
    ModelArguments arguments;
    arguments.files = {folder_};
    return describe_models(arguments);
  }
};

TEST_F(ServeRepository, EachFolderIsAModel) {
  add("plain", "");
  add("configured",
      "name: \"configured\" platform: \"onnxruntime_onnx\" max_batch_size: 8\n"
      "instance_group [{count: 2 kind: KIND_CPU}] response_cache {enable: true}\n"
      "output [{name: \"logits\" data_type: TYPE_FP32 dims: [4] label_filename: \"l.txt\"}]");
  write("configured/l.txt", "cat\ndog\n");
  fs::create_directories(folder_ / "other");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().models.size(), 2U);
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.name, "configured");
  EXPECT_EQ(model.max_batch, 8U);
  EXPECT_EQ(model.file, folder_ / "configured/2/model.onnx") << "the highest version";
  EXPECT_EQ(model.labels.at("logits"), folder_ / "configured/l.txt");
  EXPECT_EQ(models.value().models.back().max_batch, 32U);
}

TEST_F(ServeRepository, TorchScriptTensorsComeFromTheConfiguration) {
  add("net",
      "default_model_filename: \"net.pt\"\nmax_batch_size: 0\n"
      "input {name: \"x\" data_type: TYPE_INT64 dims: 1 dims: 7}\n"
      "output {name: \"y\" data_type: TYPE_FP32 dims: [-1, 2]}");
  write("net/2/net.pt", std::string("PK\x03\x04", 4) + "...");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"x", DataType::int64, {7}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"y", DataType::fp32, {2}}}));
  EXPECT_EQ(model.max_batch, 1U);
}

TEST_F(ServeRepository, OtherFieldsAreSkippedHoweverTheyAreWritten) {
  const std::vector<std::string> fields = {
      "model_warmup [{name: \"w [\" batch_size: 1}, {name: 'it\\'s [' batch_size: 2}]",
      "model_warmup [ # a comment [\n {name: \"w\"}]",
      "rate_limiter {resources [{name: \"R1\" count: 4}] priority: 2}",
      "optimization {execution_accelerators {gpu_execution_accelerator [{name: \"tensorrt\"}]}}",
      "version_policy: {specific {versions: [1]}}",
      "parameters [{key: \"k\" value: {string_value: \"v\"}}]"};
  std::string all;
  for (const std::string& field : fields) {
    all += field + "\n";
    add("net", "max_batch_size: 4 " + field);
    const auto models = describe();
    ASSERT_TRUE(models.ok()) << field << ": " << models.status().message();
    EXPECT_EQ(models.value().models.front().max_batch, 4U) << field;
  }
  add("net", all + "max_batch_size: 8");
  EXPECT_EQ(describe().value().models.front().max_batch, 8U);
}

TEST_F(ServeRepository, WrongConfigurationsAreNamed) {
  EXPECT_EQ(describe().status().code(), StatusCode::invalid) << "an empty folder";
  for (const char* const wrong :
       {"name: 5", "max_batch_size: -1", "max_batch_size: 99999", "{", "ensemble_scheduling {}",
        "default_model_filename: \"../secret.onnx\"", "default_model_filename: \"none.onnx\"",
        "output {name: \"logits\" label_filename: \"../../etc/passwd\"}",
        "output {name: \"logits\" label_filename: \"none.txt\"}", "output {name: \"fc6_1\"}",
        "input {name: \"picture\"}", "input {name: \"image\" reshape {shape: [4]}}",
        "sequence_batching {direct {}}", "model_transaction_policy {decoupled: true}"}) {
    add("wrong", wrong);
    const auto models = describe();
    EXPECT_FALSE(models.ok()) << wrong;
    EXPECT_TRUE(names(models.status(), "wrong")) << wrong;
  }
}

TEST_F(ServeRepository, WhatOnlyTunesIsNamed) {
  add("net",
      "instance_group [{count: 2 kind: KIND_GPU rate_limiter {priority: 2}}] "
      "dynamic_batching {priority_levels: 2 default_priority_level: 1 "
      "max_queue_delay_microseconds: 100} "
      "model_warmup {name: \"w\"} response_cache {enable: true} "
      "optimization {priority: PRIORITY_MAX} parameters {key: \"k\" value {string_value: \"v\"}}");
  add("plain", "max_batch_size: 4 dynamic_batching {}");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().unused.size(), 1U);
  EXPECT_EQ(models.value().unused.front().model, "net");
  EXPECT_THAT(models.value().unused.front().keys,
              UnorderedElementsAre("instance_group", "instance_group.rate_limiter",
                                   "dynamic_batching.priority_levels",
                                   "dynamic_batching.default_priority_level",
                                   "dynamic_batching.max_queue_delay_microseconds", "model_warmup",
                                   "response_cache", "optimization", "parameters.k"));
}

TEST_F(ServeRepository, ThePolicyPicksTheVersion) {
  const auto version = [&](const std::string& policy) -> std::uint64_t {
    add("net", policy);
    const auto models = describe();
    if (!models.ok()) return 0;
    const config::ModelConfig& model = models.value().models.front();
    EXPECT_EQ(model.file.parent_path().filename(), std::to_string(model.version)) << policy;
    return model.version;
  };
  EXPECT_EQ(version(""), 2U);
  EXPECT_EQ(version("version_policy {latest {}}"), 2U);
  EXPECT_EQ(version("version_policy {latest {num_versions: 1}}"), 2U);
  EXPECT_EQ(version("version_policy {specific {versions: [1]}}"), 1U);
  EXPECT_EQ(version("version_policy {specific {versions: 2}}"), 2U);
  for (const char* const several :
       {"version_policy {latest {num_versions: 2}}", "version_policy {all {}}",
        "version_policy {specific {versions: [1, 2]}}", "version_policy {specific {versions: 3}}",
        "version_policy {specific {}}", "version_policy {specific {versions: 0}}"})
    EXPECT_EQ(version(several), 0U) << several;
  // With one version folder.
  fs::remove_all(folder_ / "net/1");
  fs::create_directories(folder_ / "net/03");  // a leading zero is no version
  for (const char* const one :
       {"version_policy {all {}}", "version_policy {latest {num_versions: 3}}"}) {
    write("net/config.pbtxt", one);
    const auto models = describe();
    ASSERT_TRUE(models.ok()) << one << models.status().message();
    EXPECT_EQ(models.value().models.front().version, 2U) << one;
  }
}

TEST_F(ServeRepository, WhatWouldChangeAnswersRefusesTheModel) {
  for (const char* const field :
       {"batch_input {kind: BATCH_ELEMENT_COUNT target_name: \"a\"}",
        "batch_output {target_name: \"a\"}", "platform: \"tensorrt_plan\"", "backend: \"python\"",
        "backend: \"mine\"", "runtime: \"mine.so\"", "platform: \"pytorch_libtorch\"",
        "cc_model_filenames {key: \"7.5\" value: \"m.onnx\"}",
        "model_operations {op_library_filename: \"a.so\"}",
        "model_repository_agents {agents {name: \"checksum\"}}", "is_unknown: 3",
        "input {name: \"image\" is_shape_tensor: true}",
        "input {name: \"image\" is_non_linear_format_io: true}",
        "input {name: \"image\" allow_ragged_batch: true}",
        "input {name: \"image\" optional: true}", "input {name: \"image\" format: FORMAT_NCHW}",
        "input {name: \"image\"} input {name: \"image\"}",
        "output {name: \"logits\" reshape {shape: [4]}}",
        "parameters {key: \"MODULE_METHOD_NAME\" value {string_value: \"other\"}}"}) {
    add("good", "max_batch_size: 4");
    add("wrong", field);
    const auto models = describe();
    ASSERT_TRUE(models.ok()) << field << models.status().message();
    EXPECT_EQ(models.value().models.size(), 1U) << field;
    ASSERT_EQ(models.value().left_out.size(), 1U) << field;
    EXPECT_EQ(models.value().left_out.front().name, "wrong") << field;
    EXPECT_FALSE(models.value().left_out.front().reason.message().empty()) << field;
  }
}

TEST_F(ServeRepository, EveryFaultOfAFolderIsContained) {
  add("good", "");
  for (const char* const name : {"ensemble", "python", "tensorrt", "empty_version", "corrupt",
                                 "not_utf8", "huge", "folder_as_config", "twice"})
    fs::create_directories(folder_ / name / "1");
  fs::create_directories(folder_ / "no_version");
  write("no_version/config.pbtxt", "max_batch_size: 4");
  write("ensemble/config.pbtxt",
        "platform: \"ensemble\" ensemble_scheduling {step {model_name: "
        "\"good\" model_version: -1}}");
  write("python/config.pbtxt", "backend: \"python\"");
  write("python/1/model.py", "import this");
  write("tensorrt/1/model.plan", "engine");
  write("corrupt/1/model.onnx", "not a model at all");
  write("not_utf8/config.pbtxt", "name: \"\xff\xfe\"");
  write("huge/config.pbtxt", std::string(2U << 20U, '#'));
  fs::create_directories(folder_ / "folder_as_config/config.pbtxt");
  onnx::Model twice;
  twice.inputs = {{"x", onnx::kFloat, {{"n", 4}}}, {"x", onnx::kFloat, {{"n", 4}}}};
  twice.outputs = {{"y", onnx::kFloat, {{"n", 4}}}};
  write("twice/1/model.onnx", onnx::encode(twice));
  fs::create_directory_symlink("loop", folder_ / "loop");
  fs::create_directory_symlink("nowhere", folder_ / "broken");
  fs::create_directories(folder_ / "a b/1");
  write("a b/1/model.onnx", {"n", 4}, {"n", 4});
  write("README.md", "not a model");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().models.size(), 1U);
  EXPECT_EQ(models.value().models.front().name, "good");
  std::map<std::string, std::string> reasons;
  for (const LeftOut& one : models.value().left_out)
    reasons.emplace(one.name, one.reason.message());
  for (const char* const name :
       {"ensemble", "python", "tensorrt", "empty_version", "corrupt", "not_utf8", "huge",
        "folder_as_config", "twice", "no_version", "loop", "broken", "a b"})
    EXPECT_TRUE(reasons.contains(name)) << name;
  EXPECT_EQ(reasons.size(), 13U);
  EXPECT_TRUE(names(reasons["ensemble"], "ensemble"));
  EXPECT_TRUE(names(reasons["python"], "Python"));
  EXPECT_TRUE(names(reasons["tensorrt"], "TensorRT"));
  EXPECT_TRUE(names(limits_text(models.value()), "tensorrt"));
}

TEST_F(ServeRepository, WithoutAModelAllReasonsAreNamed) {
  fs::create_directories(folder_ / "one");
  fs::create_directories(folder_ / "two");
  const Status status = describe().status();
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, "one", "two"));
}

class ServeOnnxConfig : public ServeRepository {
 protected:
  // A model whose file has these tensors.
  Result<DescribedModels> describe(const onnx::Model& model, const std::string& config) {
    fs::create_directories(folder_ / "net/1");
    write("net/1/model.onnx", onnx::encode(model));
    write("net/config.pbtxt", config);
    return ServeRepository::describe();
  }
  // Why it is left out.
  std::string why_not(const onnx::Model& model, const std::string& config) {
    return describe(model, config).status().message();
  }

  onnx::Model open_{
      .inputs = {{"x", onnx::kFloat, {{"n", "length", 3}}}},
      .outputs = {{"y", onnx::kFloat, {{"n", "length"}}}, {"z", onnx::kInt64, {{"n", 2}}}}};
};

TEST_F(ServeOnnxConfig, DimsCloseOpenDimensions) {
  const auto models =
      describe(open_, "max_batch_size: 8 input {name: \"x\" data_type: TYPE_FP32 dims: [7, 3]}");
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().models.front();
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"x", DataType::fp32, {7, 3}}}));
  EXPECT_EQ(model.outputs.front().shape, std::vector<std::int64_t>{7}) << "the same dimension";
  EXPECT_EQ(model.max_batch, 8U);
}

TEST_F(ServeOnnxConfig, SomeOutputsAreServed) {
  const auto models =
      describe(open_,
               "max_batch_size: 8 input {name: \"x\" dims: [7, 3]} output {name: \"z\" "
               "data_type: TYPE_INT64 dims: 2}");
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().outputs,
            (std::vector<TensorSpec>{{"z", DataType::int64, {2}}}));
}

TEST_F(ServeOnnxConfig, WithoutBatchingTheFirstDimensionMayBeABatch) {
  const onnx::Model model{.inputs = {{"x", onnx::kFloat, {{"n", 4}}}},
                          .outputs = {{"y", onnx::kFloat, {{"n", 4}}}}};
  const auto batch = [&](const std::string& config) -> std::uint32_t {
    const auto models = describe(model, config);
    EXPECT_TRUE(models.ok()) << models.status().message();
    return models.ok() ? models.value().models.front().max_batch : 0;
  };
  EXPECT_EQ(batch("input {name: \"x\" dims: [-1, 4]} output {name: \"y\" dims: [-1, 4]}"), 32U);
  EXPECT_EQ(batch("max_batch_size: 0"), 32U);
  EXPECT_EQ(batch("input {name: \"x\" dims: [1, 4]} output {name: \"y\" dims: [1, 4]}"), 1U);
  const onnx::Model fixed{.inputs = {{"x", onnx::kFloat, {{3, 4}}}},
                          .outputs = {{"y", onnx::kFloat, {{3, 4}}}}};
  const auto models = describe(fixed, "input {name: \"x\" dims: [3, 4]}");
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs, std::vector{whole("x", DataType::fp32, {3, 4})});
  EXPECT_TRUE(names(why_not(fixed, "max_batch_size: 2"), "write 0"));
}

TEST_F(ServeOnnxConfig, AnOptionalInputHasTheValueOfTheFile) {
  onnx::Model model{.inputs = {{"x", onnx::kFloat, {{3, 4}}},
                               {"scale", onnx::kFloat, std::vector<onnx::Dimension>{4}}},
                    .outputs = {{"y", onnx::kFloat, {{3, 4}}}}};
  const std::string listed =
      "max_batch_size: 0 input {name: \"x\" dims: [3, 4]} input {name: \"scale\" dims: [4] "
      "optional: true}";
  EXPECT_TRUE(names(why_not(model, listed), "optional"));
  model.weights = {{"scale", {4}, {1, 2, 3, 4}}};
  const auto models = describe(model, listed);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs.size(), 2U);
  EXPECT_EQ(models.value().models.front().defaults.at("scale").size(), 4 * sizeof(float));
  // One that is not listed keeps its value.
  EXPECT_EQ(describe(model, "").value().models.front().inputs.size(), 1U);
}

TEST_F(ServeOnnxConfig, ContradictionsNameBoth) {
  EXPECT_TRUE(names(why_not(open_,
                            "max_batch_size: 2 input {name: \"x\" data_type: TYPE_INT32 "
                            "dims: [7, 3]}"),
                    "INT32", "FP32"));
  EXPECT_TRUE(names(why_not(open_, "max_batch_size: 2 input {name: \"x\" dims: [7, 4]}"), "[7,4]",
                    "FP32[n,length,3]"));
  EXPECT_TRUE(names(why_not(open_, "input {name: \"x\" dims: [7, 3]}"), "[7,3]", "max_batch_size"));
  EXPECT_TRUE(names(why_not(open_, "max_batch_size: 2 input {name: \"x\" dims: [7, -1]}"), "[7,-1]",
                    "FP32[n,length,3]"));
  EXPECT_TRUE(names(why_not(open_,
                            "max_batch_size: 2 input {name: \"x\" dims: [7, 3]} "
                            "output {name: \"z\" data_type: TYPE_FP32 dims: 2}"),
                    "FP32", "INT64"));
  onnx::Model two = open_;
  two.inputs.push_back({"w", onnx::kFloat, {{"n", 4}}});
  EXPECT_TRUE(
      names(why_not(two, "max_batch_size: 2 input {name: \"x\" dims: [7, 3]}"), "\"w\" FP32[n,4]"));
  onnx::Model one = open_;
  one.inputs.front().shape = {{1, 7, 3}};
  one.outputs = {{"z", onnx::kInt64, {{1, 2}}}};
  EXPECT_TRUE(names(why_not(one, "max_batch_size: 2 input {name: \"x\" dims: [7, 3]}"),
                    "max_batch_size", "2"));
}

TEST_F(ServeRepository, TorchScriptTensorsHaveThePositionsOfTheirNames) {
  const auto describe_net = [&](const std::string& config) {
    add("net", "max_batch_size: 4 " + config, "model.pt");
    for (const char* const version : {"1", "2"})
      write(std::string("net/") + version + "/model.pt", std::string("PK\x03\x04", 4) + "...");
    return describe();
  };
  const std::string output = " output {name: \"OUTPUT__0\" data_type: TYPE_FP32 dims: 2}";
  const auto models = describe_net(
      "input {name: \"INPUT__1\" data_type: TYPE_INT64 dims: 7} "
      "input {name: \"INPUT__0\" data_type: TYPE_FP32 dims: 3}" +
      output);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().inputs,
            (std::vector<TensorSpec>{{"INPUT__0", DataType::fp32, {3}},
                                     {"INPUT__1", DataType::int64, {7}}}));
  EXPECT_FALSE(
      describe_net("input {name: \"INPUT__1\" data_type: TYPE_INT64 dims: 7}" + output).ok());
  EXPECT_FALSE(describe_net("input {name: \"x\" dims: 7}" + output).ok()) << "no type";
}

TEST_F(ServeRepository, ANameIsForOneModelAlone) {
  add("net", "max_batch_size: 4");
  add("other", "max_batch_size: 4");
  ModelArguments arguments;
  arguments.name = "mine";
  arguments.files = {folder_};
  EXPECT_TRUE(names(describe_models(arguments).status(), "--name"));
  arguments.files = {folder_ / "net"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().models.front().name, "mine");
}

TEST_F(ServeRepository, AnOnnxFileOfAnyNameHasTheListedTensors) {
  const std::string config =
      "default_model_filename: \"net.bin\" max_batch_size: 4 "
      "input {name: \"image\" data_type: TYPE_FP32 dims: 4} "
      "output {name: \"fc6_1\" data_type: TYPE_FP32 dims: 4 label_filename: \"l.txt\"}";
  add("net", config, "net.bin");
  write("net/l.txt", "cat\n");
  EXPECT_TRUE(names(describe().status(), "fc6_1"));
}

// ---- objectives

TEST(ServeObjective, LeavesTimeForTwoBatches) {
  const auto measured = [](double ms) {
    auto table =
        profile::LatencyTable::create({{.batch = 1, .share = Share{100}, .latency_ms = ms},
                                       {.batch = 4, .share = Share{100}, .latency_ms = 3 * ms},
                                       {.batch = 8, .share = Share{100}, .latency_ms = 6 * ms},
                                       {.batch = 1, .share = Share{25}, .latency_ms = 4 * ms}});
    return profile::ModelProfile{std::move(table).value(), {}, {}};
  };
  const ProposedObjective slow = propose_objective(measured(100));
  EXPECT_EQ(slow.batch, 4U);
  EXPECT_EQ(slow.batch_ms, 300);
  EXPECT_EQ(slow.slo_ms, 750);
  EXPECT_EQ(propose_objective(measured(0.1)).slo_ms, kLeastProposedMs);
}

TEST(ServeObjective, IsAtLeastTwoBatches) {
  auto table = profile::LatencyTable::create({{.batch = 1, .share = Share{100}, .latency_ms = 10},
                                              {.batch = 1, .share = Share{25}, .latency_ms = 40}});
  const profile::ModelProfile measured{std::move(table).value(), {}, {}};
  EXPECT_TRUE(check_objective(measured, 20).ok());
  EXPECT_EQ(check_objective(measured, 19).code(), StatusCode::invalid);
}

// ---- example requests

TEST(ServeExample, TheCurlLineStatesTheLengthOfItsJson) {
  config::ModelConfig model;
  model.name = "two";
  model.inputs = {{"it's", DataType::fp32, {2, 3}}, {"tokens", DataType::int64, {4}}};
  model.outputs = {{"scores", DataType::fp32, {10}}, {"boxes", DataType::fp32, {5, 4}}};
  const std::string line = curl_line(model, {"0.0.0.0", 8000});
  EXPECT_TRUE(holds(line, "head -c 56 /dev/zero"));
  EXPECT_TRUE(holds(line, "http://localhost:8000/v2/models/two/infer"));
  // sh must see the JSON document whose length the header states.
  const std::string command = line.substr(1, line.find("; head") - 1);
  FILE* const out = ::popen(command.c_str(), "r");
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  ::pclose(out);
  EXPECT_TRUE(holds(text, R"("name":"it's")"));
  EXPECT_TRUE(holds(line, "Content-Length: " + std::to_string(text.size()) + "'"));
  EXPECT_TRUE(holds(python_snippet(model, {"127.0.0.1", 8000}), "[0] * 6"));
}

TEST(ServeExample, StringsAreInTheJson) {
  config::ModelConfig model;
  model.name = "tokens";
  model.inputs = {{"text", DataType::bytes, {2}, 64}};
  model.outputs = {{"words", DataType::bytes, {16}, 64}};
  const std::string line = curl_line(model, {"0.0.0.0", 8000});
  EXPECT_TRUE(holds(line, R"("datatype":"BYTES","shape":[1,2],"data":["text","text"])"));
  EXPECT_EQ(line.find("/dev/zero"), std::string::npos);
  EXPECT_EQ(line.find("classification"), std::string::npos);
  EXPECT_TRUE(holds(python_snippet(model, {"127.0.0.1", 8000}), R"(["text"] * 2)"));
}

TEST(ServeExample, HalfPrecisionIsBinary) {
  config::ModelConfig model;
  model.name = "half";
  model.inputs = {{"x", DataType::fp16, {4}}};
  model.outputs = {{"y", DataType::bf16, {16}}};
  const std::string line = curl_line(model, {"0.0.0.0", 8000});
  EXPECT_TRUE(holds(line, R"("binary_data":true)"));
  EXPECT_TRUE(holds(line, "-o answer.bin"));
  EXPECT_EQ(line.find("classification"), std::string::npos);
  const std::string snippet = python_snippet(model, {"127.0.0.1", 8000});
  EXPECT_TRUE(holds(snippet, "bytes(8)"));
  EXPECT_EQ(snippet.find("[0] *"), std::string::npos);
}

// ---- files and daemons

// The GPUs serve, unless the test says otherwise.
MachineDevices machine_with(std::vector<std::uint32_t> cores, std::size_t gpus) {
  MachineDevices machine{
      std::move(cores), "", {}, {}, {}, std::filesystem::path("nvidia-cuda-mps-control")};
  for (std::size_t i = 0; i < gpus; ++i) {
    MachineGpu gpu{{}, {}, Status(StatusCode::not_found, "none")};
    gpu.info.number = static_cast<std::uint32_t>(i);
    gpu.info.uuid = "GPU-" + std::to_string(i);
    machine.gpus.push_back(std::move(gpu));
  }
  return machine;
}

const Status kNotOnGpu(StatusCode::unavailable, "it was built without CUDA");
const std::vector<FormatSupport> kOnGpu = {{.format = config::FileFormat::onnx}};
const std::vector<FormatSupport> kOnCpu = {
    {.format = config::FileFormat::onnx, .on_gpu = kNotOnGpu}};

TEST(ServeDevices, AreThoseThatAreNamed) {
  const auto named = [](const std::string& name) {
    return choose_devices(machine_with({0, 1, 2}, 2), name, kOnGpu);
  };
  const auto machine = [&named](const std::string& name) { return named(name).value().machine; };
  EXPECT_EQ(device_to_measure(machine("")), "cuda:GPU-0");
  EXPECT_EQ(device_to_measure(machine("cpu")), "cpu:0");
  EXPECT_EQ(devices_text(machine("cpu")), "3 CPU cores");
  EXPECT_EQ(machine("cpu:1,2").cores, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(devices_text(machine("cpu:1")), "1 CPU core");
  EXPECT_EQ(devices_text(machine("gpu")), "2 GPUs");
  EXPECT_EQ(device_to_measure(machine("cuda:1")), "cuda:GPU-1");
  EXPECT_EQ(named("cuda:7").status().code(), StatusCode::not_found);
  EXPECT_EQ(named("cpu:9").status().code(), StatusCode::not_found);
  EXPECT_EQ(named("tpu").status().code(), StatusCode::invalid);
  for (const char* const name : {"", "auto", "cpu", "cpu:1", "gpu", "cuda:1"})
    EXPECT_EQ(named(name).value().why_cores, "") << name;
}

// Why a machine's GPUs do not serve; each is the one obstacle of its machine.
struct Obstacle {
  std::string name;
  std::string reason;  // or a value in it
  std::function<void(MachineDevices& machine)> add;
  std::vector<FormatSupport> formats = kOnGpu;
};

const std::vector<Obstacle> kObstacles = {
    {"NoDriver", "there is no driver",
     [](MachineDevices& machine) {
       machine.gpus.clear();
       machine.no_gpus = "there is no driver";
     }},
    {"NoGpu", "GPU", [](MachineDevices& machine) { machine.gpus.clear(); }},
    {"NoMps", "there is no daemon program",
     [](MachineDevices& machine) {
       machine.mps_control = Status(StatusCode::not_found, "there is no daemon program");
     }},
    {"Lost", "it is lost",
     [](MachineDevices& machine) { machine.gpus[0].info.fault = "it is lost"; }},
    {"Mig", "MIG", [](MachineDevices& machine) { machine.gpus[0].info.mig_enabled = true; }},
    {"ComputeMode", "compute mode",
     [](MachineDevices& machine) { machine.gpus[0].info.shareable = false; }},
    {"NoCuda", kNotOnGpu.message(), [](MachineDevices& /*machine*/) {}, kOnCpu}};

class ServeObstacles : public ::testing::TestWithParam<Obstacle> {
 protected:
  [[nodiscard]] Result<ServedDevices> chosen(const std::string& name) const {
    MachineDevices machine = machine_with({0, 1}, 1);
    GetParam().add(machine);
    return choose_devices(machine, name, GetParam().formats);
  }
};

TEST_P(ServeObstacles, LeaveTheCoresWhereNoDeviceIsNamed) {
  const auto devices = chosen("auto");
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ(devices_text(devices.value().machine), "2 CPU cores");
  EXPECT_TRUE(names(devices.value().why_cores, GetParam().reason));
  EXPECT_EQ(devices.value().why_cores.find('\n'), std::string::npos);
}

TEST_P(ServeObstacles, AreFailuresWhereAGpuIsNamed) {
  for (const char* const name : {"gpu", "cuda:0"}) {
    const auto devices = chosen(name);
    ASSERT_FALSE(devices.ok());
    const StatusCode code = devices.status().code();
    EXPECT_TRUE(code == StatusCode::not_found || code == StatusCode::unavailable);
    EXPECT_TRUE(names(devices.status(), name));
  }
  EXPECT_EQ(chosen("cpu").value().why_cores, "");
}

INSTANTIATE_TEST_SUITE_P(All, ServeObstacles, ::testing::ValuesIn(kObstacles),
                         [](const auto& one) { return one.param.name; });

TEST(ServeDevices, AreTheGpusThatServe) {
  MachineDevices machine = machine_with({0}, 3);
  machine.gpus[0].info.fault = "it is lost";
  machine.gpus[1].info.mig_enabled = true;
  const auto chosen = choose_devices(machine, "auto", kOnGpu);
  EXPECT_EQ(devices_text(chosen.value().machine), "1 GPU");
  EXPECT_EQ(device_to_measure(chosen.value().machine), "cuda:GPU-2");
  // One format suffices: the models of the other are left out or named.
  std::vector<FormatSupport> formats = kOnCpu;
  formats.push_back({.format = config::FileFormat::torchscript});
  EXPECT_EQ(devices_text(choose_devices(machine, "auto", formats).value().machine), "1 GPU");
}

TEST(ServeFormats, AreThoseThatTheProgramsName) {
  const ProxyPrograms both{.proxy = "proxy", .onnx = "onnx"};
  const std::string of_torch =
      "ONNX cpu yes\nONNX cuda yes\nTorchScript cpu yes\n"
      "TorchScript cuda no: without CUDA\n";
  const std::string of_onnx = "ONNX cpu yes\nONNX cuda no: no provider\n";
  const auto find = [](const std::vector<FormatSupport>& formats, config::FileFormat format) {
    return *std::find_if(formats.begin(), formats.end(),
                         [format](const auto& one) { return one.format == format; });
  };
  auto formats = parse_formats(both, of_torch, of_onnx);
  const FormatSupport onnx = find(formats, config::FileFormat::onnx);
  EXPECT_EQ(onnx.program, "onnx");
  EXPECT_TRUE(onnx.on_cpu.ok());
  EXPECT_EQ(onnx.on_gpu.message(), "no provider");
  const FormatSupport torch = find(formats, config::FileFormat::torchscript);
  EXPECT_EQ(torch.program, "proxy");
  EXPECT_TRUE(torch.on_cpu.ok());
  EXPECT_EQ(torch.on_gpu.message(), "without CUDA");

  formats = parse_formats({.proxy = "proxy"}, of_torch, of_torch);
  EXPECT_EQ(find(formats, config::FileFormat::onnx).program, "proxy");
  EXPECT_TRUE(find(formats, config::FileFormat::onnx).on_gpu.ok());
  // gpulet-proxy-onnx in place of both.
  formats = parse_formats({.proxy = "onnx", .onnx = "onnx"}, of_onnx, of_onnx);
  EXPECT_EQ(find(formats, config::FileFormat::torchscript).on_cpu.code(), StatusCode::unavailable);
  for (const char* const text : {"", "TorchScript", "TorchScript cpu", "no\n\nsuch answer"}) {
    for (const FormatSupport& one : parse_formats(both, std::string(text), std::string(text))) {
      EXPECT_EQ(one.on_cpu.code(), StatusCode::unavailable) << text;
      EXPECT_EQ(one.on_gpu.code(), StatusCode::unavailable) << text;
    }
  }
}

// ---- a program that says what it runs

class ServeProxy : public ::testing::Test {
 protected:
  // Of a program with that script.
  [[nodiscard]] FormatSupport asked(const std::string& script) const {
    const auto program = folder_.write("proxy", "#!/bin/sh\n" + script);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return supported_formats({.proxy = program}).front();
  }
  support::TemporaryFolder folder_;
};

TEST_F(ServeProxy, IsAsked) {
  const FormatSupport onnx =
      asked("[ \"$1\" = --formats ] && echo ONNX cpu yes && echo ONNX cuda no: no provider");
  EXPECT_TRUE(onnx.on_cpu.ok());
  EXPECT_EQ(onnx.on_gpu.message(), "no provider");
}

TEST_F(ServeProxy, ThatFailsRunsNothing) {
  EXPECT_EQ(asked("echo ONNX cpu yes; exit 3").on_cpu.code(), StatusCode::unavailable);
  EXPECT_EQ(asked("kill -9 $$").on_cpu.code(), StatusCode::unavailable);
  EXPECT_EQ(supported_formats({.proxy = folder_.path() / "none"}).front().on_cpu.code(),
            StatusCode::unavailable);
}

TEST(ServePorts, ATakenOneIsAnError) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(check_free("127.0.0.1", ntohs(address.sin_port)).code(), StatusCode::unavailable);
  ::close(listener);
  EXPECT_TRUE(check_free("127.0.0.1", ntohs(address.sin_port)).ok());
}

class ServeFolder : public Folder {
 protected:
  ServeFolder() {
    const char* const before = std::getenv("TMPDIR");
    before_ = before == nullptr ? "" : before;
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  ~ServeFolder() override {
    if (before_.empty()) {
      ::unsetenv("TMPDIR");
    } else {
      ::setenv("TMPDIR", before_.c_str(), 1);
    }
  }
  std::string before_;
};

TEST_F(ServeFolder, AbandonedOnesAreRemoved) {
  fs::create_directories(folder_ / "gpulet-serve-killed/store");
  write("gpulet-serve-killed/lock", "");
  fs::create_directories(folder_ / "gpulet-serve-new");  // its lock is still to come
  fs::create_directories(folder_ / "gpulet-other");
  write("gpulet-other/lock", "");
  fs::path path;
  {
    const auto held = ServingFolder::make();
    ASSERT_TRUE(held.ok()) << held.status().message();
    path = held.value().path();
    EXPECT_FALSE(fs::exists(folder_ / "gpulet-serve-killed"));
    EXPECT_TRUE(fs::exists(folder_ / "gpulet-serve-new"));
    EXPECT_TRUE(fs::exists(folder_ / "gpulet-other"));
    const auto second = ServingFolder::make();
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(fs::exists(path)) << "its program lives";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(ServePorts, AnotherPortIfOneIsTaken) {
  const std::uint16_t port = free_port("127.0.0.1", 0).value();
  EXPECT_EQ(free_port("127.0.0.1", port).value(), port);
  EXPECT_EQ(free_port("no address", port).status().code(), StatusCode::invalid);
}

using ServeDaemons = Folder;

TEST_F(ServeDaemons, EndWithTheirOutput) {
  auto daemon =
      LocalDaemon::start("the test", "/bin/sh", {"-c", "echo broken; exit 3"}, folder_ / "log");
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  while (!daemon.value().end()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(daemon.value().end(), "ended with exit code 3");
  EXPECT_FALSE(daemon.value().stop().ok());
  EXPECT_TRUE(names(daemon.value().end_of_log(), "broken"));
}

TEST_F(ServeDaemons, StopOnSigterm) {
  auto daemon = LocalDaemon::start(
      "the test", "/bin/sh",
      {"-c", "trap 'exit 0' TERM; echo up; while :; do read -r x || sleep 0.01; done"},
      folder_ / "log");
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  while (daemon.value().end_of_log().empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(daemon.value().end());
  const Status stopped = daemon.value().stop();
  EXPECT_TRUE(stopped.ok()) << stopped.message();
}

TEST_F(ServeDaemons, AMissingProgramEnds) {
  auto daemon = LocalDaemon::start("the test", folder_ / "none", {}, folder_ / "log");
  ASSERT_TRUE(daemon.ok());
  EXPECT_FALSE(daemon.value().stop().ok());
}

}  // namespace
}  // namespace gpulet::tools::serve_test
