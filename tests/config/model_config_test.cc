#include "gpulet/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/config/error_case.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::config {
namespace {

constexpr const char* kInputs = R"("inputs":[{"name":"image","type":"FP32","shape":[1,28,28]}])";
constexpr const char* kOutputs = R"("outputs":[{"name":"logits","type":"FP32","shape":[10]}])";

// One model with those members after its name and file.
std::string models(const std::string& members) {
  return R"({"models":[{"name":"lenet","file":"m/lenet.pt",)" + members + "}]}";
}
std::string tensors(const std::string& inputs) {
  return models(R"("slo_ms":50,"inputs":)" + inputs + ',' + kOutputs);
}
std::string numbers(const std::string& members) {
  return models(members + ',' + kInputs + ',' + kOutputs);
}

TEST(ModelConfig, ReadsEveryMember) {
  const auto loaded = parse_models(
      numbers(R"("slo_ms":50,"rate":100.5,"max_batch":16,"memory_mb":200)"), "/conf/f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded.value().size(), 1U);
  const ModelConfig& model = loaded.value()[0];
  EXPECT_EQ(model.name, "lenet");
  EXPECT_EQ(model.file, "/conf/m/lenet.pt");
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"image", DataType::fp32, {1, 28, 28}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"logits", DataType::fp32, {10}}}));
  EXPECT_EQ(model.slo_ms, 50);
  EXPECT_EQ(model.rate, 100.5);
  EXPECT_EQ(model.max_batch, 16U);
  EXPECT_EQ(model.memory_mb, 200);
}

TEST(ModelConfig, ReadsTheNumerics) {
  const auto loaded = parse_models(
      numbers(
          R"("slo_ms":5,"precision":"bfloat16","memory_format":"channels_last","largest_error":0.1)"),
      "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].numerics, (Numerics{Precision::bfloat16, true, 0.1}));
}

TEST(ModelConfig, ReadsTheVersion) {
  const auto version = [](const std::string& number) {
    return parse_models(numbers(R"("slo_ms":5,"version":)" + number), "f.json");
  };
  EXPECT_EQ(version("7").value()[0].version, 7U);
  EXPECT_EQ(version("20261129123456").value()[0].version, 20261129123456U);
  for (const char* const wrong : {"0", "-1", "1.5", "\"7\"", "1e30"})
    EXPECT_EQ(version(wrong).status().code(), StatusCode::invalid) << wrong;
  EXPECT_EQ(parse_models(numbers(R"("slo_ms":5)"), "f.json").value()[0].version, 0U);
}

// One input of that JSON besides its name, of which clients send UINT8.
Result<std::vector<ModelConfig>> converted(const std::string& input) {
  return parse_models(tensors(R"([{"name":"image",)" + input + "}]"), "f.json");
}
std::string image_from(const std::string& from, const std::string& rest = {}) {
  return R"("type":"FP32","shape":[3,4,6],"from":{"type":"UINT8")" + from + "}" + rest;
}

TEST(ModelConfig, ReadsWhatClientsSendInPlaceOfAnInput) {
  const auto loaded = converted(
      image_from(R"(,"format":"NHWC","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225])"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const ModelConfig& model = loaded.value()[0];
  TensorSpec sent{"image", DataType::uint8, {4, 6, 3}};
  sent.conversion = InputConversion{.from_channels_last = true,
                                    .mean = {0.485, 0.456, 0.406},
                                    .deviation = {0.229, 0.224, 0.225}};
  EXPECT_EQ(model.inputs, std::vector{sent});
  EXPECT_EQ(model_inputs(model.inputs),
            (std::vector<TensorSpec>{{"image", DataType::fp32, {3, 4, 6}}}));
  EXPECT_EQ(model.formats, (std::map<std::string, ImageFormat>{{"image", ImageFormat::nhwc}}));
}

TEST(ModelConfig, ConversionsHaveDefaults) {
  const auto loaded = converted(image_from(""));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  TensorSpec sent{"image", DataType::uint8, {3, 4, 6}};
  sent.conversion = InputConversion{};
  EXPECT_EQ(loaded.value()[0].inputs, std::vector{sent});
  EXPECT_TRUE(loaded.value()[0].formats.empty());
  // The order of the model's own tensor.
  const auto last = converted(
      R"("type":"FP16","shape":[4,6,3],"format":"NHWC","from":{"type":"UINT8","scale":1,"mean":3})");
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  sent = {"image", DataType::uint8, {4, 6, 3}};
  sent.conversion = InputConversion{.type = DataType::fp16,
                                    .from_channels_last = true,
                                    .to_channels_last = true,
                                    .scale = 1,
                                    .mean = {3}};
  EXPECT_EQ(last.value()[0].inputs, std::vector{sent});
  const auto first = converted(
      R"("type":"FP32","shape":[4,6,3],"format":"NHWC","from":{"type":"UINT8","format":"NCHW"})");
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first.value()[0].inputs[0].shape, (std::vector<std::int64_t>{3, 4, 6}));
  EXPECT_EQ(first.value()[0].formats.at("image"), ImageFormat::nchw);
}

