// A driver that controls nothing: the proxies of a simulated device take as long as they are told,
// whatever their share. It only holds the contract: a share is 1..100 %, an id is granted once, and
// who was granted one may have it adjusted (how many cores the device has, it does not know).
//
// Where the device is as if divided by MIG, an instance is there from its first gpulet to its last.
// Refused: gpulets without an instance, in one that the geometry does not have or whose share it is
// not (invalid); in one that cannot stand beside those that are there, or that has as many gpulets
// as it may (unavailable: "in use", as NVML says it).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gpulet/partition/driver.h"

namespace gpulet::partition {

struct SimulatedInstances {
  MigGeometry geometry;
  std::uint32_t processes_per_instance = 1;
};

[[nodiscard]] std::unique_ptr<PartitionDriver> make_simulated_driver(
    std::optional<SimulatedInstances> instances = std::nullopt);

}  // namespace gpulet::partition
