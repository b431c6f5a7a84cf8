#include "gpulet/image/image.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/files.h"

namespace gpulet::image {
namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(GPULET_SOURCE_DIR) / "tests/image/data";

std::vector<std::byte> content_of(const std::string& name) {
  return read_file(kData / name).value();
}

// What Pillow decodes (make_data.py): NAME.WIDTHxHEIGHT.rgb.
RgbImage expected(const std::string& name) {
  RgbImage image;
  const std::string begin = fs::path(name).stem().string() + ".";
  for (const auto& entry : fs::directory_iterator(kData)) {
    const std::string file = entry.path().filename().string();
    unsigned width = 0;
    unsigned height = 0;
    if (!file.starts_with(begin) ||
        std::sscanf(file.c_str() + begin.size(), "%ux%u.rgb", &width, &height) != 2)
      continue;
    image.width = width;
    image.height = height;
    for (const std::byte value : content_of(file))
      image.pixels.push_back(std::to_integer<std::uint8_t>(value));
  }
  return image;
}

int largest_difference(std::span<const std::uint8_t> one, std::span<const std::uint8_t> other) {
  if (one.size() != other.size()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    largest = std::max(largest, std::abs(one[i] - other[i]));
  return largest;
}

class Decoded : public testing::TestWithParam<const char*> {};

TEST_P(Decoded, HasThePixelsOfPillow) {
  const RgbImage wanted = expected(GetParam());
  ASSERT_GT(wanted.width, 0U);
  const auto image = decode(content_of(GetParam()));
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(image.value().width, wanted.width);
  EXPECT_EQ(image.value().height, wanted.height);
  EXPECT_LE(largest_difference(image.value().pixels, wanted.pixels), 1);
}

INSTANTIATE_TEST_SUITE_P(Jpeg, Decoded,
                         testing::Values("baseline.jpg", "fine.jpg", "progressive.jpg", "gray.jpg",
                                         "cmyk.jpg", "ycck.jpg", "turned2.jpg", "turned3.jpg",
                                         "turned4.jpg", "turned5.jpg", "turned6.jpg", "turned7.jpg",
                                         "turned8.jpg"));
INSTANTIATE_TEST_SUITE_P(Png, Decoded,
                         testing::Values("colour.png", "gray8.png", "bits.png", "palette.png",
                                         "transparent_palette.png", "alpha.png", "interlaced.png",
                                         "colour16.png", "gray16.png", "wide.png"));

TEST(Image, HasAHeaderBeforeItIsDecoded) {
  EXPECT_EQ(read_header(content_of("progressive.jpg")).value(), (Header{Kind::jpeg, 45, 31}));
  EXPECT_EQ(read_header(content_of("turned6.jpg")).value(), (Header{Kind::jpeg, 45, 31}));
  EXPECT_EQ(read_header(content_of("wide.png")).value(), (Header{Kind::png, 130, 97}));
  EXPECT_EQ(read_header(content_of("huge.png")).value(), (Header{Kind::png, 50000, 50000}));
}

class Refused : public testing::TestWithParam<const char*> {};

TEST_P(Refused, IsInvalid) {
  const auto image = decode(content_of(GetParam()));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.status().code(), StatusCode::invalid);
}

INSTANTIATE_TEST_SUITE_P(Files, Refused,
                         testing::Values("truncated.jpg", "truncated.png", "flipped.png",
                                         "huge.jpg", "huge.png", "wide.cover24.rgb"));

TEST(Image, IsRefusedWithoutBytes) {
  EXPECT_EQ(decode({}).status().code(), StatusCode::invalid);
  EXPECT_EQ(read_header({}).status().code(), StatusCode::invalid);
}

// The part of the file that has pixels ends with the marker, not with the last byte.
TEST(Image, IsRefusedWhereverAJpegEndsWithinItsPixels) {
  const std::vector<std::byte> whole = content_of("baseline.jpg");
  for (std::size_t bytes = 0; bytes + 40 < whole.size(); ++bytes)
    EXPECT_FALSE(decode(std::span(whole).first(bytes)).ok()) << bytes;
}

TEST(Image, IsRefusedWhereverAPngEndsWithinItsPixels) {
  const std::vector<std::byte> whole = content_of("interlaced.png");
  for (std::size_t bytes = 0; bytes + 40 < whole.size(); bytes += 7)
    EXPECT_FALSE(decode(std::span(whole).first(bytes)).ok()) << bytes;
}

TEST(Image, HasALimitOfPixels) {
  const auto sample = sample_jpeg(1, 1U << 20U).value();
  const auto bytes = std::as_bytes(std::span(sample));
  EXPECT_TRUE(decode(bytes, 1).ok());
  std::vector<std::byte> large = content_of("wide.png");
  large[17] = std::byte{0x10};  // 1,048,706 pixels wide
  EXPECT_EQ(decode(large, 1).status().code(), StatusCode::invalid);
}

RC_GTEST_PROP(Image, WithDamageIsDecodedOrInvalid, ()) {
  const auto name =
      *rc::gen::element<std::string>("baseline.jpg", "progressive.jpg", "cmyk.jpg", "turned6.jpg",
                                     "palette.png", "interlaced.png", "colour16.png");
  std::vector<std::byte> bytes = content_of(name);
  for (const auto at : *rc::gen::container<std::vector<std::size_t>>(
           rc::gen::inRange<std::size_t>(2, bytes.size())))
    bytes[at] = static_cast<std::byte>(*rc::gen::inRange(0, 256));
  const auto image = decode(bytes, 1);
  RC_ASSERT(image.ok() || image.status().code() == StatusCode::invalid);
  if (!image.ok()) return;
  RC_ASSERT(image.value().pixels.size() ==
            std::size_t{image.value().width} * image.value().height * kChannels);
}

// ---- tensors

Preprocessing pixels(std::uint32_t side, std::uint32_t shorter_side = 0) {
  Preprocessing preprocessing;
  preprocessing.width = preprocessing.height = side;
  preprocessing.layout = Layout::nhwc;
  preprocessing.type = DataType::uint8;
  preprocessing.shorter_side = shorter_side;
  return preprocessing;
}

std::vector<std::uint8_t> tensor_of(const RgbImage& image, const Preprocessing& preprocessing) {
  std::vector<std::uint8_t> tensor(std::size_t{preprocessing.width} * preprocessing.height *
                                   kChannels);
  to_tensor(image, preprocessing, std::as_writable_bytes(std::span(tensor)));
  return tensor;
}

std::vector<std::uint8_t> pillows(const std::string& name) {
  std::vector<std::uint8_t> bytes;
  for (const std::byte value : content_of(name))
    bytes.push_back(std::to_integer<std::uint8_t>(value));
  return bytes;
}

TEST(Tensor, IsResizedAndCroppedAsPillowDoes) {
  const RgbImage wide = decode(content_of("wide.png")).value();
  EXPECT_EQ(tensor_of(wide, pixels(24)), pillows("wide.cover24.rgb"));
  EXPECT_EQ(tensor_of(wide, pixels(24, 32)), pillows("wide.crop24of32.rgb"));
  const RgbImage small = decode(content_of("colour.png")).value();
  EXPECT_EQ(tensor_of(small, pixels(64)), pillows("colour.larger64.rgb"));
}

TEST(Tensor, OfAnImageOfItsSizeHasItsPixels) {
  RgbImage image{3, 3, {}};
  for (int i = 0; i < 27; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i * 9));
  EXPECT_EQ(tensor_of(image, pixels(3)), image.pixels);
}

