#include "gpulet/core/tensor.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpulet {
namespace {

TEST(TensorTest, SizeIsThatOfOneRequest) {
  EXPECT_EQ(byte_size(TensorSpec{"image", DataType::fp32, {3, 224, 224}}).value(), 602112U);
  EXPECT_EQ(byte_size(TensorSpec{"scalar", DataType::int64, {}}).value(), 8U);
}

TEST(TensorTest, ImpossibleShapesAreRefused) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(byte_size(TensorSpec{"x", DataType::fp32, {0}}).status().code(), StatusCode::invalid);
  EXPECT_EQ(byte_size(TensorSpec{"x", DataType::fp32, {-1, 4}}).status().code(),
            StatusCode::invalid);
  EXPECT_EQ(byte_size(TensorSpec{"x", DataType::fp32, {huge, huge}}).status().code(),
            StatusCode::invalid);
  const std::vector<TensorSpec> together{{"x", DataType::uint8, {huge}},
                                         {"y", DataType::uint8, {huge}},
                                         {"z", DataType::uint8, {huge}}};
  EXPECT_EQ(byte_size(together).status().code(), StatusCode::invalid);
}

TEST(TensorTest, TypeNamesGoThereAndBack) {
  for (const char* name : {"BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16",
                           "FP32", "FP64", "BYTES"}) {
    const auto type = parse_data_type(name);
    ASSERT_TRUE(type.has_value()) << name;
    EXPECT_EQ(to_string(*type), name);
  }
  EXPECT_FALSE(parse_data_type("float").has_value());
}

}  // namespace
}  // namespace gpulet
