#include "config/input_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "config/description.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kMostDefaultElements = 4096;  // of an input

// Of the integers that a range may have; empty: the type has fractions. Those of 64 bits are exact
// up to here.
std::optional<ValueRange> integer_limits(DataType type) {
  constexpr double kExact = 9007199254740992.0;
  switch (type) {
    case DataType::boolean:
      return ValueRange{0, 1};
    case DataType::uint8:
      return ValueRange{0, 255};
    case DataType::int8:
      return ValueRange{-128, 127};
    case DataType::int16:
      return ValueRange{-32768, 32767};
    case DataType::int32:
      return ValueRange{-2147483648.0, 2147483647.0};
    case DataType::int64:
      return ValueRange{-kExact, kExact};
    default:
      return std::nullopt;
  }
}

void read_ranges(const std::vector<JsonCursor>& elements, ModelConfig& model) {
  for (std::size_t i = 0; i < std::min(elements.size(), model.inputs.size()); ++i) {
    const auto range = elements[i].find("range");
    if (!range) continue;
    const auto bounds = range->elements("the least and the greatest value: [0,29999]", 2, 2);
    if (!range->valid()) continue;
    const ValueRange read{bounds[0].number(NumberRange{}), bounds[1].number(NumberRange{})};
    if (!range->valid()) continue;
    if (const Status fits = check_range(model.inputs[i].type, read); fits.ok()) {
      model.inputs[i].range = read;
    } else {
      range->fail(fits.message(), "write the least and the greatest value of the input");
    }
  }
}

// The bytes of the tensor with these numbers, or with one in all places.
std::optional<std::vector<std::byte>> bytes_of(const TensorSpec& input,
                                               const std::vector<double>& numbers) {
  const std::size_t elements = element_count(input);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto element = element_of(input, numbers[numbers.size() == 1 ? 0 : i]);
    if (!element) return std::nullopt;
    bytes.insert(bytes.end(), element->begin(), element->end());
  }
  return bytes;
}

void read_default(const JsonCursor& cursor, const TensorSpec& input, ModelConfig& model) {
  if (describes(cursor, "a number for all elements, or a list with one for each: [1,0]")) return;
  if (input.type == DataType::bytes || is_dynamic(input)) {
    return cursor.fail("an input of strings or with a dimension of any size is never left out",
                       "take the default out");
  }
  const std::size_t elements = element_count(input);
  if (elements > kMostDefaultElements) {
    return cursor.fail(fmt::format("the input has more than {} elements", kMostDefaultElements),
                       "take the default out: requests have to give such an input");
  }
  std::vector<double> numbers;
  if (cursor.type() != JsonCursor::Type::array) {
    numbers.push_back(cursor.number(NumberRange{}));
  } else {
    for (const JsonCursor& one : cursor.elements(
             "a number for all elements, or a list with one for each: [1,0]", elements, elements))
      numbers.push_back(one.number(NumberRange{}));
  }
  if (!cursor.valid()) return;
  if (auto bytes = bytes_of(input, numbers)) {
    model.defaults.emplace(input.name, std::move(*bytes));
  } else {
    cursor.fail(fmt::format("{} cannot hold this", to_string(input.type)),
                "write numbers of that type; FP16 and BF16 take 0");
  }
}

}  // namespace

Status check_range(DataType type, const ValueRange& range) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::invalid, fmt::format("the range [{},{}] of {}: {}", range.least,
                                                   range.most, to_string(type), why));
  };
  if (type == DataType::bytes) return refuse("strings have none");
  if (!(range.least <= range.most)) return refuse("the first number is the least");
  const auto limits = integer_limits(type);
  if (!limits) return {};
  if (std::trunc(range.least) != range.least || std::trunc(range.most) != range.most)
    return refuse("the numbers of this type are whole");
  if (range.least < limits->least || range.most > limits->most)
    return refuse(fmt::format("the type has {} to {}", limits->least, limits->most));
  return {};
}

void read_input_values(const std::vector<JsonCursor>& inputs, ModelConfig& model) {
  read_ranges(inputs, model);
  for (std::size_t i = 0; i < std::min(inputs.size(), model.inputs.size()); ++i) {
    const auto value = inputs[i].find("default");
    if (value && value->valid()) read_default(*value, model.inputs[i], model);
  }
}

}  // namespace gpulet::config
