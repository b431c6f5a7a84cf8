// The devices of a node, which cluster files and backend files write alike. Any thread.
#pragma once

#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/json.h"

namespace gpulet::config {

// `cursor`: the list. At least one device; no core in two devices.
[[nodiscard]] std::vector<DeviceConfig> read_devices(const JsonCursor& cursor);

}  // namespace gpulet::config