TEST(ModelConfig, ARangeOfAConvertedInputIsOneOfBytes) {
  const auto loaded = converted(image_from("", R"(,"range":[16,235])"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].inputs[0].range, (ValueRange{16, 235}));
  EXPECT_EQ(converted(image_from("", R"(,"range":[0,0.5])")).status().code(), StatusCode::invalid);
}

TEST(ModelConfig, RefusesConversionsThatDoNotFit) {
  for (const std::string& wrong :
       {image_from(R"(,"mean":[0.5,0.5])"), image_from(R"(,"std":[0.5,0.5,0.5,0.5])"),
        image_from(R"(,"std":0)"), image_from(R"(,"std":[1,-1,1])"), image_from(R"(,"scale":0)"),
        image_from(R"(,"std":1e-300)"), image_from(R"(,"mean":[])"), image_from(R"(,"mean":"x")"),
        image_from(R"(,"format":"HWC")"), image_from(R"(,"other":1)"),
        std::string(R"("type":"FP32","shape":[3,4,6],"from":{})"),
        std::string(R"("type":"FP32","shape":[3,4,6],"from":{"type":"INT8"})"),
        std::string(R"("type":"UINT8","shape":[3,4,6],"from":{"type":"UINT8"})"),
        std::string(R"("type":"FP32","shape":[6],"from":{"type":"UINT8","mean":[1,2]})"),
        std::string(R"("type":"FP32","shape":[6],"from":{"type":"UINT8","format":"NCHW"})"),
        std::string(R"("type":"FP16","shape":[6],"from":{"type":"UINT8","std":1e-6})")}) {
    const auto loaded = converted(wrong);
    EXPECT_EQ(loaded.status().code(), StatusCode::invalid) << wrong;
    EXPECT_TRUE(support::names(loaded.status(), "/models/0/inputs/0/from")) << wrong;
  }
}

TEST(ModelConfig, AnInputOfAnySizeIsNotConverted) {
  const auto loaded = parse_models(
      models(R"("slo_ms":5,"pad":{"value":0,"buckets":[8]},"inputs":[{"name":"x","type":"FP32",)"
             R"("shape":[-1],"from":{"type":"UINT8"}}],)" +
             std::string(kOutputs)),
      "f.json");
  EXPECT_EQ(loaded.status().code(), StatusCode::invalid);
}

TEST(ModelConfig, ReadsTheRangesOfInputs) {
  const auto with_range = [](const std::string& type, const std::string& range) {
    return parse_models(models(R"("slo_ms":5,"inputs":[{"name":"x","type":")" + type +
                               R"(","shape":[4],"range":)" + range + "}]," + kOutputs),
                        "f.json");
  };
  const auto loaded = with_range("INT64", "[0,29999]");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].inputs[0].range, (ValueRange{0, 29999}));
  EXPECT_EQ(with_range("FP32", "[-0.5,0.5]").value()[0].inputs[0].range, (ValueRange{-0.5, 0.5}));
  for (const auto& [type, range] :
       std::vector<std::pair<const char*, const char*>>{{"INT64", "[1]"},
                                                        {"INT64", "[2,1]"},
                                                        {"INT64", "[0.5,1]"},
                                                        {"UINT8", "[0,256]"},
                                                        {"INT8", "[-129,0]"},
                                                        {"BOOL", "[0,2]"},
                                                        {"BYTES", "[0,1]"},
                                                        {"INT64", "7"},
                                                        {"FP32", "[0,1,2]"}})
    EXPECT_EQ(with_range(type, range).status().code(), StatusCode::invalid) << type << range;
}

