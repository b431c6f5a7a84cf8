#include "gpulet/net/kserve/repository.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "documents.h"
#include "gpulet/net/kserve/http_api.h"
#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

// Reads small documents of administration: the values at most one object deep, by their place, such
// as "parameters.config". What lies deeper or in arrays is let pass.
class FlatReader : public JsonReader {
 public:
  using Take = std::function<Status(std::string_view place, const Scalar& value)>;
  explicit FlatReader(Take take) : take_(std::move(take)) {}

  bool scalar(const Scalar& value) override {
    if (depth_ == 0) return refuse("the request's JSON must be an object; was " + shown(value));
    if (depth_ > 2 || in_array_) return true;
    return accept(take_(depth_ == 1 ? key_ : outer_ + '.' + key_, value));
  }
  bool key(std::string_view name) override {
    key_ = name;
    return true;
  }
  bool open(bool array) override {
    if (depth_ == 0 && array) return refuse("the request's JSON must be an object; was an array");
    if (depth_ == 1) {
      outer_ = key_;
      in_array_ = array;
    }
    ++depth_;
    return true;
  }
  bool close() override {
    if (--depth_ == 1) in_array_ = false;
    return true;
  }

 private:
  Take take_;
  std::string key_;
  std::string outer_;
  std::size_t depth_ = 0;
  bool in_array_ = false;
};

Status read_flat(const Bytes& body, FlatReader::Take take) {
  FlatReader reader(std::move(take));
  return read_json(text_of(body.view()), reader);
}

Status wrong(std::string_view place, std::string_view wanted, const Scalar& value) {
  return invalid(in_quotes(place) + " must be " + std::string(wanted) + "; was " + shown(value));
}

Status take_natural(std::uint64_t& into, std::string_view place, const Scalar& value) {
  const auto* number = std::get_if<std::uint64_t>(&value);
  if (number == nullptr) return wrong(place, "an integer of at least 0", value);
  into = *number;
  return {};
}

}  // namespace

Result<bool> read_repository_index(const Bytes& body) {
  bool only_ready = false;
  if (body.empty()) return only_ready;
  Status read = read_flat(body, [&](std::string_view place, const Scalar& value) -> Status {
    if (place != "ready") return {};
    const auto* ready = std::get_if<bool>(&value);
    if (ready == nullptr) return wrong(place, "true or false", value);
    only_ready = *ready;
    return {};
  });
  if (!read.ok()) return read;
  return only_ready;
}

http::HttpResponse repository_index(std::span<const Model> models, bool only_ready) {
  auto array = nlohmann::ordered_json::array();
  for (const Model& model : models) {
    if (only_ready && !takes_requests(model.state)) continue;
    nlohmann::ordered_json row{{"name", model.name}};
    if (!model.version.empty()) row["version"] = model.version;
    row["state"] = repository_state(model.state);
    row["reason"] = model.reason;
    array.push_back(std::move(row));
  }
  return document(array);
}

Result<std::string> read_repository_load(const Bytes& body) {
  std::string config;
  if (body.empty()) return config;
  Status read = read_flat(body, [&](std::string_view place, const Scalar& value) -> Status {
    constexpr std::string_view kParameters = "parameters.";
    if (!place.starts_with(kParameters)) return {};
    if (Status known = check_load_parameter(place.substr(kParameters.size())); !known.ok())
      return known;
    const auto* text = std::get_if<std::string_view>(&value);
    if (text == nullptr)
      return wrong(place, "a string that holds a model configuration or a models file", value);
    config = *text;
    return {};
  });
  if (!read.ok()) return read;
  return config;
}

Result<RegionToRegister> read_register(const std::string& region, const Bytes& body) {
  RegionToRegister wanted{.name = region, .key = "", .offset = 0, .bytes = 0};
  Status read = read_flat(body, [&](std::string_view place, const Scalar& value) -> Status {
    if (place == "offset") return take_natural(wanted.offset, place, value);
    if (place == "byte_size") return take_natural(wanted.bytes, place, value);
    if (place != "key") return {};
    const auto* key = std::get_if<std::string_view>(&value);
    if (key == nullptr) return wrong(place, "the name of shared memory", value);
    wanted.key = *key;
    return {};
  });
  if (!read.ok()) return read.within("region " + in_quotes(region));
  if (wanted.key.empty() || wanted.bytes == 0) {
    return invalid("region " + in_quotes(region) +
                   " needs 'key', the name of shared memory, and 'byte_size', at least 1");
  }
  return wanted;
}

}  // namespace gpulet::net::kserve
