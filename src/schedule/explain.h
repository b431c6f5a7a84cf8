// Why a rate has no place, in words and numbers, with the mend. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "schedule/problem.h"

namespace gpulet::schedule {

// The fastest batch of the model anywhere, margin included.
struct Fastest {
  double latency_ms = std::numeric_limits<double>::infinity();
  int percent = 0;
  const DeviceClass* where = nullptr;  // null: measured at no size of the cluster's devices
};
[[nodiscard]] Fastest fastest_batch(const Problem& problem, std::size_t model);

// The most that one empty device serves of the model, and what keeps it from serving any.
struct BestDevice {
  double rate = 0;
  int percent = 0;
  const DeviceClass* where = nullptr;
  double memory_mb = 0;       // that the model needs
  double largest_mb = 0;      // that a device has
  bool memory_short = false;  // on every device that meets the SLO
};
[[nodiscard]] BestDevice best_device(const Problem& problem, std::size_t model);

// Some device type of the cluster has a profile of the model.
[[nodiscard]] bool is_measured(const Problem& problem, std::size_t model);

// `unserved` of the model's rate has no place in a plan that uses `devices_used` devices.
[[nodiscard]] std::string explain_unserved(const Problem& problem, std::size_t model,
                                           double unserved, std::size_t devices_used);

}  // namespace gpulet::schedule
