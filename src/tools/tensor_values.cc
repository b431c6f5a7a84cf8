#include "tools/tensor_values.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace gpulet::tools {
namespace {

constexpr double kHalfInfinite = 65520;  // the least that rounds to infinity
constexpr int kHalfMantissaBits = 10;
constexpr int kHalfBias = 15;
constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kHalfNoNumber = 0x7E00;

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> kHalfMantissaBits) & 0x1F;
  const int mantissa = bits & 0x3FF;
  double magnitude = 0;
  if (exponent == 0x1F) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - kHalfBias - kHalfMantissaBits);
  } else {
    magnitude = std::ldexp(mantissa + 1024, exponent - kHalfBias - kHalfMantissaBits);
  }
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

std::uint16_t to_half(double value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
  const double magnitude = std::abs(value);
  std::uint32_t bits = 0;
  if (std::isnan(value)) {
    bits = kHalfNoNumber;
  } else if (magnitude >= kHalfInfinite) {
    bits = kHalfInfinity;
  } else if (magnitude < std::ldexp(1, 1 - kHalfBias)) {
    bits = static_cast<std::uint32_t>(
        std::nearbyint(std::ldexp(magnitude, kHalfBias - 1 + kHalfMantissaBits)));
  } else {
    const int exponent = std::ilogb(magnitude);
    // A mantissa that rounds up to 2 carries into the exponent by itself.
    const double mantissa =
        std::nearbyint(std::ldexp(magnitude, kHalfMantissaBits - exponent)) - 1024;
    bits = (static_cast<std::uint32_t>(exponent + kHalfBias) << kHalfMantissaBits) +
           static_cast<std::uint32_t>(mantissa);
  }
  return static_cast<std::uint16_t>(sign | bits);
}

double from_brain(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t to_brain(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

template <typename Number>
Number load(std::span<const std::byte> bytes, std::size_t index) {
  Number number{};
  std::memcpy(&number, bytes.subspan(index * sizeof(Number), sizeof(Number)).data(),
              sizeof(Number));
  return number;
}

template <typename Number>
void store(Number number, std::vector<std::byte>& bytes) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(Number));
  std::memcpy(bytes.data() + at, &number, sizeof(Number));
}

// 0.1F as the double 0.1, which prints as that.
double with_fewest_digits(float value) {
  if (!std::isfinite(value)) return value;
  std::string text(32, '\0');
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

Status misfit(DataType type, const std::string& value) {
  return {StatusCode::invalid,
          "expected a value of type " + std::string(to_string(type)) + "; was " + value};
}

template <typename Whole>
Status append_whole(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<Whole>::max()))
      return misfit(type, value.dump());
    store(static_cast<Whole>(number), bytes);
    return {};
  }
  if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (number < static_cast<std::int64_t>(std::numeric_limits<Whole>::min()))
      return misfit(type, value.dump());
    store(static_cast<Whole>(number), bytes);
    return {};
  }
  const double number = value.is_number_float() ? value.get<double>() : std::nan("");
  // Beyond 2^53 a double is no exact number.
  constexpr double kLargestExact = 9007199254740992;
  if (std::nearbyint(number) != number || std::abs(number) > kLargestExact)
    return misfit(type, value.dump());
  return append_whole<Whole>(type, nlohmann::json(static_cast<std::int64_t>(number)), bytes);
}

Status append_boolean(const nlohmann::json& value, std::vector<std::byte>& bytes) {
  if (value.is_boolean()) {
    store(static_cast<std::uint8_t>(value.get<bool>() ? 1 : 0), bytes);
    return {};
  }
  if (!value.is_number() || (value != 0 && value != 1))
    return misfit(DataType::boolean, value.dump());
  store(static_cast<std::uint8_t>(value == 1 ? 1 : 0), bytes);
  return {};
}

}  // namespace

double value_at(DataType type, std::span<const std::byte> bytes, std::size_t index) {
  switch (type) {
    case DataType::boolean:
      return load<std::uint8_t>(bytes, index) != 0 ? 1 : 0;
    case DataType::uint8:
      return load<std::uint8_t>(bytes, index);
    case DataType::int8:
      return load<std::int8_t>(bytes, index);
    case DataType::int16:
      return load<std::int16_t>(bytes, index);
    case DataType::int32:
      return load<std::int32_t>(bytes, index);
    case DataType::int64:
      return static_cast<double>(load<std::int64_t>(bytes, index));
    case DataType::fp16:
      return from_half(load<std::uint16_t>(bytes, index));
    case DataType::bf16:
      return with_fewest_digits(static_cast<float>(from_brain(load<std::uint16_t>(bytes, index))));
    case DataType::fp32:
      return with_fewest_digits(load<float>(bytes, index));
    case DataType::fp64:
      return load<double>(bytes, index);
  }
  return 0;
}

nlohmann::ordered_json values_json(DataType type, std::span<const std::byte> bytes) {
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  const std::size_t count = bytes.size() / byte_size(type);
  for (std::size_t i = 0; i < count; ++i) {
    if (type == DataType::boolean) {
      values.push_back(value_at(type, bytes, i) != 0);
    } else if (type == DataType::int64) {
      values.push_back(load<std::int64_t>(bytes, i));
    } else if (type >= DataType::fp16) {
      values.push_back(value_at(type, bytes, i));
    } else {
      values.push_back(static_cast<std::int64_t>(value_at(type, bytes, i)));
    }
  }
  return values;
}

Status append_value(DataType type, double value, std::vector<std::byte>& bytes) {
  switch (type) {
    case DataType::fp16:
      store(to_half(value), bytes);
      return {};
    case DataType::bf16:
      store(to_brain(value), bytes);
      return {};
    case DataType::fp32:
      store(static_cast<float>(value), bytes);
      return {};
    case DataType::fp64:
      store(value, bytes);
      return {};
    default:
      return append_value(type, nlohmann::json(value), bytes);
  }
}

Status append_value(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes) {
  switch (type) {
    case DataType::boolean:
      return append_boolean(value, bytes);
    case DataType::uint8:
      return append_whole<std::uint8_t>(type, value, bytes);
    case DataType::int8:
      return append_whole<std::int8_t>(type, value, bytes);
    case DataType::int16:
      return append_whole<std::int16_t>(type, value, bytes);
    case DataType::int32:
      return append_whole<std::int32_t>(type, value, bytes);
    case DataType::int64:
      return append_whole<std::int64_t>(type, value, bytes);
    default:
      if (!value.is_number()) return misfit(type, value.dump());
      return append_value(type, value.get<double>(), bytes);
  }
}

}  // namespace gpulet::tools
