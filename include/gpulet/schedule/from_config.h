// Converts the configuration into the input of a policy. Pure; any thread.
#pragma once

#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// The devices of one node, numbered from 0 in the order of the configuration; a device with `count`
// becomes that many in a row. A cpu_quota device without configured cores has 0: only its backend
// knows how many there are.
[[nodiscard]] std::vector<Device> devices_from(const config::NodeConfig& node);

// The devices of all nodes, sorted by key.
[[nodiscard]] Cluster cluster_from(const std::vector<config::NodeConfig>& nodes);

// In the order of the configuration.
[[nodiscard]] std::vector<ModelDemand> demands_from(
    const std::vector<config::DemandConfig>& configured);

}  // namespace gpulet::schedule