TEST(ModelConfig, WithoutABatchShapesAreThoseOfWholeTensors) {
  const auto loaded = parse_models(
      models(
          R"("slo_ms":5,"max_batch":0,"inputs":[{"name":"state","type":"FP32","shape":[2,1,64]},)"
          R"({"name":"rate","type":"INT64","shape":[],"default":16000}],)" +
          std::string(kOutputs)),
      "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const ModelConfig& model = loaded.value()[0];
  EXPECT_EQ(model.max_batch, 1U);
  for (const TensorSpec& input : model.inputs) EXPECT_TRUE(input.whole) << input.name;
  EXPECT_TRUE(model.outputs[0].whole);
  EXPECT_EQ(model.inputs[1].shape, std::vector<std::int64_t>{});
  const std::int64_t rate = 16000;
  const auto bytes = std::as_bytes(std::span(&rate, 1));
  EXPECT_EQ(model.defaults.at("rate"), std::vector(bytes.begin(), bytes.end()));
  EXPECT_FALSE(
      parse_models(numbers(R"("slo_ms":5,"max_batch":1)"), "f.json").value()[0].inputs[0].whole);
  const auto image = parse_models(
      models(R"("slo_ms":5,"max_batch":0,"inputs":[{"name":"image","type":"FP32","shape":[3,4,6],)"
             R"("from":{"type":"UINT8"}}],)" +
             std::string(kOutputs)),
      "f.json");
  EXPECT_TRUE(support::names(image.status(), "/models/0/max_batch")) << image.status().message();
}

TEST(ModelConfig, ReadsWhatARequestMayLeaveOut) {
  const auto with_default = [](const std::string& type, const std::string& value) {
    return parse_models(models(R"("slo_ms":5,"inputs":[{"name":"x","type":")" + type +
                               R"(","shape":[2],"default":)" + value + "}]," + kOutputs),
                        "f.json");
  };
  EXPECT_EQ(with_default("UINT8", "[1,255]").value()[0].defaults.at("x"),
            (std::vector<std::byte>{std::byte{1}, std::byte{255}}));
  EXPECT_EQ(with_default("FP32", "0.5").value()[0].defaults.at("x").size(), 2 * sizeof(float));
  for (const auto& [type, value] :
       std::vector<std::pair<const char*, const char*>>{{"INT64", "[1]"},
                                                        {"INT64", "[1,2,3]"},
                                                        {"INT64", "0.5"},
                                                        {"FP32", "\"1\""},
                                                        {"FP16", "0.5"},
                                                        {"BYTES", "0"}}) {
    const auto refused = with_default(type, value);
    EXPECT_TRUE(support::names(refused.status(), "/models/0/inputs/0/default")) << type << value;
  }
}

TEST(ModelConfig, AnOutputMayHaveLengthsOfItsOwn) {
  const auto read = [](const std::string& output) {
    return parse_models(models(R"("slo_ms":5,"pad":{"buckets":[80,320]},"inputs":[{"name":"x",)"
                               R"("type":"FP32","shape":[3,-1]}],"outputs":[{"name":"y",)"
                               R"("type":"FP32",)" +
                               output + "}]"),
                        "f.json");
  };
  const auto loaded = read(R"("shape":[-1,7],"lengths":[10,40])");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const std::vector<ModelConfig> buckets = buckets_of(loaded.value()[0]);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].outputs[0].shape, (std::vector<std::int64_t>{10, 7}));
  EXPECT_EQ(buckets[1].outputs[0].shape, (std::vector<std::int64_t>{40, 7}));
  EXPECT_EQ(buckets[1].bucket->outputs[0].shape, (std::vector<std::int64_t>{40, 7}));
  for (const char* const wrong :
       {R"("shape":[-1,7],"lengths":[10])", R"("shape":[4,7],"lengths":[1,2])",
        R"("shape":[-1,7],"lengths":[10,0])"}) {
    EXPECT_TRUE(support::names(read(wrong).status(), "/models/0/outputs/0/lengths")) << wrong;
  }
}

TEST(ModelConfig, ReadsTheLabelFiles) {
  const auto loaded =
      parse_models(numbers(R"("slo_ms":5,"labels":{"logits":"../digits.txt"})"), "/conf/f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].labels,
            (std::map<std::string, std::filesystem::path>{{"logits", "/digits.txt"}}));
}

TEST(ModelConfig, ReadsTheFormatsOfImages) {
  const auto loaded =
      parse_models(tensors(R"([{"name":"image","type":"FP32","shape":[1,28,28],"format":"NCHW"},)"
                           R"({"name":"mask","type":"UINT8","shape":[28,28,1],"format":"NHWC"},)"
                           R"({"name":"box","type":"FP32","shape":[4]}])"),
                   "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].formats,
            (std::map<std::string, ImageFormat>{{"image", ImageFormat::nchw},
                                                {"mask", ImageFormat::nhwc}}));
  const auto output = [](const std::string& shape) {
    return models(std::string(R"("slo_ms":50,)") + kInputs +
                  R"(,"outputs":[{"name":"y","type":"FP32","shape":)" + shape +
                  R"(,"format":"NCHW"}])");
  };
  expect_errors({{tensors(R"([{"name":"x","type":"FP32","shape":[28,28],"format":"NCHW"}])"),
                  "/models/0/inputs/0/format: "},
                 {tensors(R"([{"name":"x","type":"FP32","shape":[1,28,28],"format":"nchw"}])"),
                  "/models/0/inputs/0/format: ", R"("nchw")"},
                 {tensors(R"([{"name":"x","type":"FP32","shape":[1,28,28],"format":1}])"),
                  "/models/0/inputs/0/format: "},
                 {output("[1,28,28]"), "/models/0/outputs/0/format: "}},
                parse_models);
}

