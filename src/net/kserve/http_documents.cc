#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/http_api.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

http::HttpResponse document(const Json& json) {
  return http::text_response(200, "application/json", json_line(json));
}

}  // namespace

http::HttpResponse server_metadata(const std::string& version, bool shared_memory) {
  return document(
      {{"name", kServerName}, {"version", version}, {"extensions", extensions(shared_memory)}});
}

http::HttpResponse log_settings(LogLevel level) {
  const LogSwitches switches = switches_of(level);
  return document({{"log_file", ""},
                   {"log_info", switches.info},
                   {"log_warning", switches.warning},
                   {"log_error", switches.error},
                   {"log_verbose_level", switches.verbose},
                   {"log_format", "default"}});
}

http::HttpResponse trace_settings(const TraceSampling& sampling) {
  Json json = Json::object();
  for (const Setting& setting : settings_of(sampling)) {
    if (setting.name == "trace_level") {
      json[setting.name] = setting.values;
    } else {
      json[setting.name] = setting.values.front();
    }
  }
  return document(json);
}

http::HttpResponse shared_memory_status(std::span<const RegionInfo> regions) {
  Json array = Json::array();
  for (const RegionInfo& region : regions) {
    array.push_back({{"name", region.name},
                     {"key", region.key},
                     {"offset", region.offset},
                     {"byte_size", region.bytes}});
  }
  return document(array);
}

// ---- errors

namespace {

unsigned http_status(StatusCode code) {
  switch (code) {
    case StatusCode::not_found:
      return 404;
    case StatusCode::unavailable:
    case StatusCode::overloaded:
    case StatusCode::too_late:
      return 503;
    case StatusCode::timeout:
      return 504;
    case StatusCode::cancelled:
      return 499;
    case StatusCode::internal:
      return 500;
    case StatusCode::unauthenticated:
      return 401;
    case StatusCode::forbidden:
      return 403;
    case StatusCode::limited:
      return 429;
    case StatusCode::ok:
    case StatusCode::invalid:
    case StatusCode::malformed:
      break;
  }
  return 400;
}

}  // namespace

http::HttpResponse error(unsigned status, const std::string& message) {
  return http::text_response(status, "application/json", json_error(message));
}

http::HttpResponse error(const Status& status) {
  // Clients treat an error without a message as a malformed response.
  return error(http_status(status.code()),
               status.message().empty() ? std::string(to_string(status.code())) : status.message());
}

http::HttpResponse ready(bool ready, const std::string& why_not) {
  if (ready) return http::text_response(200, "application/json", "");
  return why_not.empty() ? http::text_response(400, "application/json", "") : error(400, why_not);
}

// ---- models

namespace {

Json metadata_of(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& spec : tensors) {
    array.push_back({{"name", spec.name},
                     {"datatype", to_string(spec.type)},
                     {"shape", batch_shape(spec, -1)}});
  }
  return array;
}

const char* config_format(config::ImageFormat format) {
  if (format == config::ImageFormat::nchw) return "FORMAT_NCHW";
  return format == config::ImageFormat::nhwc ? "FORMAT_NHWC" : "FORMAT_NONE";
}

Json inputs_of(const Model& model) {
  Json array = Json::array();
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorSpec& spec = model.inputs[i];
    array.push_back({{"name", spec.name},
                     {"data_type", config_type(spec.type)},
                     {"format", config_format(input_format(model, i))},
                     {"dims", spec.shape},
                     {"is_shape_tensor", false},
                     {"allow_ragged_batch", false},
                     {"optional", is_optional(model, i)},
                     {"is_non_linear_format_io", false}});
  }
  return array;
}

Json outputs_of(const Model& model) {
  Json array = Json::array();
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    const TensorSpec& spec = model.outputs[i];
    array.push_back({{"name", spec.name},
                     {"data_type", config_type(spec.type)},
                     {"dims", spec.shape},
                     {"label_filename", label_filename(model, i)},
                     {"is_shape_tensor", false},
                     {"is_non_linear_format_io", false}});
  }
  return array;
}

