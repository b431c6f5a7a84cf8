#include "gpulet/config/onnx_signature.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/config/model_config.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"

namespace gpulet::config::onnx_signature_test {
namespace {

namespace onnx = support::onnx;

Result<OnnxSignature> parse(const std::string& file) {
  return parse_onnx_signature(std::as_bytes(std::span(file)));
}

onnx::Model lenet() {
  return {.inputs = {{"image", onnx::kFloat, {{"batch", 1, 28, 28}}}},
          .outputs = {{"logits", onnx::kFloat, {{"batch", 10}}}},
          .nodes = {{"Flatten", {"image"}, {"flat"}}, {"MatMul", {"flat", "w"}, {"logits"}}},
          .weights = {{"w", {784, 10}, std::vector<float>(7840)}}};
}

TEST(OnnxSignature, HasNamesTypesAndShapes) {
  const auto signature = parse(encode(lenet()));
  ASSERT_TRUE(signature.ok()) << signature.status().to_string();
  const OnnxDimension batch{.size = OnnxDimension::kAny, .name = "batch"};
  EXPECT_EQ(signature.value().inputs,
            (std::vector<OnnxTensor>{
                {"image", onnx::kFloat, std::vector<OnnxDimension>{batch, {1}, {28}, {28}}}}));
  EXPECT_EQ(
      signature.value().outputs,
      (std::vector<OnnxTensor>{{"logits", onnx::kFloat, std::vector<OnnxDimension>{batch, {10}}}}));
  EXPECT_FALSE(signature.value().external_data);
}

TEST(OnnxSignature, LeavesOutInputsThatHaveAValue) {
  onnx::Model model = lenet();
  model.inputs.push_back({"w", onnx::kFloat, {{784, 10}}});
  const auto signature = parse(encode(model));
  ASSERT_TRUE(signature.ok());
  ASSERT_EQ(signature.value().inputs.size(), 1U);
  EXPECT_EQ(signature.value().inputs[0].name, "image");
}

TEST(OnnxSignature, TellsUnknownShapesFromEmptyOnes) {
  onnx::Model model = lenet();
  model.inputs[0].shape.reset();
  model.outputs[0].shape.emplace();
  const auto signature = parse(encode(model));
  ASSERT_TRUE(signature.ok());
  EXPECT_FALSE(signature.value().inputs[0].shape.has_value());
  EXPECT_EQ(signature.value().outputs[0].shape, std::vector<OnnxDimension>{});
}

TEST(OnnxSignature, FindsWeightsInOtherFiles) {
  onnx::Model model = lenet();
  model.weights[0].external = true;
  const auto signature = parse(encode(model));
  ASSERT_TRUE(signature.ok());
  EXPECT_TRUE(signature.value().external_data);
}

// ONNX Runtime does not say which file it misses.
TEST(OnnxSignature, FindsConstantsInOtherFiles) {
  const onnx::Weight elsewhere{.name = "c", .shape = {1}, .numbers = {1}, .external = true};
  const onnx::Node constant{
      "Constant", {}, {"c"}, {onnx::tensor_attribute("value", encode(elsewhere))}};
  const auto finds = [](const std::vector<onnx::Node>& nodes) {
    onnx::Model model = lenet();
    model.nodes.insert(model.nodes.end(), nodes.begin(), nodes.end());
    const auto signature = parse(encode(model));
    EXPECT_TRUE(signature.ok()) << signature.status().to_string();
    return signature.ok() && signature.value().external_data;
  };
  const auto branch_of = [](const onnx::Model& graph) {
    return onnx::Node{
        "If", {"b"}, {"r"}, {onnx::graph_attribute("then_branch", encode_graph(graph))}};
  };
  EXPECT_TRUE(finds({constant}));
  EXPECT_TRUE(finds({branch_of({.weights = {elsewhere}})}));
  EXPECT_TRUE(finds({branch_of({.nodes = {branch_of({.nodes = {constant}})}})}));
  const onnx::Weight inside{.name = "c", .shape = {1}, .numbers = {1}};
  EXPECT_FALSE(finds({{"Constant", {}, {"c"}, {onnx::tensor_attribute("value", encode(inside))}},
                      branch_of({.weights = {inside}})}));
  // Nodes beyond the limits do not make the file invalid.
  EXPECT_FALSE(
      finds({{"TreeEnsembleRegressor",
              {"x"},
              {"y"},
              {onnx::integers_attribute("nodes_ids", std::vector<std::int64_t>(2'000'000))},
              "ai.onnx.ml"}}));
}

TEST(OnnxSignature, KnowsWhetherNodesDrawRandomNumbers) {
  const auto draws = [](const std::string& file) { return parse(file).value().random; };
  EXPECT_FALSE(draws(encode(lenet())));
  for (const char* operation : {"RandomNormal", "RandomUniformLike", "Multinomial", "Bernoulli"}) {
    const onnx::Node node{operation, {"x"}, {"noise"}};
    onnx::Model model = lenet();
    model.nodes.push_back(
        {"If",
         {"b"},
         {"r"},
         {onnx::graph_attribute("then_branch", encode_graph(onnx::Model{.nodes = {node}}))}});
    EXPECT_TRUE(draws(encode(model))) << operation;
    const std::string function = onnx::content_field(7, encode(node));
    EXPECT_TRUE(draws(encode(lenet()) + onnx::content_field(25, function))) << operation;
  }
}

TEST(OnnxSignature, TellsWhatAnOutputIsInPlaceOfATensor) {
  const std::string tensor = onnx::content_field(1, onnx::number_field(1, onnx::kFloat));
  const std::pair<int, OnnxKind> kinds[] = {{4, OnnxKind::sequence},
                                            {5, OnnxKind::map},
                                            {8, OnnxKind::sparse_tensor},
                                            {9, OnnxKind::optional},
                                            {7, OnnxKind::other}};
  for (const auto& [field, kind] : kinds) {
    onnx::Model model = lenet();
    const auto number = static_cast<std::uint32_t>(field);
    model.outputs.push_back(
        {"scores", 0, {}, onnx::content_field(number, onnx::content_field(1, tensor))});
    const auto signature = parse(encode(model));
    ASSERT_TRUE(signature.ok());
    const OnnxTensor& output = signature.value().outputs.at(1);
    EXPECT_EQ(output.kind, kind);
    EXPECT_EQ(check_kind(output).code(), StatusCode::invalid);
    EXPECT_TRUE(check_kind(signature.value().outputs.at(0)).ok());
    EXPECT_TRUE(support::names(check_kind(output), "scores"));
  }
  onnx::Model named = lenet();
  named.outputs.push_back(
      {"y", 0, {}, tensor + onnx::content_field(6, "IMAGE")});  // a denotation is no kind
  EXPECT_EQ(parse(encode(named)).value().outputs.at(1).kind, OnnxKind::tensor);
}

TEST(OnnxSignature, TellsWhatOtherFilesAre) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> files[] = {
      {"", "empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git lfs pull"},
      {"\n <!DOCTYPE html><html>", "HTML"},
      {"<HTML><body>", "HTML"},
      {"<?xml version=\"1.0\"?><Error>", "XML"},
      {"{\"error\":\"no such key\"}", "no such key"},
      {"404: Not Found", "404: Not Found"},
      {"\x1f\x8b\x08\0"s, "decompress"},
      {"\x28\xb5\x2f\xfd\0"s, "decompress"},
      {"\x18\0\0\0ORTM\0\0"s, ".ort"},
      {"\x1c\0\0\0TFL3\0\0"s, "TensorFlow Lite"},
      {"\x80\x02\x8a\x0al\xfc\x9c"s, "torch.jit.save"},
      {"\x80\x04\x95\x10\0"s, "pickle"},
      {"\x40\0\0\0\0\0\0\0{\"a\":{}}"s, "safetensors"},
      {"\x89HDF\r\n\x1a\n\0"s, "Keras"},
      {"\x93NUMPY\x01\0"s, "NumPy"},
      {"GGUF\x03\0\0\0"s, "GGUF"},
      {"ftrt\0\0"s, "TensorRT"},
      {"\x08\x01\x12\x20\x0a\x05\x12\x03"s + std::string(40, '\1'), "SavedModel"},
      {std::string(257, '\0') + "ustar\00000", "tar"},
      {"\x7f"
       "ELF\x02\x01",
       "library"},
  };
  for (const auto& [bytes, kind] : files) {
    const auto signature = parse(bytes);
    EXPECT_EQ(signature.status().code(), StatusCode::invalid) << kind;
    EXPECT_TRUE(support::names(signature.status(), kind));
  }
}

TEST(OnnxSignature, RefusesOtherBytes) {
  const std::string graph = onnx::content_field(7, onnx::content_field(2, "g"));
  const std::string wrong[] = {
      "",
      "hello",
      std::string(1000, '\0'),
      "PK\x03\x04",
      onnx::number_field(1, 7),                   // no graph
      graph,                                      // no version
      onnx::number_field(1, 7) + graph,           // no output
      onnx::number_field(1, 7) + graph + graph,   // two graphs
      std::string(11, '\xff'),                    // an endless number
      onnx::varint((7U << 3U) | 3U),              // a group
      onnx::varint((7U << 3U) | 2U) + "\xff\x01"  // beyond the end
  };
  for (const std::string& bytes : wrong)
    EXPECT_EQ(parse(bytes).status().code(), StatusCode::invalid) << bytes.size() << " bytes";
}

TEST(OnnxSignature, RefusesACutFile) {
  const std::string whole = encode(lenet());
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 20) {
    const auto cut = parse(whole.substr(0, size));
    EXPECT_TRUE(!cut.ok() || cut.value() == parse(whole).value()) << size;
  }
}

