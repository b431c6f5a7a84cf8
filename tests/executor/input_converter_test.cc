#include "executor/input_converter.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace gpulet::executor::input_converter_test {
namespace {

constexpr std::size_t kHeight = 5;
constexpr std::size_t kWidth = 7;
constexpr std::size_t kChannels = 3;
constexpr std::size_t kNumbers = kHeight * kWidth * kChannels;

TensorSpec image(bool from_last, bool to_last, DataType type) {
  const std::int64_t height = kHeight;
  const std::int64_t width = kWidth;
  TensorSpec spec{"image", DataType::uint8, {kChannels, height, width}};
  if (from_last) spec.shape = {height, width, kChannels};
  spec.conversion = InputConversion{.type = type,
                                    .from_channels_last = from_last,
                                    .to_channels_last = to_last,
                                    .mean = {0.485, 0.456, 0.406},
                                    .deviation = {0.229, 0.224, 0.225}};
  return spec;
}

// Every byte occurs, and no row is like another.
std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte{static_cast<std::uint8_t>(37 * i)};
  return bytes;
}

std::size_t place(bool channels_last, std::size_t y, std::size_t x, std::size_t channel) {
  return channels_last ? (y * kWidth + x) * kChannels + channel
                       : (channel * kHeight + y) * kWidth + x;
}

double expected(const InputConversion& conversion, std::byte byte, std::size_t channel) {
  return (std::to_integer<int>(byte) / 255.0 - conversion.mean[channel]) /
         conversion.deviation[channel];
}

double from_half(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = (bits >> 10U) & 0x1fU;
  const int fraction = bits & 0x3ffU;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double number_at(DataType type, const std::vector<std::byte>& bytes, std::size_t index) {
  if (type == DataType::fp16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + index * sizeof bits, sizeof bits);
    return from_half(bits);
  }
  float number = 0;
  std::memcpy(&number, bytes.data() + index * sizeof number, sizeof number);
  return number;
}

std::vector<std::byte> converted(const TensorSpec& spec, const std::vector<std::byte>& from,
                                 std::size_t requests) {
  const InputConverter converter(spec);
  EXPECT_EQ(converter.model_bytes(), byte_size(model_input(spec)).value());
  std::vector<std::byte> to(requests * converter.model_bytes());
  converter.convert(from, to);
  return to;
}

TEST(InputConverter, ConvertsEveryOrderAndTypeAsTheFormulaSays) {
  constexpr std::size_t kRequests = 4;
  const std::vector<std::byte> from = some_bytes(kRequests * kNumbers);
  for (const bool from_last : {false, true}) {
    for (const bool to_last : {false, true}) {
      for (const DataType type : {DataType::fp32, DataType::fp16}) {
        const TensorSpec spec = image(from_last, to_last, type);
        const std::vector<std::byte> to = converted(spec, from, kRequests);
        const double unit = type == DataType::fp16 ? 0x1p-11 : 0x1p-24;  // half of the last place
        for (std::size_t request = 0; request < kRequests; ++request) {
          for (std::size_t i = 0; i < kNumbers; ++i) {
            const std::size_t channel = i % kChannels;
            const std::size_t y = i / kChannels / kWidth;
            const std::size_t x = i / kChannels % kWidth;
            const std::size_t begin = request * kNumbers;
            const double number =
                expected(*spec.conversion, from[begin + place(from_last, y, x, channel)], channel);
            ASSERT_NEAR(number_at(type, to, begin + place(to_last, y, x, channel)), number,
                        std::fabs(number) * unit * 1.001 + 1e-12)
                << from_last << to_last << to_string(spec) << i;
          }
        }
      }
    }
  }
}

TEST(InputConverter, ABatchHasTheNumbersOfItsRequestsAlone) {
  const TensorSpec spec = image(true, false, DataType::fp32);
  const std::vector<std::byte> batch = some_bytes(3 * kNumbers);
  const std::vector<std::byte> all = converted(spec, batch, 3);
  for (std::size_t request = 0; request < 3; ++request) {
    const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(request * kNumbers);
    const std::vector<std::byte> alone(begin, begin + kNumbers);
    const std::vector<std::byte> one = converted(spec, alone, 1);
    EXPECT_EQ(std::memcmp(one.data(), all.data() + request * one.size(), one.size()), 0);
  }
}

TEST(InputConverter, ATensorWithoutChannelsHasOneFormula) {
  TensorSpec spec{"x", DataType::uint8, {2, 3}};
  spec.conversion = InputConversion{.scale = 1, .mean = {100}, .deviation = {50}};
  const std::vector<std::byte> from = {std::byte{0},   std::byte{50},  std::byte{100},
                                       std::byte{150}, std::byte{200}, std::byte{255}};
  const std::vector<std::byte> to = converted(spec, from, 1);
  const std::vector<double> numbers = {-2, -1, 0, 1, 2, 3.1};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(number_at(DataType::fp32, to, i)),
                    static_cast<float>(numbers[i]));
}

TEST(InputConverter, HalfPrecisionIsRoundedToTheNearestNumber) {
  TensorSpec spec{"x", DataType::uint8, {256}};
  std::vector<std::byte> from;
  for (int byte = 0; byte < 256; ++byte) from.push_back(std::byte{static_cast<std::uint8_t>(byte)});
  // To subnormal numbers, to the largest ones and between two of them.
  for (const double scale : {1.0 / 255, 0x1p-24, 3 * 0x1p-26, 65504.0 / 255, 8.03125}) {
    spec.conversion = InputConversion{.type = DataType::fp16, .scale = scale};
    const std::vector<std::byte> to = converted(spec, from, 1);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const double exact = scale * static_cast<double>(i);
      std::uint16_t bits = 0;
      std::memcpy(&bits, to.data() + i * sizeof bits, sizeof bits);
      const double error = std::fabs(from_half(bits) - exact);
      for (const int neighbour : {-1, 1}) {
        if ((neighbour < 0 && bits == 0) || bits == 0x7bff) continue;
        const double other =
            std::fabs(from_half(static_cast<std::uint16_t>(bits + neighbour)) - exact);
        ASSERT_LE(error, other) << scale << ' ' << i;
        if (error == other) {
          ASSERT_EQ(bits % 2, 0) << scale << ' ' << i;
        }
      }
    }
  }
}

TEST(InputConverter, MakesOneForEachInputThatNeedsIt) {
  const auto made = converters_of({{"x", DataType::uint8, {3}}, image(true, true, DataType::fp32)});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_FALSE(made.value()[0].has_value());
  EXPECT_TRUE(made.value()[1].has_value());
  TensorSpec wrong = image(true, true, DataType::fp32);
  wrong.conversion->deviation = {0};
  EXPECT_EQ(converters_of({wrong}).status().code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::executor::input_converter_test
