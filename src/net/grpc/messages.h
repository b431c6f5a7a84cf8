// Conversion between the protocol's gRPC messages and values. Private to net/grpc. Pure; any
// thread.
#pragma once

#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"
#include "kserve.pb.h"
#include "net/grpc/wire.h"

namespace gpulet::net::grpc_api {

// ---- inferences

// Limits the lists of a request, so that processing them is fast, and its id. Fails with invalid.
[[nodiscard]] Status check_limits(const InferMessage& message);

// Fails (invalid) with the same messages as the HTTP form.
[[nodiscard]] Result<kserve::InferCall> read_infer(const InferMessage& message,
                                                   const kserve::Model& model,
                                                   const kserve::SharedMemory& regions);

// Writes outputs that belong to shared memory to `regions`. Fails with the first row's failure.
[[nodiscard]] Status write_infer(const kserve::InferCall& call, const kserve::Model& model,
                                 std::span<const InferReply> replies, kserve::SharedMemory& regions,
                                 InferAnswer& answer);

// ---- models and settings

void write_metadata(const kserve::Model& model, inference::ModelMetadataResponse& response);
void write_config(const kserve::Model& model, inference::ModelConfigResponse& response);
void write_statistics(std::span<const kserve::ModelStatistics> models,
                      inference::ModelStatisticsResponse& response);
void write_index(std::span<const kserve::Model> models, bool only_ready,
                 inference::RepositoryIndexResponse& response);
void write_region(const kserve::RegionInfo& region,
                  inference::SystemSharedMemoryStatusResponse& response);

// The settings of a request. Log settings become text, as over HTTP.
[[nodiscard]] std::vector<kserve::Setting> settings_of(
    const inference::TraceSettingRequest& request);
[[nodiscard]] std::vector<kserve::Setting> settings_of(
    const inference::LogSettingsRequest& request);
void write_settings(const kserve::TraceSampling& sampling,
                    inference::TraceSettingResponse& response);
void write_settings(kserve::LogLevel level, inference::LogSettingsResponse& response);

}  // namespace gpulet::net::grpc_api