TEST(OnnxSignature, HasLimits) {
  onnx::Model names = lenet();
  names.inputs[0].name.assign(kLongestOnnxName + 1, 'x');
  EXPECT_EQ(parse(encode(names)).status().code(), StatusCode::invalid);
  onnx::Model tensors = lenet();
  tensors.outputs.assign(kMostOnnxTensors + 1, {"y"});
  EXPECT_EQ(parse(encode(tensors)).status().code(), StatusCode::invalid);
  onnx::Model dimensions = lenet();
  dimensions.inputs[0].shape->assign(kMostOnnxDimensions + 1, 1);
  EXPECT_EQ(parse(encode(dimensions)).status().code(), StatusCode::invalid);
  std::string fields = encode(lenet());
  for (std::uint64_t i = 0; i <= kMostOnnxFields; ++i) fields += onnx::number_field(1, 7);
  EXPECT_EQ(parse(fields).status().code(), StatusCode::invalid);
}

TEST(OnnxSignature, ReadsFiles) {
  const support::TemporaryFolder folder;
  const auto file = folder.write("lenet.onnx", encode(lenet()));
  const auto signature = read_onnx_signature(file);
  ASSERT_TRUE(signature.ok()) << signature.status().to_string();
  EXPECT_EQ(signature.value(), parse(encode(lenet())).value());
  EXPECT_EQ(read_onnx_signature(folder.path() / "none").status().code(), StatusCode::unavailable);
}

