#include "tools/cli/infer_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gpulet/core/bucket.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::tools {
namespace {

using support::names;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

const std::vector<TensorSpec> kOne = {{"x", DataType::fp32, {2, 2}}};
const std::vector<TensorSpec> kTwo = {{"x", DataType::fp32, {2}}, {"n", DataType::int64, {1}}};

Result<Bytes> parse(std::string_view json, std::vector<TensorSpec> inputs) {
  return parse_infer_input(json, inputs);
}
Result<Bytes> read(const std::filesystem::path& file, std::vector<TensorSpec> inputs) {
  return read_infer_input(file, inputs);
}

std::vector<double> numbers(DataType type, std::span<const std::byte> bytes) {
  std::vector<double> values;
  for (std::size_t i = 0; i < bytes.size() / byte_size(type); ++i)
    values.push_back(value_at(type, bytes, i));
  return values;
}

std::vector<double> parsed(const std::string& json, const std::vector<TensorSpec>& inputs = kOne) {
  const Result<Bytes> bytes = parse(json, inputs);
  EXPECT_TRUE(bytes.ok()) << json << ": " << bytes.status().to_string();
  return bytes.ok() ? numbers(DataType::fp32, bytes.value().view()) : std::vector<double>{};
}

TEST(InferInput, AcceptsEveryForm) {
  for (const char* const json :
       {R"([1, 2.5, -3, 4])", R"([[1, 2.5], [-3, 4]])", R"({"x": [[1, 2.5], [-3, 4]]})",
        R"({"inputs": [{"data": [1, 2.5, -3, 4]}]})",
        R"({"id": "7", "inputs": [{"name": "x", "shape": [1, 2, 2], "datatype": "FP32",
                                   "data": [[[1, 2.5], [-3, 4]]]}]})"}) {
    EXPECT_THAT(parsed(json), ElementsAre(1, 2.5, -3, 4)) << json;
  }
}

TEST(InferInput, TheNumberOfValuesGivesDynamicDimensionsTheirSize) {
  const std::vector<TensorSpec> declared = {{"x", DataType::fp32, {kAnyLength, 2}},
                                            {"n", DataType::int64, {kAnyLength}}};
  for (const char* const json :
       {R"({"x": [[1, 2], [3, 4], [5, 6]], "n": [7, 8, 9]})",
        R"({"inputs": [{"name": "x", "shape": [1, 3, 2], "data": [1, 2, 3, 4, 5, 6]},
                       {"name": "n", "shape": [3], "data": [7, 8, 9]}]})"}) {
    std::vector<TensorSpec> inputs = declared;
    const Result<Bytes> bytes = parse_infer_input(json, inputs);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    EXPECT_EQ(inputs, with_length(declared, 3));
    EXPECT_EQ(bytes.value().size(), 48U);
  }
  EXPECT_EQ(parse(R"({"x": [1, 2, 3], "n": [1]})", declared).status().code(), StatusCode::invalid);

  const support::TemporaryFolder folder;
  std::vector<TensorSpec> inputs = declared;
  EXPECT_TRUE(read_infer_input(folder.write("five", std::string(80, '0')), inputs).ok());
  EXPECT_EQ(inputs, with_length(declared, 5));
  EXPECT_EQ(read(folder.write("odd", std::string(81, '0')), declared).status().code(),
            StatusCode::invalid);
}

TEST(InferInput, SortsInputsIntoTheModelsOrder) {
  const Result<Bytes> bytes = parse(R"({"n": [-7], "x": [1, 2]})", kTwo);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  EXPECT_THAT(numbers(DataType::fp32, bytes.value().slice(0, 8).view()), ElementsAre(1, 2));
  EXPECT_THAT(numbers(DataType::int64, bytes.value().slice(8, 8).view()), ElementsAre(-7));
}

