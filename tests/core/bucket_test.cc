#include "gpulet/core/bucket.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace gpulet {
namespace {

Bytes bytes_with(std::size_t count, std::size_t first) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((first + i) % 251);
  return Bytes::own(std::move(bytes));
}

std::vector<std::byte> copy_of(const Bytes& bytes) {
  return {bytes.view().begin(), bytes.view().end()};
}

template <typename Number>
std::vector<Number> numbers_of(const Bytes& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.view().data(), bytes.size());
  return numbers;
}

template <typename Number>
Bytes bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return Bytes::own(std::move(bytes));
}

Bucket tokens(std::int64_t length) {
  Bucket bucket;
  bucket.model = "bert";
  bucket.length = length;
  bucket.inputs = {{"ids", DataType::int16, {kAnyLength}}, {"mask", DataType::int16, {kAnyLength}}};
  bucket.outputs = {{"hidden", DataType::int16, {kAnyLength, 2}}, {"pooled", DataType::int16, {3}}};
  for (const double value : {7.0, 0.0})
    bucket.padding.push_back(element_of(bucket.inputs[0], value).value());
  return bucket;
}

TEST(BucketTest, NamesGoThereAndBack) {
  EXPECT_EQ(bucket_name("bert", 64), "bert@64");
  EXPECT_EQ(client_name("bert@64"), "bert");
  EXPECT_EQ(client_name("bert"), "bert");
}

TEST(BucketTest, EachInputIsFilledWithItsOwnNumber) {
  const Bytes given = bytes_of<std::int16_t>({1, 2, 1, 1});
  EXPECT_EQ(numbers_of<std::int16_t>(padded(tokens(4), given, 2)),
            (std::vector<std::int16_t>{1, 2, 7, 7, 1, 1, 0, 0}));
}

TEST(BucketTest, ARequestOfTheBucketsLengthIsShared) {
  const Bytes given = bytes_of<std::int16_t>({1, 2, 1, 1});
  EXPECT_EQ(padded(tokens(2), given, 2).view().data(), given.view().data());
}

TEST(BucketTest, OutputsWithoutTheDimensionStay) {
  const Bytes hidden = bytes_of<std::int16_t>({1, 2, 3, 4, 5, 6});
  const Bytes pooled = bytes_of<std::int16_t>({7, 8, 9});
  const auto outputs = cut(tokens(3), {hidden, pooled}, 1);
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(numbers_of<std::int16_t>(outputs.value()[0]), (std::vector<std::int16_t>{1, 2}));
  EXPECT_EQ(numbers_of<std::int16_t>(outputs.value()[1]), (std::vector<std::int16_t>{7, 8, 9}));
}

TEST(BucketTest, OutputsOfOtherSizesAreNotCut) {
  const Bytes hidden = bytes_with(12, 0);
  EXPECT_EQ(cut(tokens(3), {hidden}, 1).status().code(), StatusCode::internal);
  EXPECT_EQ(cut(tokens(3), {hidden, bytes_with(5, 0)}, 1).status().code(), StatusCode::internal);
  EXPECT_EQ(cut(tokens(4), {hidden, bytes_with(6, 0)}, 1).status().code(), StatusCode::internal);
}

TEST(BucketTest, TheLengthIsThatOfAllDynamicDimensions) {
  const std::vector<TensorSpec> declared{{"a", DataType::fp32, {kAnyLength, 2}},
                                         {"b", DataType::fp32, {4}},
                                         {"c", DataType::fp32, {3, kAnyLength}}};
  EXPECT_EQ(length_of(declared, with_length(declared, 9)).value(), 9);
  const auto refuses = [&](std::size_t input, std::vector<std::int64_t> shape) {
    std::vector<TensorSpec> given = with_length(declared, 9);
    given[input].shape = std::move(shape);
    return length_of(declared, given).status().code() == StatusCode::invalid;
  };
  EXPECT_TRUE(refuses(0, {9, 3}));
  EXPECT_TRUE(refuses(0, {0, 2}));
  EXPECT_TRUE(refuses(0, {9}));
  EXPECT_TRUE(refuses(1, {5}));
  EXPECT_TRUE(refuses(2, {3, 8}));
  EXPECT_TRUE(refuses(2, {3, kAnyLength}));
}

