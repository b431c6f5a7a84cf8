#include "tools/cli/infer_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"

namespace gpulet::tools {
namespace {

constexpr double kHalfInfinite = 65520;  // the least value that rounds to infinity
constexpr int kHalfMantissaBits = 10;
constexpr int kHalfBias = 15;
constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kHalfNan = 0x7E00;

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
    bits = kHalfNan;
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

// Returns the double 0.1, which prints as 0.1, for the float 0.1.
double with_fewest_digits(float value) {
  if (!std::isfinite(value)) return value;
  std::string text(32, '\0');
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

Status does_not_fit(DataType type, const std::string& value) {
  return {StatusCode::invalid,
          fmt::format("expected a value of type {}; was {}", to_string(type), value)};
}

template <typename Whole>
Status append_whole(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes) {
  const auto append = [&](auto number) {
    if (!std::in_range<Whole>(number)) return does_not_fit(type, value.dump());
    store(static_cast<Whole>(number), bytes);
    return Status();
  };
  if (value.is_number_unsigned()) return append(value.get<std::uint64_t>());
  if (value.is_number_integer()) return append(value.get<std::int64_t>());
  const double number = value.is_number_float() ? value.get<double>() : std::nan("");
  // Above 2^53 a double does not identify one integer.
  constexpr double kLargestExact = 9007199254740992;
  if (std::nearbyint(number) != number || std::abs(number) > kLargestExact)
    return does_not_fit(type, value.dump());
  return append(static_cast<std::int64_t>(number));
}

Status append_boolean(const nlohmann::json& value, std::vector<std::byte>& bytes) {
  const bool set = value == true || value == 1;
  if (!set && value != false && value != 0) return does_not_fit(DataType::boolean, value.dump());
  store(static_cast<std::uint8_t>(set ? 1 : 0), bytes);
  return {};
}

using nlohmann::json;

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

// The values of one input and their place in the document.
struct InputValues {
  const json* values = nullptr;
  std::string place;
};

Status append_all(const json& values, const TensorSpec& spec, const std::string& place,
                  std::vector<std::byte>& bytes, std::size_t end) {
  if (!values.is_array()) {
    if (bytes.size() == end)
      return invalid(fmt::format("{}: holds more values than {} takes", place, to_string(spec)));
    return append_value(spec.type, values, bytes).within(place);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Status added = append_all(values[i], spec, fmt::format("{}/{}", place, i), bytes, end);
    if (!added.ok()) return added;
  }
  return {};
}

std::size_t count_of(const json& values) {
  if (!values.is_array()) return 1;
  std::size_t count = 0;
  for (const json& one : values) count += count_of(one);
  return count;
}

// The size of its dynamic dimension that a tensor with `count` elements has, rounded down.
std::int64_t length_with(std::size_t count, const TensorSpec& spec) {
  std::size_t others = 1;
  for (const std::int64_t size : spec.shape) {
    if (size != kAnyLength) others *= static_cast<std::size_t>(size);
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(count / others));
}

// The sizes of dynamic dimensions with which the inputs have that many bytes together.
void set_lengths(std::size_t bytes, std::vector<TensorSpec>& inputs) {
  const Result<std::size_t> one = byte_size(with_length(inputs, 1));
  const Result<std::size_t> two = byte_size(with_length(inputs, 2));
  if (!is_dynamic(inputs) || !one.ok() || !two.ok()) return;
  const std::size_t each = two.value() - one.value();
  const std::size_t more = bytes > one.value() ? (bytes - one.value()) / each : 0;
  inputs = with_length(std::move(inputs), static_cast<std::int64_t>(1 + more));
}

Status collect_strings(const json& values, const std::string& place,
                       std::vector<std::string>& strings) {
  if (values.is_string()) {
    strings.push_back(values.get<std::string>());
    return {};
  }
  if (!values.is_array())
    return invalid(fmt::format("{}: expected a string; was {}", place, values.dump()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Status added = collect_strings(values[i], fmt::format("{}/{}", place, i), strings);
    if (!added.ok()) return added;
  }
  return {};
}

// Without the zeros of a slot.
Status append_strings(const InputValues& given, const TensorSpec& spec,
                      std::vector<std::byte>& bytes) {
  std::vector<std::string> strings;
  if (Status all = collect_strings(*given.values, given.place, strings); !all.ok()) return all;
  if (strings.size() != element_count(spec)) {
    return invalid(fmt::format("{}: {} takes {} strings; holds {}", given.place, to_string(spec),
                               element_count(spec), strings.size()));
  }
  std::string elements;
  for (const std::string& each : strings) append_element(elements, each);
  const auto raw = std::as_bytes(std::span(elements));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  return {};
}

Status append_input(const InputValues& given, const TensorSpec& spec,
                    std::vector<std::byte>& bytes) {
  GPULET_TRY(const std::size_t expected, byte_size(spec));
  if (!given.values->is_array())
    return invalid(fmt::format("{}: must be a list of values for {} {}", given.place, spec.name,
                               to_string(spec)));
  if (spec.type == DataType::bytes) return append_strings(given, spec, bytes);
  const std::size_t begin = bytes.size();
  const std::size_t end = begin + expected;
  if (Status all = append_all(*given.values, spec, given.place, bytes, end); !all.ok()) return all;
  if (bytes.size() == end) return {};
  const std::size_t each = byte_size(spec.type);
  return invalid(fmt::format("{}: {} takes {} values; holds {}", given.place, to_string(spec),
                             expected / each, (bytes.size() - begin) / each));
}

Status check_shape(const json& shape, const TensorSpec& spec, const std::string& place) {
  std::vector<std::int64_t> given;
  for (const json& dimension : shape) {
    if (!dimension.is_number_integer()) return invalid(place + ": must be a list of whole numbers");
    given.push_back(dimension.get<std::int64_t>());
  }
  const bool has_count = given.size() == spec.shape.size() + 1 && given.front() == 1;
  if (has_count) given.erase(given.begin());
  const bool fits = std::equal(given.begin(), given.end(), spec.shape.begin(), spec.shape.end(),
                               [](std::int64_t one, std::int64_t expected) {
                                 return one == expected || expected == kAnyLength;
                               });
  if (fits) return {};
  return invalid(
      fmt::format("{}: the model takes {}; was {}", place, to_string(spec), shape.dump()));
}

// Checks the optional datatype and shape of an entry of the protocol.
Status check_entry(const json& entry, const TensorSpec& spec, const std::string& place) {
  if (const auto type = entry.find("datatype");
      type != entry.end() && *type != to_string(spec.type))
    return invalid(fmt::format("{}/datatype: the model takes {}; was {}", place, to_string(spec),
                               type->dump()));
  const auto shape = entry.find("shape");
  return shape == entry.end() ? Status() : check_shape(*shape, spec, place + "/shape");
}

std::string input_names(const std::vector<TensorSpec>& inputs) {
  std::vector<std::string> names;
  for (const TensorSpec& input : inputs) names.push_back(input.name);
  return joined(names);
}

Status unknown_input(const std::string& place, const std::string& name,
                     const std::vector<TensorSpec>& inputs) {
  return invalid(fmt::format(R"({}: the model has no input "{}"; it has {})", place, name,
                             input_names(inputs)));
}

std::size_t index_of(const std::string& name, const std::vector<TensorSpec>& inputs) {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&name](const TensorSpec& input) { return input.name == name; });
  return static_cast<std::size_t>(found - inputs.begin());
}

// Reads the entries of the protocol's form.
Status take_entries(const json& entries, const std::vector<TensorSpec>& inputs,
                    std::vector<InputValues>& given) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const json& entry = entries[i];
    const std::string place = fmt::format("/inputs/{}", i);
    if (!entry.is_object() || !entry.contains("data"))
      return invalid(place + ": must be an object with \"data\"");
    std::size_t index = 0;
    if (const auto name = entry.find("name"); name != entry.end() && name->is_string()) {
      index = index_of(name->get<std::string>(), inputs);
      if (index == inputs.size()) return unknown_input(place, name->get<std::string>(), inputs);
    } else if (inputs.size() > 1) {
      return invalid(place + ": must have a \"name\", one of " + input_names(inputs));
    }
    if (Status fits = check_entry(entry, inputs[index], place); !fits.ok()) return fits;
    given[index] = {&entry["data"], place + "/data"};
  }
  return {};
}

