// What there is to say of models, as the protocol's gRPC messages. Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "gpulet/net/kserve/model.h"
#include "gpulet/net/kserve/settings.h"
#include "gpulet/net/kserve/shared_memory.h"
#include "kserve.pb.h"

namespace gpulet::net::grpc_api {

void write_metadata(const kserve::Model& model, inference::ModelMetadataResponse& response);
void write_config(const kserve::Model& model, inference::ModelConfigResponse& response);
void write_statistics(std::span<const kserve::ModelStatistics> models,
                      inference::ModelStatisticsResponse& response);
void write_index(std::span<const kserve::Model> models, bool only_ready,
                 inference::RepositoryIndexResponse& response);
void write_region(const kserve::RegionInfo& region,
                  inference::SystemSharedMemoryStatusResponse& response);

// The settings of a request. Those of the log are in words, as over HTTP.
[[nodiscard]] std::vector<kserve::Setting> settings_of(
    const inference::TraceSettingRequest& request);
[[nodiscard]] std::vector<kserve::Setting> settings_of(
    const inference::LogSettingsRequest& request);
void write_settings(const kserve::TraceSampling& sampling,
                    inference::TraceSettingResponse& response);
void write_settings(kserve::LogLevel level, inference::LogSettingsResponse& response);

}  // namespace gpulet::net::grpc_api
