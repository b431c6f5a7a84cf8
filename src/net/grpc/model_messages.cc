#include "model_messages.h"

#include <string>

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

void write(const kserve::DurationCount& from, inference::StatisticDuration& to) {
  to.set_count(from.count);
  to.set_ns(from.ns);
}

}  // namespace

void write_metadata(const kserve::Model& model, inference::ModelMetadataResponse& response) {
  response.set_name(model.name);
  response.add_versions(model.version);
  response.set_platform(kserve::kPlatform);
  for (const TensorSpec& spec : model.inputs) write_tensor(spec, *response.add_inputs());
  for (const TensorSpec& spec : model.outputs) write_tensor(spec, *response.add_outputs());
}

void write_config(const kserve::Model& model, inference::ModelConfigResponse& response) {
  inference::ModelConfig& config = *response.mutable_config();
  config.set_name(model.name);
  config.set_platform(kserve::kPlatform);
  config.set_backend(kserve::kBackend);
  config.set_max_batch_size(static_cast<std::int32_t>(model.max_batch));
  for (const TensorSpec& spec : model.inputs) write_tensor(spec, *config.add_input());
  for (const TensorSpec& spec : model.outputs) write_tensor(spec, *config.add_output());
  config.mutable_dynamic_batching();
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

}  // namespace gpulet::net::grpc_api
