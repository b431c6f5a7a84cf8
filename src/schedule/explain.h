// Facts about demand that a plan does not serve, and the reason in a sentence. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "schedule/plan_context.h"

namespace gpulet::schedule {

// The model's fastest batch at any size of any class, including the margin.
struct Fastest {
  double latency_ms = std::numeric_limits<double>::infinity();
  int percent = 0;
  const DeviceClass* where = nullptr;  // null: not measured at any of the sizes
};
[[nodiscard]] Fastest fastest_batch(const PlanContext& context, std::size_t model);

// The most that one empty device serves of the model, and whether memory prevents it.
struct BestDevice {
  double rate = 0;
  int percent = 0;
  const DeviceClass* where = nullptr;
  double memory_mb = 0;       // required by the model
  double largest_mb = 0;      // the largest memory of a device
  bool memory_short = false;  // on every device that meets the SLO
};
[[nodiscard]] BestDevice best_device(const PlanContext& context, std::size_t model);

// Whether a device type of the cluster has a profile of the model.
[[nodiscard]] bool is_measured(const PlanContext& context, std::size_t model);

// Why `unserved` of the model's rate is not served by a plan that uses `devices_used` devices, with
// a fix.
[[nodiscard]] std::string explain_unserved(const PlanContext& context, std::size_t model,
                                           double unserved, std::size_t devices_used);

}  // namespace gpulet::schedule
