// What a model is, as JSON: its metadata and its configuration. The configuration has every field
// that the reference server prints, in its order, defaults included: its clients read them without
// asking whether they are there.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "documents.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/net/kserve/ensemble.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

Json metadata_of(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& spec : tensors) {
    std::vector<std::int64_t> shape{-1};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    array.push_back({{"name", spec.name}, {"datatype", to_string(spec.type)}, {"shape", shape}});
  }
  return array;
}

std::string config_type(DataType type) { return "TYPE_" + std::string(to_string(type)); }

Json inputs_of(const Model& model) {
  Json array = Json::array();
  for (const TensorSpec& spec : model.inputs) {
    array.push_back({{"name", spec.name},
                     {"data_type", config_type(spec.type)},
                     {"format", "FORMAT_NONE"},
                     {"dims", spec.shape},
                     {"is_shape_tensor", false},
                     {"allow_ragged_batch", false},
                     {"optional", false},
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

}  // namespace

http::HttpResponse model_metadata(const Model& model) {
  return document({{"name", model.name},
                   {"versions", Json::array({model.version})},
                   {"platform", platform_of(model)},
                   {"inputs", metadata_of(model.inputs)},
                   {"outputs", metadata_of(model.outputs)}});
}

Json model_config_document(const Model& model) {
  const bool ensemble = model.application != nullptr;
  Json config{{"name", model.name},
              {"platform", platform_of(model)},
              {"backend", backend_of(model)},
              {"runtime", ""},
              {"version_policy", {{"latest", {{"num_versions", 1}}}}},
              {"max_batch_size", model.max_batch},
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

http::HttpResponse model_config(const Model& model) {
  return document(model_config_document(model));
}

}  // namespace gpulet::net::kserve