TEST(InferInput, ErrorsNameThePlace) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"([1, 2, 3])", "3"},
      {R"([1, 2, 3, 4, 5])", "FP32[2,2]"},
      {R"({"x": [1, 2, "three", 4]})", "/x/2"},
      {R"({"y": [1]})", "\"y\""},
      {R"({})", "x"},
      {R"(7)", "x"},
      {R"([1, 2)", "JSON"},
      {R"({"inputs": [{"name": "x", "shape": [4], "data": [1, 2, 3, 4]}]})", "/inputs/0/shape"},
      {R"({"inputs": [{"name": "x", "datatype": "FP64", "data": [1, 2, 3, 4]}]})",
       "/inputs/0/datatype"},
      {R"({"inputs": [3]})", "/inputs/0"}};
  for (const auto& [json, expected] : cases) {
    const Result<Bytes> bytes = parse(json, kOne);
    ASSERT_FALSE(bytes.ok()) << json;
    EXPECT_TRUE(names(bytes.status(), expected)) << json;
  }
}

TEST(InferInput, ReadsOtherFilesAsRawTensors) {
  const support::TemporaryFolder folder;
  const auto file = folder.write("raw.f32", std::string(16, '\0'));
  const Result<Bytes> bytes = read(file, kOne);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  EXPECT_THAT(numbers(DataType::fp32, bytes.value().view()), ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(names(read(folder.write("short", "abc"), kOne).status(), "16 bytes", "3"));
  EXPECT_EQ(read(folder.path() / "none.json", kOne).status().code(), StatusCode::not_found);
}

TEST(InferInput, StringsAreElements) {
  const std::vector<TensorSpec> inputs = {{"text", DataType::bytes, {2}, 64},
                                          {"n", DataType::int64, {1}}};
  const Result<Bytes> bytes = parse(R"({"text": ["a", "bc"], "n": [1]})", inputs);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  const std::string expected("\1\0\0\0a\2\0\0\0bc\1\0\0\0\0\0\0\0", 19);
  const std::string found(reinterpret_cast<const char*>(bytes.value().view().data()),
                          bytes.value().size());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(values_json(DataType::bytes, bytes.value().slice(0, 11).view()).dump(),
            R"(["a","bc"])");
  for (const char* const wrong :
       {R"({"text": ["a"], "n": [1]})", R"({"text": ["a", 2], "n": [1]})",
        R"({"text": "a", "n": [1]})", R"({"text": ["a", "b"], "n": ["c"]})"})
    EXPECT_EQ(parse(wrong, inputs).status().code(), StatusCode::invalid) << wrong;
}

TEST(InferInput, AFileMayBeTheOnlyString) {
  const support::TemporaryFolder folder;
  const std::vector<TensorSpec> one = {{"text", DataType::bytes, {1}, 64}};
  const Result<Bytes> bytes = read(folder.write("text.txt", "hello"), one);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  EXPECT_EQ(values_json(DataType::bytes, bytes.value().view()).dump(), R"(["hello"])");
  const std::vector<TensorSpec> two = {{"text", DataType::bytes, {2}, 64}};
  EXPECT_EQ(read(folder.write("text.txt", "hello"), two).status().code(), StatusCode::invalid);
}

TEST(TensorValues, IntegersHoldTheirRangeOnly) {
  const auto fits = [](DataType type, const char* value) {
    std::vector<std::byte> bytes;
    return append_value(type, nlohmann::json::parse(value), bytes).ok();
  };
  EXPECT_TRUE(fits(DataType::uint8, "255"));
  EXPECT_TRUE(fits(DataType::uint8, "3.0"));
  EXPECT_FALSE(fits(DataType::uint8, "256"));
  EXPECT_FALSE(fits(DataType::uint8, "-1"));
  EXPECT_FALSE(fits(DataType::int32, "0.5"));
  EXPECT_TRUE(fits(DataType::int8, "-128"));
  EXPECT_FALSE(fits(DataType::int8, "-129"));
  EXPECT_TRUE(fits(DataType::int64, "9223372036854775807"));
  EXPECT_FALSE(fits(DataType::int64, "9223372036854775808"));
  EXPECT_TRUE(fits(DataType::boolean, "true"));
  EXPECT_FALSE(fits(DataType::boolean, "2"));
}

TEST(TensorValues, PrintTheFewestDigits) {
  std::vector<std::byte> bytes;
  for (const double value : {0.1, 1e30, std::nan("")})
    ASSERT_TRUE(append_value(DataType::fp32, value, bytes).ok());
  EXPECT_EQ(values_json(DataType::fp32, bytes).dump(), "[0.1,1e+30,null]");
}

RC_GTEST_PROP(TensorValues, RoundTripsEveryHalf, ()) {
  for (const DataType type : {DataType::fp16, DataType::bf16}) {
    const auto bits = *rc::gen::arbitrary<std::uint16_t>();
    std::vector<std::byte> bytes(2);
    std::memcpy(bytes.data(), &bits, 2);
    const double value = value_at(type, bytes, 0);
    std::vector<std::byte> again;
    RC_ASSERT(append_value(type, value, again).ok());
    const bool same = std::isnan(value) ? std::isnan(value_at(type, again, 0)) : again == bytes;
    RC_ASSERT(same);
  }
}

Result<Image> decoded(const std::string& text) {
  return decode_image(std::as_bytes(std::span(text)));
}

TEST(Images, ReadsPlainAndRawAnymaps) {
  for (const std::string& text :
       {std::string("P3 # colours\n2 1\n255\n255 0 0  0 51 255\n"),
        std::string("P6\n2 1 255\n") + std::string("\xFF\x00\x00\x00\x33\xFF", 6)}) {
    const Result<Image> image = decoded(text);
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    EXPECT_EQ(image.value().channels, 3U);
    EXPECT_THAT(image.value().values,
                Pointwise(FloatNear(1e-6F), std::vector<float>{1, 0, 0, 0, 0.2F, 1}));
  }
}

TEST(Images, RejectsTruncatedAndOtherFiles) {
  for (const char* const text :
       {"P5\n2 2 255\nabc", "P2\n2 1 255\n7", "P5\n0 1 255\n", "P5\n1 1 0\n",
        "P5\n99999 99999 255\n", "P2 1 1 255 256", "P4\n1 1\n", "GIF89a", ""})
    EXPECT_EQ(decoded(text).status().code(), StatusCode::invalid) << text;
}

TEST(Images, ConvertToTheModelsTensor) {
  const Image image{2, 1, 3, {1, 0, 0, 0, 0.2F, 1}};
  const auto tensor = [&image](const TensorSpec& spec,
                               const std::optional<Normalisation>& normalisation) {
    const Result<Bytes> bytes = to_tensor(image, spec, normalisation);
    EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
    return bytes.ok() ? numbers(spec.type, bytes.value().view()) : std::vector<double>{};
  };
  const TensorSpec first{"image", DataType::fp32, {3, 1, 2}};
  EXPECT_THAT(tensor(first, {}), ElementsAre(1, 0, 0, 0.2, 0, 1));
  EXPECT_THAT(tensor(first, Normalisation{{0.5}, {0.5, 1, 2}}),
              Pointwise(DoubleNear(1e-6), std::vector<double>{1, -1, -0.5, -0.3, -0.25, 0.25}));
  EXPECT_THAT(tensor({"image", DataType::uint8, {2, 2, 3}}, {}),
              ElementsAre(255, 0, 0, 0, 51, 255, 255, 0, 0, 0, 51, 255));
  EXPECT_EQ(tensor({"image", DataType::fp32, {1, 5, 7}}, {}).size(), 35U);
  for (const TensorSpec& spec :
       {TensorSpec{"x", DataType::fp32, {4}}, TensorSpec{"x", DataType::boolean, {3, 1, 2}}})
    EXPECT_EQ(to_tensor(image, spec, {}).status().code(), StatusCode::invalid);
  EXPECT_FALSE(to_tensor(image, first, Normalisation{{0.5, 0.5}, {1}}).ok());
}

// For any sizes, a uniform image stays uniform, and nothing gets brighter than the brightest pixel.
RC_GTEST_PROP(Images, ResizingKeepsTheBrightness, ()) {
  const auto side = [] { return *rc::gen::inRange<std::uint32_t>(1, 20); };
  Image image{side(), side(), 1};
  image.values.assign(std::size_t{image.width} * image.height, 0.25F);
  const TensorSpec spec{"x", DataType::fp32, {1, side(), side()}};
  const auto even = numbers(spec.type, to_tensor(image, spec, {}).value().view());
  for (const double value : even) RC_ASSERT(std::abs(value - 0.25) < 1e-5);
  image.values[*rc::gen::inRange<std::size_t>(0, image.values.size())] = 1;
  for (const double value : numbers(spec.type, to_tensor(image, spec, {}).value().view()))
    RC_ASSERT((value > 0.2499 && value < 1.0001));
}

}  // namespace
}  // namespace gpulet::tools
