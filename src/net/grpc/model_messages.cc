#include "model_messages.h"

#include <chrono>
#include <optional>
#include <string>

#include "gpulet/core/queue_rules.h"
#include "gpulet/net/kserve/ensemble.h"
#include "gpulet/net/kserve/names.h"

namespace gpulet::net::grpc_api {
namespace {

inference::DataType config_type(DataType type) {
  switch (type) {
    case DataType::boolean:
      return inference::TYPE_BOOL;
    case DataType::uint8:
      return inference::TYPE_UINT8;
    case DataType::int8:
      return inference::TYPE_INT8;
    case DataType::int16:
      return inference::TYPE_INT16;
    case DataType::int32:
      return inference::TYPE_INT32;
    case DataType::int64:
      return inference::TYPE_INT64;
    case DataType::fp16:
      return inference::TYPE_FP16;
    case DataType::bf16:
      return inference::TYPE_BF16;
    case DataType::fp32:
      return inference::TYPE_FP32;
    case DataType::fp64:
      return inference::TYPE_FP64;
  }
  return inference::TYPE_INVALID;
}

void write_tensor(const TensorSpec& spec,
                  inference::ModelMetadataResponse::TensorMetadata& tensor) {
  tensor.set_name(spec.name);
  tensor.set_datatype(std::string(to_string(spec.type)));
  tensor.add_shape(-1);
  for (const std::int64_t size : spec.shape) tensor.add_shape(size);
}

template <typename ConfigTensor>
void write_tensor(const TensorSpec& spec, ConfigTensor& tensor) {
  tensor.set_name(spec.name);
  tensor.set_data_type(config_type(spec.type));
  tensor.mutable_dims()->Assign(spec.shape.begin(), spec.shape.end());
}

void write_ensemble(const config::ApplicationConfig& graph, inference::ModelConfig& config) {
  inference::ModelEnsembling& ensemble = *config.mutable_ensemble_scheduling();
  for (const kserve::EnsembleStep& from : kserve::ensemble_steps(graph)) {
    inference::ModelEnsembling::Step& to = *ensemble.add_step();
    to.set_model_name(from.model);
    to.set_model_version(-1);
    to.mutable_input_map()->insert(from.input_map.begin(), from.input_map.end());
    to.mutable_output_map()->insert(from.output_map.begin(), from.output_map.end());
  }
  for (const auto& [name, text] : kserve::built_in_steps(graph))
    (*config.mutable_parameters())[name].set_string_value(text);
}

void write(const kserve::DurationCount& from, inference::StatisticDuration& to) {
  to.set_count(from.count);
  to.set_ns(from.ns);
}

void write(const QueuePolicy& policy, inference::ModelQueuePolicy& to) {
  to.set_timeout_action(policy.timeout_action == TimeoutAction::delay
                            ? inference::ModelQueuePolicy::DELAY
                            : inference::ModelQueuePolicy::REJECT);
  to.set_default_timeout_microseconds(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(policy.default_timeout).count()));
  to.set_allow_timeout_override(policy.allow_timeout_override);
  to.set_max_queue_size(policy.max_queue_size);
}

void write(const std::optional<QueueRules>& rules, inference::ModelDynamicBatching& to) {
  if (!rules) return;
  to.set_priority_levels(rules->priority_levels);
  to.set_default_priority_level(rules->default_priority_level);
  write(rules->default_policy, *to.mutable_default_queue_policy());
  for (const auto& [level, policy] : rules->level_policies)
    write(policy, (*to.mutable_priority_queue_policy())[level]);
}

}  // namespace

void write_metadata(const kserve::Model& model, inference::ModelMetadataResponse& response) {
  response.set_name(model.name);
  response.add_versions(model.version);
  response.set_platform(kserve::platform_of(model));
  for (const TensorSpec& spec : model.inputs) write_tensor(spec, *response.add_inputs());
  for (const TensorSpec& spec : model.outputs) write_tensor(spec, *response.add_outputs());
}

void write_config(const kserve::Model& model, inference::ModelConfigResponse& response) {
  inference::ModelConfig& config = *response.mutable_config();
  config.set_name(model.name);
  config.set_platform(kserve::platform_of(model));
  config.set_backend(kserve::backend_of(model));
  config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  config.set_max_batch_size(static_cast<std::int32_t>(model.max_batch));
  for (const TensorSpec& spec : model.inputs) write_tensor(spec, *config.add_input());
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    inference::ModelOutput& output = *config.add_output();
    write_tensor(model.outputs[i], output);
    output.set_label_filename(kserve::label_filename(model, i));
  }
  config.mutable_optimization()->mutable_input_pinned_memory()->set_enable(true);
  config.mutable_optimization()->mutable_output_pinned_memory()->set_enable(true);
  config.set_default_model_filename(kserve::model_filename(model));
  if (model.application) {
    write_ensemble(model.application->graph, config);
    return;
  }
  write(model.queue, *config.mutable_dynamic_batching());
  inference::ModelInstanceGroup& instance = *config.add_instance_group();
  instance.set_name(model.name);
  instance.set_count(1);
}