Json optimization() {
  Json enabled = Json::object();
  enabled["enable"] = true;
  return {{"priority", "PRIORITY_DEFAULT"},
          {"input_pinned_memory", enabled},
          {"output_pinned_memory", enabled},
          {"gather_kernel_buffer_threshold", 0},
          {"eager_batching", false}};
}

Json policy_of(const QueuePolicy& policy) {
  const auto timeout =
      std::chrono::duration_cast<std::chrono::microseconds>(policy.default_timeout);
  return {{"timeout_action", policy.timeout_action == TimeoutAction::delay ? "DELAY" : "REJECT"},
          {"default_timeout_microseconds", timeout.count()},
          {"allow_timeout_override", policy.allow_timeout_override},
          {"max_queue_size", policy.max_queue_size}};
}

Json dynamic_batching(const Model& model) {
  const QueueRules rules = model.queue.value_or(QueueRules());
  Json batching{{"preferred_batch_size", Json::array()},
                {"max_queue_delay_microseconds", 0},
                {"preserve_ordering", false},
                {"priority_levels", rules.priority_levels},
                {"default_priority_level", rules.default_priority_level}};
  if (model.queue) batching["default_queue_policy"] = policy_of(rules.default_policy);
  Json levels = Json::object();
  for (const auto& [level, policy] : rules.level_policies)
    levels[std::to_string(level)] = policy_of(policy);
  batching["priority_queue_policy"] = std::move(levels);
  return batching;
}

Json ensemble_scheduling(const config::ApplicationConfig& graph) {
  Json steps = Json::array();
  for (const EnsembleStep& step : ensemble_steps(graph)) {
    steps.push_back({{"model_name", step.model},
                     {"model_version", -1},
                     {"input_map", step.input_map},
                     {"output_map", step.output_map},
                     {"model_namespace", ""}});
  }
  Json ensemble = Json::object();
  ensemble["step"] = std::move(steps);
  return ensemble;
}

Json instance_groups(const Model& model) {
  const Json instance{{"name", model.name},
                      {"kind", "KIND_AUTO"},
                      {"count", 1},
                      {"gpus", Json::array()},
                      {"secondary_devices", Json::array()},
                      {"profile", Json::array()},
                      {"passive", false},
                      {"host_policy", ""}};
  return Json::array({instance});
}

Json parameters_of(const Model& model) {
  Json parameters = Json::object();
  if (!model.application) return parameters;
  for (const auto& [name, text] : built_in_steps(model.application->graph))
    parameters[name]["string_value"] = text;
  return parameters;
}

// The configuration has every field of the reference server, in its order, including defaults,
// because clients read them without checking that they are present.
Json model_config_document(const Model& model) {
  const bool ensemble = model.application != nullptr;
  Json config{{"name", model.name},
              {"platform", platform_of(model)},
              {"backend", backend_of(model)},
              {"runtime", ""},
              {"version_policy", {{"latest", {{"num_versions", 1}}}}},
              {"max_batch_size", max_batch_size(model)},
              {"input", inputs_of(model)},
              {"output", outputs_of(model)},
              {"batch_input", Json::array()},
              {"batch_output", Json::array()},
              {"optimization", optimization()}};
  if (ensemble) {
    config["ensemble_scheduling"] = ensemble_scheduling(model.application->graph);
  } else {
    config["dynamic_batching"] = dynamic_batching(model);
  }
  config["instance_group"] = ensemble ? Json::array() : instance_groups(model);
  config["default_model_filename"] = model_filename(model);
  config["cc_model_filenames"] = Json::object();
  config["metric_tags"] = Json::object();
  config["parameters"] = parameters_of(model);
  config["model_warmup"] = Json::array();
  return config;
}

}  // namespace

http::HttpResponse model_metadata(const Model& model) {
  return document({{"name", model.name},
                   {"versions", Json::array({model.version})},
                   {"platform", platform_of(model)},
                   {"inputs", metadata_of(model.inputs)},
                   {"outputs", metadata_of(model.outputs)}});
}

