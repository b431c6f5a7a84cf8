#include "executor/input_converter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace gpulet::executor {
namespace {

constexpr std::size_t kByteValues = 256;  // that there are

// The bits of the nearest number of half precision, the even one of two. REQUIRES: it is finite.
std::uint16_t to_half(double number) {
  constexpr int kFractionBits = 10;
  constexpr int kLeastExponent = -14;
  const std::uint32_t sign = std::signbit(number) ? 0x8000U : 0;
  int exponent = kLeastExponent;
  if (number != 0) exponent = std::max(std::ilogb(number), kLeastExponent);
  // The bit above the fraction adds one to the exponent.
  const auto units = static_cast<std::uint32_t>(
      std::nearbyint(std::ldexp(std::fabs(number), kFractionBits - exponent)));
  const auto biased = static_cast<std::uint32_t>(exponent - kLeastExponent);
  return static_cast<std::uint16_t>(sign | ((biased << kFractionBits) + units));
}

std::uint32_t bits_of(DataType type, double number) {
  if (type == DataType::fp16) return to_half(number);
  return std::bit_cast<std::uint32_t>(static_cast<float>(number));
}

}  // namespace

InputConverter::InputConverter(const TensorSpec& spec) : type_(spec.conversion->type) {
  const InputConversion& conversion = *spec.conversion;
  const std::vector<ChannelConversion> numbers = channels_of(conversion);
  const bool reorders = conversion.from_channels_last != conversion.to_channels_last;
  if (numbers.size() > 1 || reorders) {
    channels_ = static_cast<std::size_t>(conversion.from_channels_last ? spec.shape.back()
                                                                       : spec.shape.front());
  }
  pixels_ = element_count(spec) / channels_;
  from_ = order(conversion.from_channels_last);
  to_ = order(conversion.to_channels_last);
  numbers_.reserve(channels_ * kByteValues);
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    const ChannelConversion& one = numbers[numbers.size() == 1 ? 0 : channel];
    for (std::size_t byte = 0; byte < kByteValues; ++byte)
      numbers_.push_back(bits_of(type_, one.factor * static_cast<double>(byte) + one.offset));
  }
}

std::size_t InputConverter::model_bytes() const { return channels_ * pixels_ * byte_size(type_); }

InputConverter::Order InputConverter::order(bool channels_last) const {
  if (channels_last) return {.pixel = channels_, .channel = 1};
  return {.pixel = 1, .channel = pixels_};
}

template <typename Number>
void InputConverter::convert_as(std::span<const std::byte> from, std::span<std::byte> to) const {
  const std::size_t row = channels_ * pixels_;
  for (std::size_t begin = 0; begin < from.size(); begin += row) {
    for (std::size_t channel = 0; channel < channels_; ++channel) {
      const std::uint32_t* const numbers = numbers_.data() + channel * kByteValues;
      const std::byte* const source = from.data() + begin + channel * from_.channel;
      std::byte* const target = to.data() + (begin + channel * to_.channel) * sizeof(Number);
      for (std::size_t pixel = 0; pixel < pixels_; ++pixel) {
        const auto byte = std::to_integer<std::size_t>(source[pixel * from_.pixel]);
        const auto number = static_cast<Number>(numbers[byte]);
        std::memcpy(target + pixel * to_.pixel * sizeof(Number), &number, sizeof(Number));
      }
    }
  }
}

void InputConverter::convert(std::span<const std::byte> from, std::span<std::byte> to) const {
  if (type_ == DataType::fp16) return convert_as<std::uint16_t>(from, to);
  convert_as<std::uint32_t>(from, to);
}

Result<std::vector<std::optional<InputConverter>>> converters_of(
    const std::vector<TensorSpec>& inputs) {
  std::vector<std::optional<InputConverter>> converters;
  for (const TensorSpec& spec : inputs) {
    converters.emplace_back();
    if (!spec.conversion) continue;
    if (Status valid = check_conversion(spec); !valid.ok()) return valid;
    converters.back().emplace(spec);
  }
  return converters;
}

}  // namespace gpulet::executor