TEST(BucketTest, PaddingMustBeANumberOfTheType) {
  const auto holds = [](DataType type, double value) {
    return element_of({"x", type, {2, kAnyLength}}, value).has_value();
  };
  EXPECT_TRUE(holds(DataType::uint8, 255));
  EXPECT_FALSE(holds(DataType::uint8, 256));
  EXPECT_FALSE(holds(DataType::uint8, -1));
  EXPECT_FALSE(holds(DataType::int32, 0.5));
  EXPECT_TRUE(holds(DataType::int64, -0x1p63));
  EXPECT_FALSE(holds(DataType::int64, 0x1p63));
  EXPECT_TRUE(holds(DataType::boolean, 1));
  EXPECT_FALSE(holds(DataType::boolean, 2));
  EXPECT_TRUE(holds(DataType::fp32, -1.5));
  EXPECT_TRUE(holds(DataType::fp16, 0));
  EXPECT_FALSE(holds(DataType::fp16, 1));
  EXPECT_EQ(element_of({"x", DataType::fp64, {}}, 2).value().size(), 8U);
}

TensorSpec any_tensor(std::size_t at, bool dynamic) {
  const auto type =
      *rc::gen::element(DataType::uint8, DataType::int16, DataType::fp32, DataType::int64);
  TensorSpec spec{"tensor" + std::to_string(at), type, {}};
  const auto before = *rc::gen::inRange<std::size_t>(0, 3);
  const auto after = *rc::gen::inRange<std::size_t>(0, 3);
  const auto some = [&spec](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) spec.shape.push_back(*rc::gen::inRange(1, 4));
  };
  some(before);
  if (dynamic) spec.shape.push_back(kAnyLength);
  some(after);
  return spec;
}

// A model that returns its inputs answers a padded request with the request.
RC_GTEST_PROP(BucketTest, CutUndoesPadded, ()) {
  Bucket bucket;
  bucket.model = "m";
  bucket.length = *rc::gen::inRange(1, 9);
  const std::int64_t length = *rc::gen::inRange<std::int64_t>(1, bucket.length + 1);
  const auto tensors = *rc::gen::inRange<std::size_t>(1, 4);
  for (std::size_t i = 0; i < tensors; ++i) {
    bucket.inputs.push_back(any_tensor(i, i == 0 || *rc::gen::arbitrary<bool>()));
    bucket.padding.push_back(element_of(bucket.inputs.back(), 1).value());
  }
  bucket.outputs = bucket.inputs;
  const std::vector<TensorSpec> short_specs = with_length(bucket.inputs, length);
  const Bytes request =
      bytes_with(byte_size(short_specs).value(), *rc::gen::inRange<std::size_t>(0, 250));
  const Bytes full = padded(bucket, request, length);
  RC_ASSERT(full.size() == byte_size(with_length(bucket.inputs, bucket.length)).value());
  std::vector<Bytes> outputs;
  std::size_t at = 0;
  for (const TensorSpec& spec : with_length(bucket.inputs, bucket.length)) {
    outputs.push_back(full.slice(at, byte_size(spec).value()));
    at += outputs.back().size();
  }
  const auto answered = cut(bucket, outputs, length);
  RC_ASSERT(answered.ok());
  std::vector<std::byte> together;
  for (std::size_t i = 0; i < tensors; ++i) {
    RC_ASSERT(answered.value()[i].size() == byte_size(short_specs[i]).value());
    const std::vector<std::byte> part = copy_of(answered.value()[i]);
    together.insert(together.end(), part.begin(), part.end());
  }
  RC_ASSERT(together == copy_of(request));
}

}  // namespace
}  // namespace gpulet