// ---- the format of files

class ModelFileFormat : public ::testing::Test {
 protected:
  [[nodiscard]] FileDescriptor opened(const std::string& content) const {
    return FileDescriptor(::open(folder_.write("m", content).c_str(), O_RDONLY | O_CLOEXEC));
  }
  support::TemporaryFolder folder_;
};

TEST_F(ModelFileFormat, FollowsFromTheContent) {
  const std::string archive = support::archive(support::kMembers, true);
  EXPECT_EQ(format_of(opened(archive).get()).value(), FileFormat::torchscript);
  EXPECT_EQ(format_of(opened(encode(lenet())).get()).value(), FileFormat::onnx);
  EXPECT_EQ(format_of(opened("").get()).value(), FileFormat::onnx);
  EXPECT_EQ(format_of(folder_.path() / "m").value(), FileFormat::onnx);
  EXPECT_EQ(format_of(folder_.path() / "none").status().code(), StatusCode::unavailable);
}

TEST_F(ModelFileFormat, OfBothKindsPassesTheCheck) {
  EXPECT_TRUE(check_model_file(opened(support::archive(support::kMembers, true)).get()).ok());
  EXPECT_TRUE(check_model_file(opened(encode(lenet())).get()).ok());
  EXPECT_EQ(check_model_file(opened("no model").get()).code(), StatusCode::invalid);
  EXPECT_EQ(check_model_file(opened("PK\x03\x04 no model").get()).code(), StatusCode::invalid);
}

