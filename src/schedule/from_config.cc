#include <algorithm>
#include <iterator>

#include "gpulet/config/cluster_config.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

std::vector<Device> devices_from(const config::NodeConfig& node) {
  std::vector<Device> devices;
  std::uint32_t number = 0;
  for (const config::DeviceConfig& described : node.devices) {
    for (std::uint32_t copy = 0; copy < described.count; ++copy) {
      Device& device = devices.emplace_back();
      device.key = {node.name, number++};
      device.type = described.type;
      device.partitioning = described.partitioning;
      device.sizes = described.sizes;
      device.max_partitions = described.max_partitions;
      device.memory_mb = described.memory_mb;
      device.mig = described.geometry;
      device.processes_per_instance = described.processes_per_instance;
      device.cores = described.core_count > 0
                         ? described.core_count
                         : static_cast<double>(described.cores.size()) / described.count;
    }
  }
  return devices;
}

Cluster cluster_from(const std::vector<config::NodeConfig>& nodes) {
  Cluster cluster;
  for (const config::NodeConfig& node : nodes) {
    std::vector<Device> devices = devices_from(node);
    cluster.devices.insert(cluster.devices.end(), std::make_move_iterator(devices.begin()),
                           std::make_move_iterator(devices.end()));
  }
  std::sort(cluster.devices.begin(), cluster.devices.end(),
            [](const Device& a, const Device& b) { return a.key < b.key; });
  return cluster;
}

std::vector<ModelDemand> demands_from(const std::vector<config::DemandConfig>& configured) {
  std::vector<ModelDemand> demands;
  demands.reserve(configured.size());
  for (const config::DemandConfig& demand : configured) {
    demands.push_back({demand.name, demand.rate, demand.slo_ms, demand.max_batch});
  }
  return demands;
}

}  // namespace gpulet::schedule
