#include "gpulet/serve/values/application.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace gpulet::serve::application_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

template <typename Number>
Tensor tensor(DataType type, std::vector<std::int64_t> shape, const std::vector<Number>& numbers) {
  // At an odd address, as after another tensor of a payload.
  std::vector<std::byte> bytes(1 + numbers.size() * sizeof(Number));
  std::memcpy(bytes.data() + 1, numbers.data(), bytes.size() - 1);
  const std::size_t size = bytes.size() - 1;
  return {{"t", type, std::move(shape)}, Bytes::own(std::move(bytes)).slice(1, size)};
}
Tensor floats(std::vector<std::int64_t> shape, const std::vector<float>& numbers) {
  return tensor(DataType::fp32, std::move(shape), numbers);
}

template <typename Number>
std::vector<Number> numbers_of(const Tensor& tensor) {
  std::vector<Number> numbers(tensor.bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), tensor.bytes.view().data(), tensor.bytes.size());
  return numbers;
}

std::vector<Tensor> ran(const config::Step& step, const std::vector<Tensor>& inputs) {
  return run_step(step, inputs).value();
}

// The values of torch 1.13, torch.nn.functional.interpolate(x, size, mode="bilinear",
// align_corners=False) with x = (i * 7) % 11 as [2,3,5].
TEST(ApplicationSteps, ResizeMatchesPyTorch) {
  std::vector<float> pixels;
  for (int i = 0; i < 30; ++i) pixels.push_back(static_cast<float>(i * 7 % 11));
  const std::vector<float> smaller = {1.375F, 6.0F,   6.15625F, 6.65625F, 3.34375F, 3.84375F,
                                      4.0F,   8.625F, 6.0F,     4.09375F, 5.96875F, 2.0F,
                                      9.0F,   4.0F,   5.875F,   5.0F};
  const std::vector<float> larger = {
      0.0F,      4.0F, 5.857142F, 3.0F,      8.000001F, 8.285714F, 6.0F, 0.8F,      4.8F,
      6.657143F, 3.8F, 5.657143F, 6.571429F, 6.8F,      2.0F,      6.0F, 7.857142F, 5.0F,
      2.142857F, 4.0F, 8.0F,      3.2F,      3.428571F, 4.342857F, 6.2F, 3.342857F, 5.200001F,
      9.200001F, 4.0F, 1.714286F, 2.0F,      7.0F,      4.142857F, 6.0F, 10.0F};
  const Tensor image = floats({2, 3, 5}, pixels);
  const std::vector<Tensor> small = ran(config::ResizeStep{2, 4}, {image});
  EXPECT_EQ(small[0].spec, (TensorSpec{"image", DataType::fp32, {2, 2, 4}}));
  EXPECT_THAT(numbers_of<float>(small[0]), Pointwise(FloatNear(1e-5F), smaller));
  std::vector<float> large = numbers_of<float>(ran(config::ResizeStep{5, 7}, {image})[0]);
  ASSERT_EQ(large.size(), 70U);
  large.resize(35);  // the first channel
  EXPECT_THAT(large, Pointwise(FloatNear(1e-5F), larger));
}

TEST(ApplicationSteps, ResizeToTheSameSizeDoesNotCopy) {
  const Tensor image = floats({1, 2, 2}, {1, 2, 3, 4});
  const std::vector<Tensor> same = ran(config::ResizeStep{2, 2}, {image});
  EXPECT_EQ(same[0].bytes.view().data(), image.bytes.view().data());
}

TEST(ApplicationSteps, CropTakesEveryPixelThatTheBoxTouchesAndAtLeastOne) {
  std::vector<std::uint8_t> pixels;
  for (std::uint8_t i = 0; i < 32; ++i) pixels.push_back(i);
  const Tensor image = tensor(DataType::uint8, {2, 4, 4}, pixels);
  const auto crop = [&image](float top, float left, float bottom, float right) {
    return ran(config::CropStep{}, {image, floats({4}, {top, left, bottom, right})})[0];
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(numbers_of<std::uint8_t>(crop(0.25F, 0.5F, 0.75F, 0.9F)),
              ElementsAre(6, 7, 10, 11, 22, 23, 26, 27));
  EXPECT_EQ(crop(0.25F, 0.5F, 0.75F, 0.9F).spec.shape, (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_THAT(crop(-3, -1, 9, 5).bytes.size(), 32U);
  EXPECT_THAT(numbers_of<std::uint8_t>(crop(2, 2, 3, 3)), ElementsAre(15, 31));
  EXPECT_THAT(numbers_of<std::uint8_t>(crop(0.8F, 0.3F, 0.1F, 0.2F)), ElementsAre(13, 29));
  EXPECT_THAT(numbers_of<std::uint8_t>(crop(nan, nan, nan, nan)), ElementsAre(0, 16));
  const float far = std::numeric_limits<float>::infinity();
  EXPECT_THAT(crop(-far, -far, far, far).bytes.size(), 32U);
}

TEST(ApplicationSteps, SelectTakesTheRowsWithTheHighestScoresOfTheClasses) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor rows = floats({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  const Tensor scores = floats({4, 3}, {9, 1, 2,    //
                                        0, 5, nan,  //
                                        0, 3, 6,    //
                                        nan, nan, nan});
  const std::vector<Tensor> two = ran(config::SelectStep{2, {1, 2}}, {rows, scores});
  EXPECT_THAT(numbers_of<float>(two[0]), ElementsAre(20, 21, 10, 11));
  EXPECT_THAT(numbers_of<float>(two[1]), ElementsAre(6, 5));
  EXPECT_THAT(numbers_of<std::int64_t>(two[2]), ElementsAre(2, 1));
  EXPECT_EQ(two[0].spec, (TensorSpec{"rows", DataType::fp32, {2, 2}}));
  const std::vector<Tensor> all = ran(config::SelectStep{4, {}}, {rows, scores});
  EXPECT_THAT(numbers_of<std::int64_t>(all[2]), ElementsAre(0, 2, 1, 0));
  const std::vector<Tensor> equal =
      ran(config::SelectStep{2, {}}, {rows, floats({4}, {1, 7, 7, 7})});
  EXPECT_THAT(numbers_of<float>(equal[0]), ElementsAre(10, 11, 20, 21));
}

TEST(ApplicationSteps, ArgMaxJoinsTheRowsOfItsInputs) {
  const std::vector<Tensor> index =
      ran(config::ArgMaxStep{}, {floats({3}, {1, 5, 5}), floats({2, 2}, {4, 3, -2, -1})});
  EXPECT_EQ(index[0].spec, (TensorSpec{"index", DataType::int64, {3}}));
  EXPECT_THAT(numbers_of<std::int64_t>(index[0]), ElementsAre(1, 0, 1));
}

TEST(ApplicationSteps, AnItemIsASliceOfTheSameMemory) {
  const Tensor rows = floats({3, 2}, {0, 1, 2, 3, 4, 5});
  const Tensor last = item(rows, 2);
  EXPECT_EQ(last.spec.shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(last.bytes.view().data(), rows.bytes.view().data() + 16);
  EXPECT_THAT(numbers_of<float>(last), ElementsAre(4, 5));
}

}  // namespace
}  // namespace gpulet::serve::application_test