TEST_F(ModelFileFormat, OfAPackageIsNativeCode) {
  for (const std::vector<std::string>& members :
       {std::vector<std::string>{"archive_format", "data/aotinductor/model/m.so"},
        std::vector<std::string>{"m/archive_format", "m/data/aotinductor/model/m.wrapper.so"}}) {
    const FileDescriptor package = opened(support::archive(members, false));
    EXPECT_EQ(format_of(package.get()).value(), FileFormat::package);
    EXPECT_EQ(check_model_file(package.get()).code(), StatusCode::invalid);
    EXPECT_EQ(check_file_of(ModelFormat::known, package.get()).code(), StatusCode::invalid);
    EXPECT_EQ(check_file_of(ModelFormat::torchscript, package.get()).code(), StatusCode::invalid);
    EXPECT_TRUE(check_file_of(ModelFormat::native, package.get()).ok());
    EXPECT_TRUE(check_file_of(ModelFormat::any, package.get()).ok());
  }
  const auto check = [this](ModelFormat allowed, const std::string& content) {
    return check_file_of(allowed, opened(content).get()).code();
  };
  EXPECT_EQ(check(ModelFormat::native, support::archive(support::kMembers, true)), StatusCode::ok);
  EXPECT_EQ(check(ModelFormat::native, encode(lenet())), StatusCode::ok);
  EXPECT_EQ(check(ModelFormat::native, "no model"), StatusCode::invalid);
  EXPECT_EQ(check(ModelFormat::torchscript, encode(lenet())), StatusCode::invalid);
  EXPECT_EQ(check(ModelFormat::any, "no model"), StatusCode::ok);
}

TEST_F(ModelFileFormat, OfOtherArchivesIsNamed) {
  const std::pair<std::vector<std::string>, const char*> archives[] = {
      {{"m/data.pkl", "m/data/0", "m/version"}, "torch.jit.trace"},
      {{"m/archive_format", "m/models/model.json"}, "torch.export"},
      {{"config.json", "model.weights.h5"}, "Keras"},
      {{"a.npy", "b.npy"}, "NumPy"},
      {{"export/model.onnx"}, "ONNX"},
      {{"word/document.xml"}, "data.pkl"}};
  for (const auto& [members, kind] : archives) {
    const Status status = check_model_file(opened(support::archive(members, true)).get());
    EXPECT_EQ(status.code(), StatusCode::invalid) << kind;
    EXPECT_TRUE(support::names(status, kind));
  }
}

// ---- comparing with a declaration

class OnnxDeclaration : public ::testing::Test {
 protected:
  [[nodiscard]] Status check() const {
    return check_declared(parse(encode(model_)).value(), inputs_, outputs_, max_batch_);
  }
  void expect_refused(const std::string& value) const {
    const Status status = check();
    EXPECT_EQ(status.code(), StatusCode::invalid);
    EXPECT_TRUE(support::names(status, value));
  }

  onnx::Model model_ = lenet();
  std::vector<TensorSpec> inputs_{{"image", DataType::fp32, {1, 28, 28}}};
  std::vector<TensorSpec> outputs_{{"logits", DataType::fp32, {10}}};
  std::uint32_t max_batch_ = 8;
};

TEST_F(OnnxDeclaration, ThatFitsPasses) {
  EXPECT_TRUE(check().ok()) << check().to_string();
  model_.inputs[0].shape = {"n", 1, "height", "width"};
  model_.outputs[0].shape.reset();
  EXPECT_TRUE(check().ok()) << check().to_string();
  model_.outputs.push_back({"more"});
  EXPECT_TRUE(check().ok()) << check().to_string();
}

TEST_F(OnnxDeclaration, OfWholeTensorsHasAllDimensions) {
  model_.inputs[0].shape = {2, "n", 64};
  model_.outputs[0].shape = std::vector<onnx::Dimension>{};
  max_batch_ = 1;
  inputs_[0].shape = {2, 1, 64};
  outputs_[0].shape = {};
  EXPECT_FALSE(check().ok());
  inputs_[0].whole = outputs_[0].whole = true;
  EXPECT_TRUE(check().ok()) << check().to_string();
  inputs_[0].shape = {1, 64};
  expect_refused("without a batch dimension");
}

