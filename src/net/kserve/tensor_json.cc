#include "tensor_json.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "elements.h"
#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

std::string shown_number(const Number& number) {
  return std::visit([](auto value) { return shown(Scalar(value)); }, number);
}

// Each converts what fits, and says whether it did.
bool to_boolean(const Number& number, std::uint8_t& element) {
  element = std::visit([](auto value) { return value != decltype(value){}; }, number) ? 1 : 0;
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
      if (std::abs(*real) > static_cast<double>(std::numeric_limits<Element>::max()) &&
          std::isfinite(*real))
        return false;
      element = static_cast<Element>(*real);
    } else {
      return false;
    }
    return true;
  } else {
    if (const auto* natural = std::get_if<std::uint64_t>(&number)) {
      element = static_cast<Element>(*natural);
      return std::in_range<Element>(*natural);
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
      return invalid("input " + in_quotes(input) + ": 'data' holds " + shown_number(number) +
                     ", which is no " + std::string(to_string(type)));
    }
    std::memcpy(to, &element, sizeof element);
    to += sizeof element;
  }
  return Bytes::own(std::move(bytes));
}

}  // namespace

Result<Bytes> bytes_of_numbers(const std::string& input, DataType type,
                               std::span<const Number> numbers) {
  if (!has_json_form(type)) {
    return invalid("input " + in_quotes(input) + ": " + std::string(to_string(type)) +
                   " has no form in JSON; send it as binary data");
  }
  return visit_element_type(
      type, [&](auto element) { return converted<decltype(element)>(input, type, numbers); });
}

Status append_numbers(std::string& json, const TensorSpec& output,
                      std::span<const std::byte> bytes) {
  if (!has_json_form(output.type)) {
    return invalid("output " + in_quotes(output.name) + ": " + std::string(to_string(output.type)) +
                   " has no form in JSON; ask for it with 'binary_data'");
  }
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

}  // namespace gpulet::net::kserve
