// The devices of a node, which cluster files and backend files write alike. Any thread.
#pragma once

#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/json.h"

namespace gpulet::config {

// Whether it is a GPU that this project divides.
[[nodiscard]] bool is_on_gpu(const DeviceConfig& device);

// `cursor`: the list. At least one device; no core and no GPU in two devices.
[[nodiscard]] std::vector<DeviceConfig> read_devices(const JsonCursor& cursor);

}  // namespace gpulet::config