TEST(ModelConfig, ReadsEncodedImages) {
  const auto loaded = parse_models(
      tensors(R"([{"name":"photo","type":"FP32","shape":[3,224,160],"format":"NCHW",)"
              R"("encoded":true,"mean":[0.5,0.25,0],"std":[0.5,1,2],"resize":256},)"
              R"({"name":"icon","type":"UINT8","shape":[8,9,3],"format":"NHWC","encoded":true,)"
              R"("max_bytes":5000,"max_megapixels":64},)"
              R"({"name":"gray","type":"FP32","shape":[3,8,8],"format":"NCHW","encoded":true,)"
              R"("std":0.5},)"
              R"({"name":"box","type":"FP32","shape":[4],"encoded":false}])"),
      "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const ModelConfig& model = loaded.value()[0];
  const TensorSpec& photo = model.inputs[0];
  EXPECT_EQ(photo.type, DataType::bytes);
  EXPECT_EQ(photo.shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(photo.max_bytes, 256U << 10U);
  ASSERT_TRUE(photo.image);
  EXPECT_EQ(photo.image->width, 160U);
  EXPECT_EQ(photo.image->height, 224U);
  EXPECT_EQ(photo.image->shorter_side, 256U);
  EXPECT_EQ(photo.image->mean, (std::array<float, 3>{127.5F, 63.75F, 0}));
  EXPECT_FLOAT_EQ(photo.image->scale[0], 2 / 255.0F);
  EXPECT_FLOAT_EQ(photo.image->scale[2], 0.5F / 255.0F);
  const TensorSpec& icon = model.inputs[1];
  ASSERT_TRUE(icon.image);
  EXPECT_EQ(icon.max_bytes, 5000U);
  EXPECT_EQ(icon.image->layout, image::Layout::nhwc);
  EXPECT_EQ(icon.image->scale, image::Preprocessing().scale);
  EXPECT_EQ(icon.image->max_megapixels, 64U);
  ASSERT_TRUE(model.inputs[2].image);
  EXPECT_FLOAT_EQ(model.inputs[2].image->scale[2], 2 / 255.0F) << "one number is for all channels";
  EXPECT_FALSE(model.inputs[3].image);
  EXPECT_TRUE(model.formats.empty()) << "clients send no such tensors";
  EXPECT_EQ(to_string(model_input(photo)), "FP32[3,224,160]");
  EXPECT_EQ(to_string(model_input(icon)), "UINT8[8,9,3]");

  const auto input = [](const std::string& shape, const std::string& rest) {
    return tensors(R"([{"name":"x","type":"FP32","shape":)" + shape + "," + rest + "}]");
  };
  const std::string encoded = R"("format":"NCHW","encoded":true)";
  expect_errors(
      {{input("[3,8,8]", R"("encoded":true)"), "/models/0/inputs/0/encoded: ", "format"},
       {input("[1,8,8]", encoded), "/models/0/inputs/0/encoded: "},
       {input("[3,8,5000]", encoded), "/models/0/inputs/0/encoded: "},
       {input("[3,8,8]", encoded + R"(,"resize":7)"), "/models/0/inputs/0/encoded: "},
       {input("[3,8,8]", encoded + R"(,"std":[1,0,1])"), "/models/0/inputs/0/std/1: "},
       {input("[3,8,8]", encoded + R"(,"mean":[1,0])"), "/models/0/inputs/0/mean: "},
       {input("[3,8,8]", encoded + R"(,"max_megapixels":65)"),
        "/models/0/inputs/0/max_megapixels: "},
       {input("[3,8,8]", encoded + R"(,"range":[0,1])"), "/models/0/inputs/0/range: "},
       {input("[3,8,8]", R"("format":"NCHW","resize":9)"), "/models/0/inputs/0/resize: "},
       {input("[3,8,8]", encoded + R"(,"from":{"type":"UINT8"})"), "/models/0/inputs/0/from: "},
       {input("[3,8,8]", R"("from":{"type":"UINT8"},"mean":0.5)"), "/models/0/inputs/0/mean: "},
       {input("[3,8,8]", R"("format":"NCHW","encoded":"yes")"), "/models/0/inputs/0/encoded: "},
       {tensors(R"([{"name":"x","type":"UINT8","shape":[3,8,8],"mean":[1,1,1],)" + encoded + "}]"),
        "/models/0/inputs/0/mean: "}},
      parse_models);
}

TEST(ModelConfig, ReadsMeasuredLatencies) {
  const auto loaded =
      parse_models(numbers(R"("slo_ms":50,"measured":{"cpu-core":{"memory_mb":30,"cells":[)"
                           R"({"batch":1,"partition":25,"latency_ms":12,"p99_ms":14,"cv":0.1},)"
                           R"({"batch":1,"partition":100,"latency_ms":3.5}]}})"),
                   "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Measurement expected{{{0, 1, Share{25}, 12, 14, 0.1}, {0, 1, Share{100}, 3.5}}, 30};
  EXPECT_EQ(loaded.value()[0].measured,
            (std::map<std::string, Measurement>{{"cpu-core", expected}}));
  const auto cells = [](const std::string& list) {
    return numbers(R"("slo_ms":50,"measured":{"cpu-core":{"cells":[)" + list + "]}}");
  };
  const std::string cell = R"({"batch":1,"partition":100,"latency_ms":3})";
  const std::string place = "/models/0/measured/cpu-core/cells";
  expect_errors(
      {{numbers(R"("slo_ms":50,"measured":{"cpu-core":{}})"),
        "/models/0/measured/cpu-core/cells: "},
       {numbers(R"("slo_ms":50,"measured":{"a/b":{"cells":[)" + cell + "]}}"),
        "/models/0/measured/a~1b: "},
       {cells(""), place + ": "},
       {cells(cell + "," + cell), place + "/1: "},
       {cells(R"({"batch":0,"partition":100,"latency_ms":3})"), place + "/0/batch: "},
       {cells(R"({"batch":1,"partition":101,"latency_ms":3})"), place + "/0/partition: "},
       {cells(R"({"batch":1,"partition":100,"latency_ms":0})"), place + "/0/latency_ms: "},
       {cells(R"({"batch":1,"partition":100,"latency_ms":1,"cv":-1})"), place + "/0/cv: "},
       {cells(R"({"length":8,"batch":1,"partition":100,"latency_ms":1})"),
        "/models/0/measured/cpu-core: "}},
      parse_models);
}

// One model whose file is in a store.
std::string in_store(const std::string& url, const std::string& members = {}) {
  return R"({"models":[{"name":"lenet","file":")" + url + R"(","slo_ms":50,)" + members + kInputs +
         ',' + kOutputs + "}]}";
}

TEST(ModelConfig, AFileMayBeInAStore) {
  const std::string digest(64, 'a');
  const auto loaded =
      parse_models(in_store("s3://models/a/lenet.pt", R"("sha256":")" + digest + "\","), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const ModelConfig& model = loaded.value()[0];
  ASSERT_TRUE(model.remote);
  EXPECT_EQ(*model.remote, (RemoteFile{Url{Url::Scheme::s3, "models", 0, "a/lenet.pt"}, digest}));
  EXPECT_TRUE(model.file.empty());
  EXPECT_EQ(file_name_of(model), "lenet.pt");
  EXPECT_EQ(place_of(model), "s3://models/a/lenet.pt");
  const auto local = parse_models(numbers(R"("slo_ms":50)"), "/conf/f.json");
  EXPECT_EQ(file_name_of(local.value()[0]), "lenet.pt");
  EXPECT_EQ(place_of(local.value()[0]), "/conf/m/lenet.pt");
}

TEST(ModelConfig, ErrorsOfAStoreNameThePlace) {
  expect_errors(
      {{in_store("ftp://host/lenet.pt"), "/models/0/file: "},
       {in_store("https://user:pw@host/lenet.pt"), "/models/0/file: "},
       {in_store("s3://models"), "/models/0/file: "},
       {in_store("s3://models/a.pt", R"("sha256":"abc",)"), "/models/0/sha256: "},
       {numbers(R"("slo_ms":50,"sha256":")" + std::string(64, 'a') + '"'), "/models/0/sha256: "}},
      parse_models);
}

TEST(ModelConfig, StringsHaveALimit) {
  const auto inputs_of = [](const std::string& inputs) {
    const auto loaded = parse_models(tensors(inputs), "f.json");
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return loaded.ok() ? loaded.value()[0].inputs : std::vector<TensorSpec>{};
  };
  EXPECT_EQ(inputs_of(R"([{"name":"x","type":"BYTES","shape":[2],"max_bytes":100}])"),
            (std::vector<TensorSpec>{{"x", DataType::bytes, {2}, 100}}));
  EXPECT_EQ(inputs_of(R"([{"max_bytes":8,"shape":[2],"type":"BYTES","name":"x"}])"),
            (std::vector<TensorSpec>{{"x", DataType::bytes, {2}, 8}}));
  EXPECT_EQ(inputs_of(R"([{"name":"x","type":"BYTES","shape":[2]}])"),
            (std::vector<TensorSpec>{{"x", DataType::bytes, {2}, 512}}));
}

TEST(ModelConfig, FillsInTheDefaults) {
  const auto loaded = parse_models(numbers(R"("slo_ms":50)"), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].rate, 0);
  EXPECT_EQ(loaded.value()[0].max_batch, 32U);
  EXPECT_EQ(loaded.value()[0].memory_mb, std::nullopt);
  EXPECT_EQ(loaded.value()[0].numerics, Numerics{});
  EXPECT_TRUE(loaded.value()[0].file.is_absolute());
}

TEST(ModelConfig, ReadsPrioritiesAndQueuePolicies) {
  const auto loaded = parse_models(numbers(R"("slo_ms":50,"queue":{
      "priority_levels":3,"default_priority_level":2,
      "default_policy":{"timeout_action":"reject","default_timeout_ms":20.5,
                        "allow_timeout_override":true,"max_queue_size":100},
      "level_policies":{"1":{"timeout_action":"delay"},"3":{"max_queue_size":10}}})"),
                                   "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const QueueRules wanted{.priority_levels = 3,
                          .default_priority_level = 2,
                          .default_policy = {.default_timeout = from_ms(20.5),
                                             .allow_timeout_override = true,
                                             .max_queue_size = 100},
                          .level_policies = {{1, {.timeout_action = TimeoutAction::delay}},
                                             {3, {.max_queue_size = 10}}}};
  EXPECT_EQ(loaded.value()[0].queue, wanted);
}

TEST(ModelConfig, AnEmptyQueueIsNone) {
  const auto loaded =
      parse_models(numbers(R"("slo_ms":50,"queue":{"priority_levels":0})"), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].queue, std::nullopt);
}

std::string queue(const std::string& members) {
  return numbers(R"("slo_ms":50,"queue":{)" + members + '}');
}

TEST(ModelConfig, ErrorsOfAQueueNamePlaceAndValue) {
  expect_errors(
      {
          {queue(R"("priority_levels":2)"), "/models/0/queue/default_priority_level: "},
          {queue(R"("priority_levels":2,"default_priority_level":3)"),
           "/models/0/queue/default_priority_level: "},
          {queue(R"("default_priority_level":1)"),
           "/models/0/queue/default_priority_level: ", R"("priority_levels")"},
          {queue(R"("level_policies":{"1":{}})"),
           "/models/0/queue/level_policies: ", R"("priority_levels")"},
          {queue(R"("priority_levels":2,"default_priority_level":1,"level_policies":{"3":{}})"),
           "/models/0/queue/level_policies/3: ", R"("3")"},
          {queue(R"("priority_levels":2,"default_priority_level":1,"level_policies":{"01":{}})"),
           "/models/0/queue/level_policies/01: ", R"("01")"},
          {queue(R"("priority_levels":101)"), "/models/0/queue/priority_levels: "},
          {queue(R"("default_policy":{"timeout_action":"rejct"})"),
           "/models/0/queue/default_policy/timeout_action: ", R"("rejct")"},
          {queue(R"("default_policy":{"default_timeout_ms":-1})"),
           "/models/0/queue/default_policy/default_timeout_ms: "},
          {queue(R"("default_policy":{"default_timeout_us":5})"),
           "/models/0/queue/default_policy/default_timeout_us: ", R"("default_timeout_us")"},
          {queue(R"("level_policy":{})"), "/models/0/queue/level_policy: ", R"("level_policy")"},
      },
      parse_models);
}

// A model with those tensors as inputs and outputs, and those members.
std::string dynamic(const std::string& inputs, const std::string& outputs,
                    const std::string& members) {
  return models(R"("slo_ms":50,"rate":12,"inputs":[)" + inputs + R"(],"outputs":[)" + outputs +
                "]," + members);
}
constexpr const char* kTokens = R"({"name":"tokens","type":"INT64","shape":[-1]},
                                   {"name":"mask","type":"INT32","shape":[-1,2]})";
constexpr const char* kHidden = R"({"name":"hidden","type":"FP32","shape":[-1,4]})";

TEST(ModelConfig, DynamicDimensionsMakeBuckets) {
  const auto loaded =
      parse_models(dynamic(kTokens, kHidden,
                           R"("pad":{"dim":0,"value":3,"values":{"mask":0},"buckets":[32,128]})"),
                   "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const ModelConfig& model = loaded.value()[0];
  EXPECT_EQ(model.inputs[1].shape, (std::vector<std::int64_t>{kAnyLength, 2}));
  EXPECT_EQ(model.dynamic, (DynamicLength{{32, 128}, {3, 0}}));
  const std::vector<ModelConfig> buckets = with_buckets(loaded.value());
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].name, "lenet@32");
  EXPECT_EQ(buckets[1].name, "lenet@128");
  EXPECT_EQ(buckets[1].inputs[1].shape, (std::vector<std::int64_t>{128, 2}));
  EXPECT_EQ(buckets[1].outputs[0].shape, (std::vector<std::int64_t>{128, 4}));
  EXPECT_EQ(buckets[0].rate, 3);
  EXPECT_EQ(buckets[1].rate, 9);
  EXPECT_EQ(buckets[0].bucket->model, "lenet");
  EXPECT_EQ(buckets[0].bucket->outputs, model.outputs);
  EXPECT_EQ(buckets[0].bucket->padding[0], element_of(model.inputs[0], 3).value());
}

