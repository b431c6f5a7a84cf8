#include "tools/infer_input.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "tools/tensor_values.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

// The values of one input and where they stand.
struct Given {
  const json* values = nullptr;
  std::string place;
};

Status append_all(const json& values, const TensorSpec& spec, const std::string& place,
                  std::vector<std::byte>& bytes, std::size_t end) {
  if (!values.is_array()) {
    if (bytes.size() == end)
      return invalid(place + ": holds more values than " + to_string(spec) + " takes");
    return append_value(spec.type, values, bytes).within(place);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Status added = append_all(values[i], spec, place + '/' + std::to_string(i), bytes, end);
    if (!added.ok()) return added;
  }
  return {};
}

Status append_input(const Given& given, const TensorSpec& spec, std::vector<std::byte>& bytes) {
  const Result<std::size_t> wanted = byte_size(spec);
  if (!wanted.ok()) return wanted.status();
  if (!given.values->is_array())
    return invalid(given.place + ": must be a list of values of " + spec.name + ' ' +
                   to_string(spec));
  const std::size_t begin = bytes.size();
  const std::size_t end = begin + wanted.value();
  if (Status all = append_all(*given.values, spec, given.place, bytes, end); !all.ok()) return all;
  if (bytes.size() == end) return {};
  const std::size_t each = byte_size(spec.type);
  return invalid(given.place + ": " + to_string(spec) + " takes " +
                 std::to_string(wanted.value() / each) + " values; holds " +
                 std::to_string((bytes.size() - begin) / each));
}

Status check_shape(const json& shape, const TensorSpec& spec, const std::string& place) {
  std::vector<std::int64_t> given;
  for (const json& dimension : shape) {
    if (!dimension.is_number_integer()) return invalid(place + ": must be a list of whole numbers");
    given.push_back(dimension.get<std::int64_t>());
  }
  const bool counted = given.size() == spec.shape.size() + 1 && given.front() == 1;
  if (counted) given.erase(given.begin());
  if (given == spec.shape) return {};
  return invalid(place + ": the model takes " + to_string(spec) + "; was " + shape.dump());
}

// What a protocol's entry says of its tensor has to agree with the model.
Status check_entry(const json& entry, const TensorSpec& spec, const std::string& place) {
  if (const auto type = entry.find("datatype");
      type != entry.end() && *type != to_string(spec.type))
    return invalid(place + "/datatype: the model takes " + to_string(spec) + "; was " +
                   type->dump());
  const auto shape = entry.find("shape");
  return shape == entry.end() ? Status() : check_shape(*shape, spec, place + "/shape");
}

std::string names_of(const std::vector<TensorSpec>& inputs) {
  std::string names;
  for (const TensorSpec& input : inputs) names += (names.empty() ? "" : ", ") + input.name;
  return names;
}

Status unknown(const std::string& place, const std::string& name,
               const std::vector<TensorSpec>& inputs) {
  return invalid(place + ": the model has no input \"" + name + "\"; it has " + names_of(inputs));
}

std::size_t index_of(const std::string& name, const std::vector<TensorSpec>& inputs) {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&name](const TensorSpec& input) { return input.name == name; });
  return static_cast<std::size_t>(found - inputs.begin());
}

// The protocol's form: which input each entry is, and its data.
Status take_entries(const json& entries, const std::vector<TensorSpec>& inputs,
                    std::vector<Given>& given) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const json& entry = entries[i];
    const std::string place = "/inputs/" + std::to_string(i);
    if (!entry.is_object() || !entry.contains("data"))
      return invalid(place + ": must be an object with \"data\"");
    std::size_t index = 0;
    if (const auto name = entry.find("name"); name != entry.end() && name->is_string()) {
      index = index_of(name->get<std::string>(), inputs);
      if (index == inputs.size()) return unknown(place, name->get<std::string>(), inputs);
    } else if (inputs.size() > 1) {
      return invalid(place + ": must have a \"name\", one of " + names_of(inputs));
    }
    if (Status fits = check_entry(entry, inputs[index], place); !fits.ok()) return fits;
    given[index] = {&entry["data"], place + "/data"};
  }
  return {};
}

Status take_members(const json& object, const std::vector<TensorSpec>& inputs,
                    std::vector<Given>& given) {
  for (const auto& [name, values] : object.items()) {
    const std::size_t index = index_of(name, inputs);
    if (index == inputs.size()) return unknown("/", name, inputs);
    given[index] = {&values, '/' + name};
  }
  return {};
}

Result<std::vector<Given>> find_values(const json& document,
                                       const std::vector<TensorSpec>& inputs) {
  std::vector<Given> given(inputs.size());
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
    taken = invalid("/: must be an object with the values of " + names_of(inputs));
  }
  if (!taken.ok()) return taken;
  return given;
}

}  // namespace

Result<Bytes> parse_infer_input(std::string_view text, const std::vector<TensorSpec>& inputs) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    return invalid(std::string("is not JSON: ") + error.what());
  }
  const Result<std::vector<Given>> given = find_values(document, inputs);
  if (!given.ok()) return given.status();
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Given& one = given.value()[i];
    if (one.values == nullptr)
      return invalid("has no values for the input " + inputs[i].name + ' ' + to_string(inputs[i]));
    if (const Status added = append_input(one, inputs[i], bytes); !added.ok()) return added;
  }
  return Bytes::own(std::move(bytes));
}

Result<std::vector<std::byte>> read_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return Status(StatusCode::not_found, file.string() + ": is not a file; check the path");
  std::vector<std::byte> bytes(std::filesystem::file_size(file, error));
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (error || !stream) return invalid(file.string() + ": cannot be read; check its permissions");
  return bytes;
}

Result<Bytes> read_infer_input(const std::filesystem::path& file,
                               const std::vector<TensorSpec>& inputs) {
  Result<std::vector<std::byte>> bytes = read_file(file);
  if (!bytes.ok()) return bytes.status();
  if (file.extension() == ".json") {
    const std::string_view text(reinterpret_cast<const char*>(bytes.value().data()),
                                bytes.value().size());
    Result<Bytes> parsed = parse_infer_input(text, inputs);
    if (!parsed.ok()) return parsed.status().within(file.string());
    return parsed;
  }
  const Result<std::size_t> wanted = byte_size(inputs);
  if (!wanted.ok()) return wanted.status();
  if (bytes.value().size() != wanted.value()) {
    return invalid(file.string() + ": must hold the model's inputs, " +
                   std::to_string(wanted.value()) + " bytes; holds " +
                   std::to_string(bytes.value().size()) + " (a JSON file must end in .json)");
  }
  return Bytes::own(std::move(bytes).value());
}

}  // namespace gpulet::tools
