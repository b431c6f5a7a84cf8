#include "gpulet/net/kserve/configuration.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "documents.h"
#include "gpulet/config/model_config.h"
#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMaxBatch = "max_batch_size";

// Lets everything pass: what is left is that the text is JSON, and not too deep.
class Bounds final : public JsonReader {
 public:
  bool scalar(const Scalar& /*value*/) override { return true; }
  bool key(std::string_view /*name*/) override { return true; }
  bool open(bool /*array*/) override { return true; }
  bool close() override { return true; }
};

// "maxBatchSize" is "max_batch_size".
std::string snake_case(const std::string& name) {
  std::string result;
  for (const char letter : name) {
    if (letter >= 'A' && letter <= 'Z') {
      result += '_';
      result += static_cast<char>(letter - 'A' + 'a');
    } else {
      result += letter;
    }
  }
  return result;
}

bool is_default(const Json& value) {
  if (value.is_structured()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const Json& one) { return value.is_object() && is_default(one); });
  }
  return value.is_null() || value == Json(false) || value == Json(0) || value == Json("");
}

// The member of that name, in either case; null: there is none.
const Json* member(const Json& object, const std::string& name) {
  for (const std::string& known : {name, snake_case(name)}) {
    const auto found = object.find(known);
    if (found != object.end()) return &*found;
  }
  return nullptr;
}

// Where the two differ; empty: `given` says nothing else than `present`.
std::string difference(const Json& given, const Json& present, const std::string& place) {
  if (given.is_null()) return {};
  if (given.is_object() && present.is_object()) {
    for (const auto& [name, value] : given.items()) {
      const std::string inside = place.empty() ? name : place + '.' + name;
      const Json* const known = member(present, name);
      std::string other;
      if (known != nullptr) {
        other = difference(value, *known, inside);
      } else if (!is_default(value)) {
        other = inside;
      }
      if (!other.empty()) return other;
    }
    return {};
  }
  if (given.is_array() && present.is_array() && given.size() == present.size()) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      std::string other = difference(given[i], present[i], place + '[' + std::to_string(i) + ']');
      if (!other.empty()) return other;
    }
    return {};
  }
  const bool in_quotes = given.is_string() && present.is_number_integer();
  if (in_quotes && given.get<std::string>() == present.dump()) return {};
  return given == present ? std::string() : place;
}

Result<std::uint32_t> read_max_batch(const Json& value) {
  const std::string digits = value.is_string() ? value.get<std::string>() : value.dump();
  std::uint32_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
  if (whole && number >= 1 && number <= config::kLargestBatch) return number;
  return invalid(in_quotes(kMaxBatch) + " must be an integer from 1 to " +
                 std::to_string(config::kLargestBatch) + "; was " + in_quotes(digits));
}

}  // namespace

Result<Configuration> read_configuration(const Model& model, std::string_view text) {
  Bounds bounds;
  if (Status read = read_json(text, bounds); !read.ok()) return read.within("parameter 'config'");
  const Json given = Json::parse(text, nullptr, false);
  if (!given.is_object())
    return invalid("parameter 'config' must be a JSON object: a model configuration");
  const Json present = model_config_document(model);
  Configuration configuration;
  for (const auto& [name, value] : given.items()) {
    if (snake_case(name) == kMaxBatch) {
      const Result<std::uint32_t> max_batch = read_max_batch(value);
      if (!max_batch.ok()) return max_batch.status().within("parameter 'config'");
      configuration.max_batch = max_batch.value();
      continue;
    }
    Json one = Json::object();
    one[name] = value;
    const std::string other = difference(one, present, "");
    if (other.empty()) continue;
    return invalid("parameter 'config': " + in_quotes(other) + " of model " +
                   in_quotes(model.name) +
                   " cannot be changed here. A load accepts 'max_batch_size', and every other "
                   "field with the value that the model's configuration shows; change the models "
                   "file instead");
  }
  return configuration;
}

}  // namespace gpulet::net::kserve