http::HttpResponse model_config(const Model& model) {
  return document(model_config_document(model));
}

// ---- statistics

namespace {

Json duration_of(const DurationCount& duration) {
  return {{"count", duration.count}, {"ns", duration.ns}};
}

Json batches_of(const std::vector<BatchCount>& batches) {
  Json array = Json::array();
  for (const BatchCount& batch : batches) {
    array.push_back({{"batch_size", batch.batch_size},
                     {"compute_input", duration_of(batch.compute_input)},
                     {"compute_infer", duration_of(batch.compute_infer)},
                     {"compute_output", duration_of(batch.compute_output)}});
  }
  return array;
}

Json statistics_of(const ModelStatistics& model) {
  // There is no cache, but load tools fail without its counts.
  return {{"name", model.name},
          {"version", model.version},
          {"last_inference", model.last_inference_ms},
          {"inference_count", model.inference_count},
          {"execution_count", model.execution_count},
          {"inference_stats",
           {{"success", duration_of(model.success)},
            {"fail", duration_of(model.fail)},
            {"queue", duration_of(model.queue)},
            {"compute_input", duration_of(model.compute_input)},
            {"compute_infer", duration_of(model.compute_infer)},
            {"compute_output", duration_of(model.compute_output)},
            {"cache_hit", duration_of({})},
            {"cache_miss", duration_of({})}}},
          {"response_stats", Json::object()},
          {"batch_stats", batches_of(model.batches)},
          {"memory_usage", Json::array()}};
}

}  // namespace

http::HttpResponse statistics(std::span<const ModelStatistics> models) {
  Json array = Json::array();
  for (const ModelStatistics& model : models) array.push_back(statistics_of(model));
  return document({{"model_stats", array}});
}

// ---- repository and shared memory requests

namespace {

// Reads small administrative requests: passes each value in at most one nested object by its path,
// such as "parameters.config". Ignores objects and arrays elsewhere; refuses one in place of a
// value that is used, which refuses null, too.
class FlatReader : public JsonReader {
 public:
  using Take = std::function<Status(std::string_view place, const Scalar& value)>;
  explicit FlatReader(Take take) : take_(std::move(take)) {}

  bool scalar(const Scalar& value) override {
    if (depth() == 0) return refuse("the request's JSON must be an object; was " + shown(value));
    if (depth() > 2 || in_array_) return true;
    return accept(take_(depth() == 1 ? key_ : outer_ + '.' + key_, value));
  }
  bool key(std::string_view name) override {
    key_ = name;
    return true;
  }
  bool open(bool array) override {
    if (depth() == 0 && array) return refuse("the request's JSON must be an object; was an array");
    if (depth() == 1) {
      outer_ = key_;
      in_array_ = array;
    }
    if (depth() > 0 && depth() <= 2 && !(depth() == 2 && in_array_) && !may_open()) return false;
    return JsonReader::open(array);
  }
  bool close() override {
    if (depth() == 2) in_array_ = false;
    return JsonReader::close();
  }

 private:
  bool may_open() {
    const std::string place = depth() == 1 ? key_ : outer_ + '.' + key_;
    if (take_(place, Scalar()).ok()) return true;
    return refuse(in_quotes(place) + " must not be an object or a list here");
  }