Status take_members(const json& object, const std::vector<TensorSpec>& inputs,
                    std::vector<InputValues>& given) {
  for (const auto& [name, values] : object.items()) {
    const std::size_t index = index_of(name, inputs);
    if (index == inputs.size()) return unknown_input("/", name, inputs);
    given[index] = {&values, '/' + name};
  }
  return {};
}

Result<std::vector<InputValues>> find_values(const json& document,
                                             const std::vector<TensorSpec>& inputs) {
  std::vector<InputValues> given(inputs.size());
  Status taken;
  const bool named_inputs = index_of("inputs", inputs) != inputs.size();
  if (document.is_array() && inputs.size() == 1) {
    given[0] = {&document, "the list"};
  } else if (document.is_object() && document.contains("inputs") && !named_inputs &&
             document["inputs"].is_array()) {
    taken = take_entries(document["inputs"], inputs, given);
  } else if (document.is_object()) {
    taken = take_members(document, inputs, given);
  } else {
    taken = invalid("/: must be an object with the values of " + input_names(inputs));
  }
  if (!taken.ok()) return taken;
  return given;
}

nlohmann::ordered_json strings_json(std::span<const std::byte> bytes) {
  nlohmann::ordered_json strings = nlohmann::ordered_json::array();
  while (const auto one = elements_in(bytes, 1)) {
    strings.push_back(std::string(one->front()));
    bytes = bytes.subspan(*elements_end(bytes, 1));
  }
  return strings;
}