TEST(ModelConfig, BucketsAreMeasuredByTheirLength) {
  const auto measured = [](std::int64_t length) {
    return dynamic(kTokens, kHidden,
                   R"("pad":{"buckets":[32,128]},"measured":{"cpu-core":{"cells":[)"
                   R"({"length":32,"batch":1,"partition":100,"latency_ms":2},{"length":)" +
                       std::to_string(length) + R"(,"batch":1,"partition":100,"latency_ms":7}]}})");
  };
  const auto loaded = parse_models(measured(128), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const std::vector<ModelConfig> buckets = with_buckets(loaded.value());
  ASSERT_EQ(buckets.size(), 2U);
  const auto at = [](double latency_ms) { return Measurement{{{0, 1, Share{100}, latency_ms}}}; };
  EXPECT_EQ(buckets[0].measured.at("cpu-core"), at(2));
  EXPECT_EQ(buckets[1].measured.at("cpu-core"), at(7));
  expect_errors({{measured(64), "/models/0/measured/cpu-core: "}}, parse_models);
}

TEST(ModelConfig, WithoutPaddingTheLengthsAreExact) {
  const auto loaded = parse_models(dynamic(kTokens, kHidden, R"("lengths":[8,16])"), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].dynamic, (DynamicLength{{8, 16}, {}}));
  EXPECT_TRUE(buckets_of(loaded.value()[0])[0].bucket->padding.empty());
}

