// One device by itself: whether a plan can reckon with what it says. Pure; any thread.
#pragma once

#include "gpulet/core/status.h"
#include "gpulet/schedule/cluster.h"

namespace gpulet::schedule {

// Fails with invalid, naming the device: a max_partitions of 0; memory or cores that are negative
// or no finite numbers; sizes that are missing, outside 1..100, not ascending or, where MIG
// divides, others than its profiles'; processes_per_instance without MIG. Whether there is a
// profile of its type is not asked.
[[nodiscard]] Status validate_device(const Device& device);

}  // namespace gpulet::schedule
