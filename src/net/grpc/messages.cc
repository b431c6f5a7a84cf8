#include "net/grpc/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "gpulet/core/queue_rules.h"
#include "gpulet/core/tensor.h"
#include "gpulet/net/http/message.h"
#include "net/kserve/json.h"

namespace gpulet::net::grpc_api {
// ---- inferences

namespace {

using inference::InferParameter;
using inference::InferTensorContents;
using kserve::in_quotes;
using kserve::invalid;
using Parameters = google::protobuf::Map<std::string, InferParameter>;

constexpr std::size_t kMostTensors = 64;  // as in the other protocols
constexpr int kMostDimensions = 64;
constexpr std::size_t kMostParameters = 256;

Status check_count(std::string_view of, std::size_t count, std::size_t most) {
  if (count <= most) return {};
  return invalid(fmt::format("the request has {} {}, more than the limit of {}", count, of, most));
}

// ---- parameters

kserve::Scalar scalar_of(const InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return parameter.bool_param();
    case InferParameter::kInt64Param:
      if (parameter.int64_param() < 0) return parameter.int64_param();
      return static_cast<std::uint64_t>(parameter.int64_param());
    case InferParameter::kUint64Param:
      return parameter.uint64_param();
    case InferParameter::kDoubleParam:
      return parameter.double_param();
    case InferParameter::kStringParam:
      return std::string_view(parameter.string_param());
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return std::monostate();
}

// `Kind`: RequestParameters or TensorParameters.
template <typename Kind>
Result<Kind> read(const Parameters& given) {
  Kind parameters;
  for (const auto& [name, value] : given) {
    if (Status taken = kserve::take_parameter(parameters, name, scalar_of(value)); !taken.ok())
      return taken;
  }
  return parameters;
}

// ---- inputs

// The elements as bytes. Fails if one does not fit the type.
template <typename Element, typename Field>
Result<Bytes> bytes_of(const Field& field, const std::string& input) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(field.size()) * sizeof(Element));
  std::size_t at = 0;
  for (const auto& value : field) {
    const auto element = static_cast<Element>(value);
    if constexpr (std::is_integral_v<Element> && !std::is_same_v<Element, bool>) {
      if (static_cast<std::remove_cvref_t<decltype(value)>>(element) != value) {
        return invalid(
            fmt::format("input {}: {} does not fit its datatype", in_quotes(input), value));
      }
    }
    std::memcpy(bytes.data() + at, &element, sizeof element);
    at += sizeof element;
  }
  return Bytes::own(std::move(bytes));
}

Result<Bytes> elements_of(const InferTensorContents& contents, DataType type,
                          const std::string& input) {
  switch (type) {
    case DataType::boolean:
      return bytes_of<bool>(contents.bool_contents(), input);
    case DataType::uint8:
      return bytes_of<std::uint8_t>(contents.uint_contents(), input);
    case DataType::int8:
      return bytes_of<std::int8_t>(contents.int_contents(), input);
    case DataType::int16:
      return bytes_of<std::int16_t>(contents.int_contents(), input);
    case DataType::int32:
      return bytes_of<std::int32_t>(contents.int_contents(), input);
    case DataType::int64:
      return bytes_of<std::int64_t>(contents.int64_contents(), input);
    case DataType::fp32:
      return bytes_of<float>(contents.fp32_contents(), input);
    case DataType::fp64:
      return bytes_of<double>(contents.fp64_contents(), input);
    case DataType::bytes: {
      std::string elements;
      for (const std::string& element : contents.bytes_contents())
        append_element(elements, element);
      return http::bytes_of(std::move(elements));
    }
    case DataType::fp16:
    case DataType::bf16:
      break;
  }
  return invalid(fmt::format("input {}: {} tensors must be in raw_input_contents", in_quotes(input),
                             to_string(type)));
}

Result<std::vector<kserve::GivenInput>> inputs_of(const InferMessage& message,
                                                  const kserve::Model& model,
                                                  const kserve::SharedMemory& regions) {
  const bool raw = !message.raw_inputs.empty();
  std::vector<kserve::GivenInput> inputs;
  std::size_t next_raw = 0;
  for (const auto& tensor : message.request.inputs()) {
    const auto type = parse_data_type(tensor.datatype());
    if (!type) {
      return invalid(fmt::format("input {}: unsupported datatype {}", in_quotes(tensor.name()),
                                 in_quotes(tensor.datatype())));
    }
    kserve::GivenInput input;
    input.name = tensor.name();
    input.type = *type;
    input.shape.assign(tensor.shape().begin(), tensor.shape().end());
    GPULET_TRY(const auto parameters, read<kserve::TensorParameters>(tensor.parameters()));
    GPULET_TRY(const auto region, kserve::region_of(parameters));
    if (raw && tensor.has_contents()) {
      return invalid("contents field must not be specified when using raw_input_contents for " +
                     in_quotes(tensor.name()));
    }
    Result<Bytes> data = Bytes();
    if (region) {
      if (Status fits = kserve::check_input(model, input, region->bytes); !fits.ok()) return fits;
      data = regions.read(*region);
    } else if (!raw) {
      data = elements_of(tensor.contents(), *type, tensor.name());
    } else if (next_raw < message.raw_inputs.size()) {
      data = message.raw_inputs[next_raw++];
    } else {
      return invalid(
          fmt::format("input {}: raw_input_contents has no data for it; it has fewer "
                      "tensors than there are inputs",
                      in_quotes(tensor.name())));
    }
    if (!data.ok()) return data.status();
    input.data = std::move(data).value();
    inputs.push_back(std::move(input));
  }
  if (next_raw != message.raw_inputs.size())
    return invalid("raw_input_contents has more tensors than there are inputs");
  return inputs;
}