// A file that is the only string of a request.
bool is_one_string(const std::vector<TensorSpec>& inputs) {
  return inputs.size() == 1 && inputs[0].type == DataType::bytes && element_count(inputs[0]) == 1;
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
    case DataType::bytes:
      break;
  }
  return 0;
}

nlohmann::ordered_json values_json(DataType type, std::span<const std::byte> bytes) {
  if (type == DataType::bytes) return strings_json(bytes);
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
      if (!value.is_number()) return does_not_fit(type, value.dump());
      return append_value(type, value.get<double>(), bytes);
  }
}

Result<Bytes> parse_infer_input(std::string_view text, std::vector<TensorSpec>& inputs) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    return invalid(std::string("is not JSON: ") + error.what());
  }
  GPULET_TRY(const std::vector<InputValues> given, find_values(document, inputs));
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputValues& one = given[i];
    if (one.values == nullptr)
      return invalid(
          fmt::format("has no values for the input {} {}", inputs[i].name, to_string(inputs[i])));
    if (is_dynamic(inputs[i]))
      inputs[i] = with_length({inputs[i]}, length_with(count_of(*one.values), inputs[i])).front();
    if (const Status added = append_input(one, inputs[i], bytes); !added.ok()) return added;
  }
  return Bytes::own(std::move(bytes));
}

Result<Bytes> read_infer_input(const std::filesystem::path& file, std::vector<TensorSpec>& inputs) {
  GPULET_TRY(std::vector<std::byte> bytes, read_file(file));
  if (file.extension() == ".json") {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    Result<Bytes> parsed = parse_infer_input(text, inputs);
    if (!parsed.ok()) return parsed.status().within(file.string());
    return parsed;
  }
  set_lengths(bytes.size(), inputs);
  GPULET_TRY(const std::size_t expected, byte_size(inputs));
  if (is_one_string(inputs)) {
    std::string element;
    append_element(element, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const auto raw = std::as_bytes(std::span(element));
    return Bytes::own({raw.begin(), raw.end()});
  }
  if (has_bytes_tensor(inputs)) {
    return invalid(
        file.string() +
        ": a model with strings takes a file that ends in .json, or one string as it is");
  }
  if (bytes.size() != expected) {
    return invalid(fmt::format(
        "{}: must hold the model's inputs, {} bytes; holds {} (a JSON file must end in .json)",
        file.string(), expected, bytes.size()));
  }
  return Bytes::own(std::move(bytes));
}

}  // namespace gpulet::tools