  Take take_;
  std::string key_;
  std::string outer_;
  bool in_array_ = false;
};

Status read_flat(const Bytes& body, FlatReader::Take take) {
  FlatReader reader(std::move(take));
  return read_json(text_of(body.view()), reader);
}

Status wrong(std::string_view place, std::string_view expected, const Scalar& value) {
  return invalid(fmt::format("{} must be {}; was {}", in_quotes(place), expected, shown(value)));
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
  auto array = Json::array();
  for (const Model& model : models) {
    if (only_ready && !takes_requests(model.state)) continue;
    Json row{{"name", model.name}};
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

Status read_repository_unload(const Bytes& body) {
  if (body.empty()) return {};
  return read_flat(body, [](std::string_view place, const Scalar& value) -> Status {
    // Nothing depends on a model that would have to be unloaded with it.
    if (place != "parameters.unload_dependents" || std::holds_alternative<bool>(value)) return {};
    return wrong(place, "true or false", value);
  });
}

Result<RegionInfo> read_register(const std::string& region, const Bytes& body) {
  RegionInfo info{.name = region, .key = "", .offset = 0, .bytes = 0};
  Status read = read_flat(body, [&](std::string_view place, const Scalar& value) -> Status {
    if (place == "offset") return take_natural(info.offset, place, value);
    if (place == "byte_size") return take_natural(info.bytes, place, value);
    if (place != "key") return {};
    const auto* key = std::get_if<std::string_view>(&value);
    if (key == nullptr) return wrong(place, "the name of shared memory", value);
    info.key = *key;
    return {};
  });
  if (!read.ok()) return read.within("region " + in_quotes(region));
  if (info.key.empty() || info.bytes == 0) {
    return invalid(
        fmt::format("region {} needs 'key', the name of shared memory, and 'byte_size', at least 1",
                    in_quotes(region)));
  }
  return info;
}

// ---- configuration overrides

namespace {

constexpr const char* kMaxBatch = "max_batch_size";

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

// The member of that name, in camel or snake case; null: none.
const Json* member(const Json& object, const std::string& name) {
  for (const std::string& known : {name, snake_case(name)}) {
    const auto found = object.find(known);
    if (found != object.end()) return &*found;
  }
  return nullptr;
}

// The path of the first difference; empty if `given` has no other values than `present`.
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
      std::string other = difference(given[i], present[i], fmt::format("{}[{}]", place, i));
      if (!other.empty()) return other;
    }
    return {};
  }
  const bool in_quotes = given.is_string() && present.is_number_integer();
  if (in_quotes && given.get<std::string>() == present.dump()) return {};
  return given == present ? std::string() : place;
}

// `whole`: the model has no batch dimension, which 0 says.
Result<std::uint32_t> read_max_batch(const Json& value, bool whole) {
  const std::string digits = value.is_string() ? value.get<std::string>() : value.dump();
  const std::uint32_t number = parse_number<std::uint32_t>(digits).value_or(0);
  if (whole) {
    if (digits == "0") return 1;
    return invalid(fmt::format("{} must be 0, because the model has no batch dimension; was {}",
                               in_quotes(kMaxBatch), in_quotes(digits)));
  }
  if (number >= 1 && number <= config::kLargestBatch) return number;
  return invalid(fmt::format("{} must be an integer from 1 to {}; was {}", in_quotes(kMaxBatch),
                             config::kLargestBatch, in_quotes(digits)));
}

}  // namespace

Result<Configuration> read_configuration(const Model& model, std::string_view text) {
  JsonReader any;  // checks the depth
  if (Status read = read_json(text, any); !read.ok()) return read.within("parameter 'config'");
  const Json given = Json::parse(text, nullptr, false);
  if (!given.is_object())
    return invalid("parameter 'config' must be a JSON object: a model configuration");
  const Json present = model_config_document(model);
  Configuration configuration;
  for (const auto& [name, value] : given.items()) {
    if (snake_case(name) == kMaxBatch) {
      const Result<std::uint32_t> max_batch = read_max_batch(value, are_whole(model.inputs));
      if (!max_batch.ok()) return max_batch.status().within("parameter 'config'");
      if (configuration.max_batch) {
        return invalid(fmt::format("parameter 'config': {} is given in both forms of its name",
                                   in_quotes(kMaxBatch)));
      }
      configuration.max_batch = max_batch.value();
      continue;
    }
    Json one = Json::object();
    one[name] = value;
    const std::string other = difference(one, present, "");
    if (other.empty()) continue;
    return invalid(fmt::format(
        "parameter 'config': {} of model {} cannot be changed by a load, which accepts "
        "'max_batch_size' and all other fields with their present value; change the models file "
        "instead",
        in_quotes(other), in_quotes(model.name)));
  }
  return configuration;
}

}  // namespace gpulet::net::kserve