TEST(ModelConfig, AModelOfFixedShapeIsItsOnlyBucket) {
  const auto loaded = parse_models(numbers(R"("slo_ms":5)"), "f.json");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(with_buckets(loaded.value()), loaded.value());
}

TEST(ModelConfig, ErrorsInDynamicDimensionsNamePlaceAndValue) {
  const auto padded = [](const std::string& pad) { return dynamic(kTokens, kHidden, pad); };
  constexpr const char* kFixed = R"({"name":"x","type":"FP32","shape":[4]})";
  expect_errors(
      {
          {padded(R"("max_batch":4)"), "/models/0/inputs: ", "pad"},
          {padded(R"("pad":{"value":0})"), "/models/0/pad/buckets: "},
          {padded(R"("pad":{"buckets":[]})"), "/models/0/pad/buckets: "},
          {padded(R"("pad":{"buckets":[32,32]})"), "/models/0/pad/buckets/1: "},
          {padded(R"("pad":{"buckets":[0]})"), "/models/0/pad/buckets/0: "},
          {padded(R"("pad":{"buckets":[8],"value":0.5})"), "/models/0/pad: ", "tokens"},
          {padded(R"("pad":{"buckets":[8],"values":{"token":0}})"),
           "/models/0/pad/values/token: ", "tokens"},
          {padded(R"("pad":{"buckets":[8],"dim":1})"), "/models/0/pad/dim: ", "tokens"},
          {padded(R"("pad":{"buckets":[8]},"lengths":[8])"), "/models/0/lengths: "},
          {padded(R"("lengths":[16,8])"), "/models/0/lengths/1: "},
          {padded(R"("pad":{"buckets":[8]},"labels":{"hidden":"l.txt"})"),
           "/models/0/labels/hidden: "},
          {dynamic(kFixed, kFixed, R"("pad":{"buckets":[8]})"), "/models/0/pad: "},
          {dynamic(kFixed, kHidden, R"("max_batch":4)"), "/models/0/outputs: "},
          {dynamic(R"({"name":"x","type":"FP32","shape":[-1,-1]})", kFixed, R"("lengths":[8])"),
           "/models/0/inputs/0/shape/1: "},
      },
      parse_models);
}