TEST_F(OnnxDeclaration, OptionalInputsMayBeMissing) {
  model_.inputs.push_back({"scale", onnx::kFloat, {{1, 2}}});
  expect_refused("scale");
  model_.weights.push_back({"scale", {1, 2}, {3, 4}});
  EXPECT_TRUE(check().ok()) << check().to_string();
  inputs_.push_back({"scale", DataType::fp32, {2}});
  max_batch_ = 1;
  EXPECT_TRUE(check().ok()) << check().to_string();
}

TEST(OnnxInitialValue, IsThatOfTheWeight) {
  onnx::Model model = lenet();
  model.inputs.push_back({"scale", onnx::kFloat, std::vector<onnx::Dimension>{2}});
  model.inputs.push_back({"rates", onnx::kInt64, std::vector<onnx::Dimension>{2}});
  model.weights.push_back({"scale", {2}, {3, 4}});
  model.constants = {onnx::integers_constant("rates", {-1, 16000})};
  const std::string file = encode(model);
  const auto bytes = std::as_bytes(std::span(file));
  const auto signature = parse_onnx_signature(bytes);
  ASSERT_TRUE(signature.ok()) << signature.status().to_string();
  ASSERT_EQ(signature.value().optional_inputs.size(), 2U);
  const auto value = [&](std::size_t input) {
    return parse_initial_value(bytes, signature.value().optional_inputs[input]).value();
  };
  const float scale[] = {3, 4};
  const std::int64_t rates[] = {-1, 16000};
  const auto as_vector = [](auto& numbers) {
    const auto view = std::as_bytes(std::span(numbers));
    return std::vector<std::byte>(view.begin(), view.end());
  };
  EXPECT_EQ(value(0), as_vector(scale));
  EXPECT_EQ(value(1), as_vector(rates));
  EXPECT_EQ(parse_initial_value(bytes, signature.value().inputs[0]).status().code(),
            StatusCode::not_found);
  model.weights.back() = {"scale", {100, 1000}, std::vector<float>(100'000)};
  const std::string large = encode(model);
  EXPECT_EQ(
      parse_initial_value(std::as_bytes(std::span(large)), signature.value().optional_inputs[0])
          .status()
          .code(),
      StatusCode::invalid);
}

TEST_F(OnnxDeclaration, OfOtherNamesIsRefused) {
  inputs_[0].name = "picture";
  expect_refused(R"("picture")");
  inputs_[0].name = "image";
  outputs_[0].name = "scores";
  expect_refused(R"("scores")");
}

TEST_F(OnnxDeclaration, WithoutARequiredInputIsRefused) {
  model_.inputs.push_back({"mask", onnx::kFloat, {{"batch", 1}}});
  expect_refused(R"("mask")");
}

TEST_F(OnnxDeclaration, OfOtherTypesIsRefused) {
  inputs_[0].type = DataType::int64;
  expect_refused("INT64");
  inputs_[0].type = DataType::fp32;
  model_.outputs[0].type = onnx::kString;
  expect_refused("STRING");
  outputs_[0].type = DataType::bytes;
  outputs_[0].max_bytes = 4096;
  EXPECT_TRUE(check().ok());
  model_.outputs[0].type = 99;
  expect_refused("unknown");
}

TEST_F(OnnxDeclaration, OfOtherShapesIsRefused) {
  inputs_[0].shape = {1, 28, 29};
  expect_refused("[1,28,29]");
  inputs_[0].shape = {28, 28};
  expect_refused("[28,28]");
  inputs_[0].shape = {1, 28, 28};
  model_.outputs[0].shape.emplace();
  expect_refused("logits");
}

TEST_F(OnnxDeclaration, OfABatchDimensionOfOneSizeIsRefused) {
  model_.inputs[0].shape->front() = 1;
  expect_refused("[1,1,28,28]");
  max_batch_ = 1;
  EXPECT_TRUE(check().ok());
  model_.inputs[0].shape->front() = 4;
  expect_refused("[4,1,28,28]");
}

TEST_F(OnnxDeclaration, OfABatchInTheSecondPlaceIsRefusedWithTheRightFix) {
  model_.inputs[0].shape = {{2, "batch", 8}};
  inputs_[0].shape = {1, 8};
  expect_refused("dimension 2");
}

TEST_F(OnnxDeclaration, WithoutABatchDimensionIsRefused) {
  model_.inputs[0].shape = {{1, 28, 28}};
  expect_refused("FP32[1,28,28]");
  max_batch_ = 1;
  expect_refused("FP32[1,28,28]");
  model_.inputs[0].shape.emplace();
  expect_refused("FP32[]");
}

TEST_F(OnnxDeclaration, OfASequenceIsRefused) {
  model_.outputs[0].other_type =
      onnx::content_field(4, onnx::content_field(1, onnx::content_field(5, "")));
  expect_refused("zipmap");
}

TEST_F(OnnxDeclaration, OfWeightsInOtherFilesIsRefused) {
  model_.weights[0].external = true;
  expect_refused("weights");
}

// ---- properties

rc::Gen<std::string> any_name() { return rc::gen::resize(12, rc::gen::nonEmpty<std::string>()); }

rc::Gen<OnnxDimension> any_dimension() {
  return rc::gen::oneOf(rc::gen::map(rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000),
                                     [](std::int64_t size) { return OnnxDimension{.size = size}; }),
                        rc::gen::map(any_name(),
                                     [](std::string name) {
                                       return OnnxDimension{.size = OnnxDimension::kAny,
                                                            .name = std::move(name)};
                                     }),
                        rc::gen::just(OnnxDimension{}));
}

OnnxTensor any_tensor(std::string name) {
  OnnxTensor tensor;
  tensor.name = std::move(name);
  tensor.element_type = *rc::gen::inRange(0, 40);
  if (*rc::gen::arbitrary<bool>())
    tensor.shape =
        *rc::gen::resize(8, rc::gen::container<std::vector<OnnxDimension>>(any_dimension()));
  return tensor;
}

onnx::Tensor to_file(const OnnxTensor& tensor) {
  onnx::Tensor made{tensor.name, tensor.element_type, {}};
  if (!tensor.shape) return made;
  made.shape.emplace();
  for (const OnnxDimension& dimension : *tensor.shape)
    made.shape->push_back({dimension.size, dimension.name});
  return made;
}

RC_GTEST_PROP(OnnxSignatureProperty, IsWhatWasWritten, ()) {
  OnnxSignature signature;
  onnx::Model model;
  const auto add = [](std::vector<OnnxTensor>& tensors, std::vector<onnx::Tensor>& in_file,
                      std::string name) {
    tensors.push_back(any_tensor(std::move(name)));
    in_file.push_back(to_file(tensors.back()));
  };
  const int inputs = *rc::gen::inRange(0, 5);
  for (int i = 0; i < inputs; ++i)
    add(signature.inputs, model.inputs, std::to_string(i) + *any_name());
  const int outputs = *rc::gen::inRange(1, 5);
  for (int i = 0; i < outputs; ++i) add(signature.outputs, model.outputs, *any_name());
  const int weights = *rc::gen::inRange(0, 5);
  for (int i = 0; i < weights; ++i) {
    const std::string name = "weight" + std::to_string(i);
    model.weights.push_back({name, {3}, {1, 2, 3}});
    if (!*rc::gen::arbitrary<bool>()) continue;
    signature.optional_inputs.push_back(
        {name, onnx::kFloat, std::vector<OnnxDimension>{{.size = 3}}});
    model.inputs.push_back(to_file(signature.optional_inputs.back()));
  }
  const auto parsed = parse(encode(model));
  RC_ASSERT(parsed.ok());
  RC_ASSERT(parsed.value() == signature);
}

RC_GTEST_PROP(OnnxSignatureProperty, OfAnyMutationIsAValueOrAFailure, ()) {
  std::string bytes = encode(lenet());
  const auto changes = *rc::gen::inRange(1, 8);
  for (int i = 0; i < changes; ++i)
    bytes[*rc::gen::inRange<std::size_t>(0, 200)] = *rc::gen::arbitrary<char>();
  const auto parsed = parse(bytes);
  RC_ASSERT(parsed.ok() || parsed.status().code() == StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::config::onnx_signature_test
