#include "net/kserve/tensor_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "gpulet/base/text.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

std::string shown_number(const Number& number) {
  return std::visit([](auto value) { return shown(Scalar(value)); }, number);
}

// Each returns false if the number does not fit.
bool to_boolean(const Number& number, std::uint8_t& element) {
  element = std::visit([](auto value) { return value != decltype(value){}; }, number) ? 1 : 0;
  return true;
}

// The nearest element, as IEEE 754 rounds, so that the shortest text of the largest one is read.
template <typename Element>
bool to_real(double number, Element& element) {
  if constexpr (std::is_same_v<Element, float>) {
    constexpr double kFirstThatRoundsToInfinity = 0x1.ffffffp127;
    constexpr float kLargest = std::numeric_limits<float>::max();
    if (std::isfinite(number) && std::abs(number) > static_cast<double>(kLargest)) {
      element = number > 0 ? kLargest : -kLargest;
      return std::abs(number) < kFirstThatRoundsToInfinity;
    }
  }
  element = static_cast<Element>(number);
  return true;
}

template <typename Element>
bool to_element(const Number& number, Element& element) {
  if constexpr (std::is_floating_point_v<Element>) {
    if (const auto* natural = std::get_if<std::uint64_t>(&number)) {
      element = static_cast<Element>(*natural);
    } else if (const auto* integer = std::get_if<std::int64_t>(&number)) {
      element = static_cast<Element>(*integer);
    } else if (const auto* real = std::get_if<double>(&number)) {
      return to_real(*real, element);
    } else {
      return false;
    }
    return true;
  } else {
    if (const auto* natural = std::get_if<std::uint64_t>(&number)) {
      element = static_cast<Element>(*natural);
      return std::in_range<Element>(*natural);
    }
    if (const auto* real = std::get_if<double>(&number)) {
      element = 0;
      return *real == 0;  // every other integer in the form of a real number arrives as an integer
    }
    const auto* integer = std::get_if<std::int64_t>(&number);
    if (integer == nullptr) return false;
    element = static_cast<Element>(*integer);
    return std::in_range<Element>(*integer);
  }
}

template <typename Element>
Result<Bytes> converted(const std::string& input, DataType type, std::span<const Number> numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Element));
  std::byte* to = bytes.data();
  for (const Number& number : numbers) {
    Element element{};
    bool fits = false;
    if constexpr (std::is_same_v<Element, std::uint8_t>) {
      fits = type == DataType::boolean ? to_boolean(number, element) : to_element(number, element);
    } else {
      fits = to_element(number, element);
    }
    if (!fits) {
      return invalid(fmt::format("input {}: 'data' value {} does not fit {}", in_quotes(input),
                                 shown_number(number), to_string(type)));
    }
    std::memcpy(to, &element, sizeof element);
    to += sizeof element;
  }
  return Bytes::own(std::move(bytes));
}

}  // namespace

Status no_json_form(const TensorSpec& output) {
  return invalid(fmt::format("output {}: {} has no JSON form; request it with 'binary_data'",
                             in_quotes(output.name), to_string(output.type)));
}

Result<Bytes> bytes_of_numbers(const std::string& input, DataType type,
                               std::span<const Number> numbers) {
  if (!has_json_form(type)) {
    return invalid(fmt::format("input {}: {} has no JSON form; send it as binary data",
                               in_quotes(input), to_string(type)));
  }
  if (type == DataType::bytes) {
    return invalid(fmt::format("input {}: 'data' of BYTES must hold strings; holds {}",
                               in_quotes(input),
                               numbers.empty() ? "nothing" : shown_number(numbers.front())));
  }
  return visit_element_type(
      type, [&](auto element) { return converted<decltype(element)>(input, type, numbers); });
}

namespace {

Status append_strings(std::string& json, const TensorSpec& output,
                      std::span<const std::byte> bytes) {
  const auto elements = elements_in(bytes, element_count(output));
  if (!elements) return {StatusCode::internal, "output " + in_quotes(output.name) + " is cut off"};
  json += '[';
  for (const std::string_view element : *elements) {
    if (!is_utf8(element)) {
      return invalid(
          fmt::format("output {}: a string is not UTF-8, and JSON has no other; request "
                      "it with 'binary_data'",
                      in_quotes(output.name)));
    }
    if (json.back() != '[') json += ',';
    append_json_string(json, element);
  }
  json += ']';
  return {};
}

}  // namespace

Status append_values(std::string& json, const TensorSpec& output,
                     std::span<const std::byte> bytes) {
  if (!has_json_form(output.type)) return no_json_form(output);
  if (output.type == DataType::bytes) return append_strings(json, output, bytes);
  const auto append = [&](auto type_of_element) -> Status {
    using Element = decltype(type_of_element);
    json += '[';
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Element)) {
      Element element{};
      std::memcpy(&element, bytes.data() + at, sizeof element);
      if (at > 0) json += ',';
      if (output.type == DataType::boolean) {
        json += element != Element{} ? "true" : "false";
        continue;
      }
      if constexpr (std::is_floating_point_v<Element>) {
        if (!std::isfinite(element)) {
          json += non_finite_literal(element);
          continue;
        }
      }
      char text[32];
      const auto end = std::to_chars(std::begin(text), std::end(text), element);
      json.append(text, end.ptr);
    }
    json += ']';
    return {};
  };
  return visit_element_type(output.type, append);
}

// ---- classification

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

// bfloat16: the upper half of a float.
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