TEST(Tensor, HasMeanAndScaleOfItsChannels) {
  const RgbImage image{2, 1, {10, 20, 30, 40, 50, 60}};
  Preprocessing preprocessing;
  preprocessing.width = 2;
  preprocessing.height = 1;
  preprocessing.mean = {10, 20, 30};
  preprocessing.scale = {1, 2, 0.5F};
  std::vector<float> tensor(6);
  to_tensor(image, preprocessing, std::as_writable_bytes(std::span(tensor)));
  EXPECT_EQ(tensor, (std::vector<float>{0, 30, 0, 60, 0, 15}));  // planes
  preprocessing.layout = Layout::nhwc;
  to_tensor(image, preprocessing, std::as_writable_bytes(std::span(tensor)));
  EXPECT_EQ(tensor, (std::vector<float>{0, 0, 0, 30, 60, 15}));  // pixels
}

TEST(Tensor, OfAnyImageIsWithinItsPixels) {
  for (const auto& [width, height] :
       {std::pair{1U, 1U}, std::pair{1U, 9000U}, std::pair{9000U, 1U}, std::pair{7U, 300U}}) {
    RgbImage image{width, height, {}};
    image.pixels.assign(std::size_t{width} * height * kChannels, 77);
    for (const Preprocessing& preprocessing : {pixels(5), pixels(5, 9)}) {
      const auto tensor = tensor_of(image, preprocessing);
      EXPECT_EQ(tensor, std::vector<std::uint8_t>(tensor.size(), 77)) << width << ' ' << height;
    }
  }
}

TEST(Tensor, OfABadImageIsNotMade) {
  std::vector<std::byte> tensor(std::size_t{4} * 4 * kChannels);
  EXPECT_TRUE(decode_to_tensor(content_of("cmyk.jpg"), pixels(4), tensor).ok());
  EXPECT_EQ(decode_to_tensor(content_of("truncated.jpg"), pixels(4), tensor).code(),
            StatusCode::invalid);
}

TEST(Sample, IsAPhotoOfItsSize) {
  const std::string sample = sample_jpeg(1, 1U << 20U).value();
  const auto bytes = std::as_bytes(std::span(sample));
  EXPECT_EQ(read_header(bytes).value(), (Header{Kind::jpeg, 500, 375}));
  EXPECT_GT(sample.size(), 30'000U);
  EXPECT_LT(sample.size(), 120'000U);
  EXPECT_EQ(sample, sample_jpeg(1, 1U << 20U).value());
  EXPECT_NE(sample, sample_jpeg(2, 1U << 20U).value());
  EXPECT_LE(sample_jpeg(1, 20'000).value().size(), 20'000U);
}

}  // namespace
}  // namespace gpulet::image
