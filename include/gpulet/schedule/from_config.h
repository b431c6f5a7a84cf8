// From what the configuration says to what a policy plans with. Pure; any thread.
#pragma once

#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/schedule/cluster.h"

namespace gpulet::schedule {

// The devices of one node, numbered from 0 in the order of its list, each `count` in a row. One of
// cpu_quota that names no cores has 0 of them: only its backend knows how many there are.
[[nodiscard]] std::vector<Device> devices_from(const config::NodeConfig& node);

// All nodes' devices, sorted by key.
[[nodiscard]] Cluster cluster_from(const std::vector<config::NodeConfig>& nodes);

// In the order of the file.
[[nodiscard]] std::vector<ModelDemand> demands_from(
    const std::vector<config::DemandConfig>& configured);

}  // namespace gpulet::schedule
