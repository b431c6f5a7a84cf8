// GpuletRoute: which models a gpulet serves, and how. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::serve {

// The index of a version of a model in ModelQueues. One that is forgotten is used again.
using ModelIndex = std::size_t;

// One model's place on a gpulet. execution[n-1]: the expected duration of a batch of n.
struct SlotSpec {
  ModelIndex model = 0;
  std::vector<Duration> execution;
  double rate = 0;  // planned requests per second

  friend bool operator==(const SlotSpec&, const SlotSpec&) = default;
};

struct GpuletRoute {
  GpuletId gpulet;
  BackendId backend;
  Duration duty_cycle{};
  std::vector<SlotSpec> slots;
  schedule::Service service = schedule::Service::rounds;
  // Processes of one model in a MIG instance, whose batches start in turns: how many, and a number
  // that only they have.
  std::uint32_t processes = 1;
  std::uint64_t instance = 0;

  friend bool operator==(const GpuletRoute&, const GpuletRoute&) = default;
};

}  // namespace gpulet::serve
