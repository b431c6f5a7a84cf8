// The devices that a plan may use, and the demands it must cover. Plain values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::schedule {

// Devices are numbered from 0 within their node.
struct DeviceKey {
  std::string node;
  std::uint32_t device = 0;

  friend auto operator<=>(const DeviceKey&, const DeviceKey&) = default;
};

struct Device {
  DeviceKey key;
  std::string type;          // names a profile
  std::string partitioning;  // "mps", "mig", "green", "cpu_quota", "simulated"
  std::vector<Share> sizes;  // sizes a gpulet may have, ascending
  std::uint32_t max_partitions = 2;
  double memory_mb = 0;  // 0: not limited
  // It is divided by MIG: a gpulet is a process in one of its instances, and `sizes` are the shares
  // of the geometry's profiles.
  std::optional<partition::MigGeometry> mig{};
  // Of one model, side by side under MPS. The device's profile is then of one process beside as
  // many others as may be there.
  std::uint32_t processes_per_instance = 1;
  double cores = 0;  // of a CPU; 0: it is none

  friend bool operator==(const Device&, const Device&) = default;
};

struct Cluster {
  std::vector<Device> devices;  // sorted by key

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct ModelDemand {
  std::string name;
  double rate = 0;  // requests per second
  double slo_ms = 0;
  std::uint32_t max_batch = 32;
  double queued{};  // requests that wait at the moment of planning
  // It has gpulets of its own: nobody shares one with it (its processes crash).
  bool alone = false;

  friend bool operator==(const ModelDemand&, const ModelDemand&) = default;
};

}  // namespace gpulet::schedule
