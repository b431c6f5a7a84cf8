// Which models' full batches a frontend's limits keep out. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::config {

// A sentence for each model or application whose largest request (max_batch rows over HTTP or gRPC,
// in binary) is longer than `max_payload_bytes`, where that is configured, or `max_buffered_mb`.
[[nodiscard]] std::vector<std::string> full_batches_too_long(const FrontendConfig& config,
                                                             const ServingConfig& serving);

}  // namespace gpulet::config