void write_statistics(std::span<const kserve::ModelStatistics> models,
                      inference::ModelStatisticsResponse& response) {
  for (const kserve::ModelStatistics& from : models) {
    inference::ModelStatistics& to = *response.add_model_stats();
    to.set_name(from.name);
    to.set_version(from.version);
    to.set_last_inference(from.last_inference_ms);
    to.set_inference_count(from.inference_count);
    to.set_execution_count(from.execution_count);
    inference::InferStatistics& statistics = *to.mutable_inference_stats();
    write(from.success, *statistics.mutable_success());
    write(from.fail, *statistics.mutable_fail());
    write(from.queue, *statistics.mutable_queue());
    write(from.compute_input, *statistics.mutable_compute_input());
    write(from.compute_infer, *statistics.mutable_compute_infer());
    write(from.compute_output, *statistics.mutable_compute_output());
    write({}, *statistics.mutable_cache_hit());
    write({}, *statistics.mutable_cache_miss());
    for (const kserve::BatchCount& batch : from.batches) {
      inference::InferBatchStatistics& row = *to.add_batch_stats();
      row.set_batch_size(batch.batch_size);
      write(batch.compute_input, *row.mutable_compute_input());
      write(batch.compute_infer, *row.mutable_compute_infer());
      write(batch.compute_output, *row.mutable_compute_output());
    }
  }
}

void write_index(std::span<const kserve::Model> models, bool only_ready,
                 inference::RepositoryIndexResponse& response) {
  for (const kserve::Model& model : models) {
    if (only_ready && !kserve::takes_requests(model.state)) continue;
    auto& row = *response.add_models();
    row.set_name(model.name);
    row.set_version(model.version);
    row.set_state(std::string(kserve::repository_state(model.state)));
    row.set_reason(model.reason);
  }
}

void write_region(const kserve::RegionInfo& region,
                  inference::SystemSharedMemoryStatusResponse& response) {
  auto& status = (*response.mutable_regions())[region.name];
  status.set_name(region.name);
  status.set_key(region.key);
  status.set_offset(region.offset);
  status.set_byte_size(region.bytes);
}

std::vector<kserve::Setting> settings_of(const inference::TraceSettingRequest& request) {
  std::vector<kserve::Setting> settings;
  for (const auto& [name, setting] : request.settings())
    settings.push_back({name, {setting.value().begin(), setting.value().end()}});
  return settings;
}

std::vector<kserve::Setting> settings_of(const inference::LogSettingsRequest& request) {
  using Value = inference::LogSettingsRequest::SettingValue;
  std::vector<kserve::Setting> settings;
  for (const auto& [name, setting] : request.settings()) {
    kserve::Setting& one = settings.emplace_back(kserve::Setting{name, {}});
    switch (setting.parameter_choice_case()) {
      case Value::kBoolParam:
        one.values = {setting.bool_param() ? "true" : "false"};
        break;
      case Value::kUint32Param:
        one.values = {std::to_string(setting.uint32_param())};
        break;
      case Value::kStringParam:
        one.values = {setting.string_param()};
        break;
      case Value::PARAMETER_CHOICE_NOT_SET:
        break;
    }
  }
  return settings;
}

void write_settings(const kserve::TraceSampling& sampling,
                    inference::TraceSettingResponse& response) {
  for (const kserve::Setting& setting : kserve::settings_of(sampling)) {
    (*response.mutable_settings())[setting.name].mutable_value()->Assign(setting.values.begin(),
                                                                         setting.values.end());
  }
}

void write_settings(kserve::LogLevel level, inference::LogSettingsResponse& response) {
  const kserve::LogSwitches switches = kserve::switches_of(level);
  auto& settings = *response.mutable_settings();
  settings["log_file"].set_string_param("");
  settings["log_info"].set_bool_param(switches.info);
  settings["log_warning"].set_bool_param(switches.warning);
  settings["log_error"].set_bool_param(switches.error);
  settings["log_verbose_level"].set_uint32_param(switches.verbose);
  settings["log_format"].set_string_param("default");
}

}  // namespace gpulet::net::grpc_api
