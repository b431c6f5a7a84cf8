#include "classification.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "elements.h"

namespace gpulet::net::kserve {
namespace {

template <typename Value>
bool higher(Value one, Value other) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (std::isnan(one) || std::isnan(other)) return !std::isnan(one) && std::isnan(other);
  }
  return one > other;
}

template <typename Value>
std::string label_of(Value value, std::size_t index, std::span<const std::string> names) {
  char text[64];
  const auto end = std::to_chars(std::begin(text), std::end(text), value);
  std::string label = std::string(text, end.ptr) + ':' + std::to_string(index);
  if (index < names.size()) label += ':' + names[index];
  return label;
}

template <typename Value>
void append_highest(std::vector<std::string>& labels, const std::vector<Value>& values,
                    std::size_t most, std::span<const std::string> names) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t count = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&values](std::size_t one, std::size_t other) {
                      if (higher(values[one], values[other])) return true;
                      return !higher(values[other], values[one]) && one < other;
                    });
  for (std::size_t i = 0; i < count; ++i)
    labels.push_back(label_of(values[order[i]], order[i], names));
}

// IEEE 754 half precision.
float from_half(std::uint16_t bits) {
  const bool negative = (bits & 0x8000U) != 0;
  const auto exponent = static_cast<int>((bits >> 10U) & 0x1fU);
  const auto fraction = static_cast<int>(bits & 0x3ffU);
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return negative ? -value : value;
}

// The upper half of a float.
float from_brain(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace

void append_highest(std::vector<std::string>& labels, DataType type, std::span<const std::byte> row,
                    std::size_t most, std::span<const std::string> names) {
  if (type == DataType::fp16 || type == DataType::bf16) {
    const auto widen = type == DataType::fp16 ? from_half : from_brain;
    std::vector<float> values;
    for (const std::uint16_t bits : elements_of<std::uint16_t>(row)) values.push_back(widen(bits));
    return append_highest(labels, values, most, names);
  }
  visit_element_type(type, [&](auto element) {
    append_highest(labels, elements_of<decltype(element)>(row), most, names);
  });
}

}  // namespace gpulet::net::kserve