// ---- outputs

Result<std::vector<kserve::RequestedOutput>> outputs_of(const inference::ModelInferRequest& request,
                                                        const kserve::Model& model) {
  std::vector<kserve::NamedOutput> named;
  for (const auto& output : request.outputs()) {
    GPULET_TRY(kserve::TensorParameters parameters,
               read<kserve::TensorParameters>(output.parameters()));
    parameters.binary_data.reset();  // gRPC responses are always raw
    named.push_back({output.name(), std::move(parameters)});
  }
  return kserve::requested_outputs(named, true, model);
}

}  // namespace

Status check_limits(const InferMessage& message) {
  const inference::ModelInferRequest& request = message.request;
  if (Status id = kserve::check_id(request.id()); !id.ok()) return id;
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const std::size_t tensors = std::max(
      {size(request.inputs_size()), size(request.outputs_size()), message.raw_inputs.size()});
  if (Status few = check_count("tensors", tensors, kMostTensors); !few.ok()) return few;
  std::size_t parameters = request.parameters().size();
  int dimensions = 0;
  for (const auto& input : request.inputs()) {
    dimensions = std::max(dimensions, input.shape_size());
    parameters = std::max(parameters, std::size_t{input.parameters().size()});
  }
  for (const auto& output : request.outputs())
    parameters = std::max(parameters, std::size_t{output.parameters().size()});
  if (Status few = check_count("dimensions", size(dimensions), kMostDimensions); !few.ok())
    return few;
  return check_count("parameters", parameters, kMostParameters);
}

Result<kserve::InferCall> read_infer(const InferMessage& message, const kserve::Model& model,
                                     const kserve::SharedMemory& regions) {
  const inference::ModelInferRequest& request = message.request;
  GPULET_TRY(const auto parameters, read<kserve::RequestParameters>(request.parameters()));
  GPULET_TRY(std::vector<kserve::RequestedOutput> outputs, outputs_of(request, model));
  GPULET_TRY(std::vector<kserve::GivenInput> inputs, inputs_of(message, model, regions));
  Result<kserve::InferCall> call =
      kserve::call_of(model, std::move(inputs), parameters.timeout, parameters.priority);
  if (!call.ok()) return call;
  call.value().id = request.id();
  call.value().outputs = std::move(outputs);
  return call;
}

Status write_infer(const kserve::InferCall& call, const kserve::Model& model,
                   std::span<const InferReply> replies, kserve::SharedMemory& regions,
                   InferAnswer& answer) {
  GPULET_TRY(std::vector<kserve::ResponseOutput> gathered, kserve::gather(call, model, replies));
  inference::ModelInferResponse& response = answer.response;
  response.set_model_name(model.name);
  response.set_model_version(model.version);
  response.set_id(call.id);
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const kserve::ResponseOutput& output = gathered[i];
    const std::optional<kserve::RegionSlice>& region = call.outputs[i].region;
    auto& tensor = *response.add_outputs();
    tensor.set_name(output.spec.name);
    const bool labelled = call.outputs[i].classification > 0;
    tensor.set_datatype(labelled ? "BYTES" : std::string(to_string(output.spec.type)));
    tensor.mutable_shape()->Assign(output.spec.shape.begin(), output.spec.shape.end());
    Bytes raw = labelled ? http::bytes_of(kserve::lengths_and_texts(output.labels)) : output.data;
    if (region) {
      const std::size_t bytes = raw.size();
      if (Status written = regions.write(*region, raw); !written.ok()) return written;
      auto& parameters = *tensor.mutable_parameters();
      parameters["shared_memory_region"].set_string_param(region->region);
      parameters["shared_memory_offset"].set_int64_param(static_cast<std::int64_t>(region->offset));
      parameters["shared_memory_byte_size"].set_int64_param(static_cast<std::int64_t>(bytes));
      raw = Bytes();
    }
    answer.raw_outputs.push_back(std::move(raw));
  }
  return {};
}

// ---- models and settings

namespace {

inference::DataType config_type(DataType type) {
  inference::DataType result = inference::TYPE_INVALID;
  static_cast<void>(inference::DataType_Parse(kserve::config_type(type), &result));
  return result;
}

void write_tensor(const TensorSpec& spec,
                  inference::ModelMetadataResponse::TensorMetadata& tensor) {
  tensor.set_name(spec.name);
  tensor.set_datatype(std::string(to_string(spec.type)));
  for (const std::int64_t size : batch_shape(spec, -1)) tensor.add_shape(size);
}

template <typename ConfigTensor>
void write_tensor(const TensorSpec& spec, ConfigTensor& tensor) {
  tensor.set_name(spec.name);
  tensor.set_data_type(config_type(spec.type));
  tensor.mutable_dims()->Assign(spec.shape.begin(), spec.shape.end());
}

inference::ModelInput::Format config_format(config::ImageFormat format) {
  if (format == config::ImageFormat::nchw) return inference::ModelInput::FORMAT_NCHW;
  return format == config::ImageFormat::nhwc ? inference::ModelInput::FORMAT_NHWC
                                             : inference::ModelInput::FORMAT_NONE;
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

void write(const DurationCount& from, inference::StatisticDuration& to) {
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
  config.set_max_batch_size(static_cast<std::int32_t>(kserve::max_batch_size(model)));
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    inference::ModelInput& input = *config.add_input();
    write_tensor(model.inputs[i], input);
    input.set_format(config_format(kserve::input_format(model, i)));
    input.set_optional(kserve::is_optional(model, i));
  }
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
    for (const BatchCount& batch : from.batches) {
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