TEST(ModelConfig, ErrorsNamePlaceAndValue) {
  const std::string one =
      R"({"name":"a","file":"a","slo_ms":1,)" + std::string(kInputs) + ',' + kOutputs + "}";
  expect_errors(
      {
          {"{}", "/models: "},
          {R"({"models":[]})", "/models: "},
          {R"({"modles":[]})", "/modles: ", R"("modles")"},
          {numbers(R"("slo":50)"), "/models/0/slo: ", R"("slo")"},
          {numbers(R"("slo_ms":5,"precison":"half")"), "/models/0/precison: ", R"("precison")"},
          {numbers(R"("slo_ms":5,"precision":"halves")"), "/models/0/precision: ", R"("halves")"},
          {numbers(R"("slo_ms":5,"memory_format":"nhwc")"),
           "/models/0/memory_format: ", R"("nhwc")"},
          {numbers(R"("slo_ms":5,"largest_error":2)"), "/models/0/largest_error: "},
          {numbers(R"("slo_ms":5,"labels":{"logit":"l.txt"})"),
           "/models/0/labels/logit: ", R"("logit")"},
          {numbers(R"("slo_ms":5,"labels":{"logits":3})"), "/models/0/labels/logits: "},
          {numbers(R"("slo_ms":5,"labels":"l.txt")"), "/models/0/labels: ", R"("l.txt")"},
          {numbers(R"("rate":1)"), "/models/0/slo_ms: "},
          {numbers(R"("slo_ms":0)"), "/models/0/slo_ms: "},
          {numbers(R"("slo_ms":"50")"), "/models/0/slo_ms: ", R"("50")"},
          {numbers(R"("slo_ms":5,"rate":-0.5)"), "/models/0/rate: "},
          {numbers(R"("slo_ms":5,"max_batch":1025)"), "/models/0/max_batch: "},
          {numbers(R"("slo_ms":5,"max_batch":1.5)"), "/models/0/max_batch: "},
          {R"({"models":[{"name":"a b","file":"x"}]})", "/models/0/name: ", R"("a b")"},
          {R"({"models":[)" + one + ',' + one + "]}", "/models/1/name: ", R"("a")"},
          {tensors(R"([{"name":"x","type":"FP33","shape":[1]}])"),
           "/models/0/inputs/0/type: ", R"("FP33")"},
          {tensors(R"([{"name":"x","type":"BYTES","shape":[2],"max_bytes":7}])"),
           "/models/0/inputs/0/max_bytes: "},
          {tensors(R"([{"name":"x","type":"BYTES","shape":[2],"max_bytes":67108865}])"),
           "/models/0/inputs/0/max_bytes: "},
          {tensors(R"([{"name":"x","type":"BYTES","shape":[1073741824]}])"),
           "/models/0/inputs/0/shape: "},
          {tensors(R"([{"name":"x","type":"FP32","shape":[1],"max_bytes":4}])"),
           "/models/0/inputs/0/max_bytes: "},
          {tensors(R"([{"name":"x","type":"FP32","shape":[3,-1]}])"), "/models/0/inputs: "},
          {tensors(R"([{"name":"x","type":"FP32","shape":[3,0]}])"),
           "/models/0/inputs/0/shape/1: "},
          {tensors(R"([{"name":"x","type":"FP32","shape":[1073741824,1073741824,1073741824]}])"),
           "/models/0/inputs/0/shape: "},
          {tensors("[]"), "/models/0/inputs: ", R"("name")"},
      },
      parse_models);
}

using Labels = std::vector<std::string>;

const TensorSpec kThree{"y", DataType::fp32, {3}};

StatusCode refusal(const std::string& text) {
  return parse_labels(text, "l.txt", kThree).status().code();
}

TEST(LabelFile, HasOneLabelALine) {
  EXPECT_EQ(parse_labels("cat\ndog\n", "l.txt", kThree).value(), (Labels{"cat", "dog"}));
  EXPECT_EQ(parse_labels("cat\r\ntiger shark, Galeocerdo\r\n", "l.txt", kThree).value(),
            (Labels{"cat", "tiger shark, Galeocerdo"}));
  EXPECT_EQ(parse_labels("a\n\nc", "l.txt", kThree).value(), (Labels{"a", "", "c"}))
      << "an empty line keeps its place";
  EXPECT_EQ(parse_labels("caf\xc3\xa9", "l.txt", kThree).value(), (Labels{"caf\xc3\xa9"}));
}

TEST(LabelFile, IsRefusedWhereItDoesNotFitTheOutput) {
  EXPECT_EQ(refusal(""), StatusCode::invalid);
  EXPECT_EQ(refusal("a\nb\nc\nd\n"), StatusCode::invalid) << "more labels than elements";
  EXPECT_EQ(refusal("a\nb\x1b[1m\n"), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kLongestLabel + 1, 'x')), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kMostLabelBytes + 1, '\n')), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kLongestLabel, 'x')), StatusCode::ok);
}

TEST(LabelFile, IsARegularFile) {
  const support::TemporaryFolder folder;
  folder.write("l.txt", "a\nb\n");
  EXPECT_EQ(load_labels(folder.path() / "l.txt", kThree).value(), (Labels{"a", "b"}));
  EXPECT_EQ(load_labels(folder.path() / "none", kThree).status().code(), StatusCode::not_found);
  EXPECT_EQ(load_labels(folder.path(), kThree).status().code(), StatusCode::not_found);
  EXPECT_EQ(load_labels("/dev/zero", kThree).status().code(), StatusCode::not_found);
}

}  // namespace

}  // namespace gpulet::config
