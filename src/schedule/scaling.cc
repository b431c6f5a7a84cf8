#include "gpulet/schedule/scaling.h"

#include <algorithm>
#include <utility>

namespace gpulet::schedule {
namespace {

class Scaling {
 public:
  Scaling(const Policy& policy, const PlanInput& input, const ScalingOptions& options)
      : policy_(policy), limited_(input), raised_(input) {
    for (ModelDemand& demand : raised_.demands) {
      demand.rate *= std::max(1.0, options.give_back_reserve);
    }
    const auto there = static_cast<std::uint32_t>(input.cluster.devices.size());
    limit_ = std::min(there, input.options.max_devices.value_or(there));
    least_ = std::min(options.least, limit_);
    const std::uint32_t now = input.current != nullptr ? input.current->devices_used() : 0;
    in_use_ = std::clamp(options.in_use.value_or(now), least_, limit_);
  }

  ScalingResult run() {
    std::uint32_t devices = in_use_;
    Plan plan = plan_with(limited_, devices);
    if (plan.schedulable()) {
      give_back(&devices, &plan);
    } else {
      take_more(&devices, &plan);
    }
    return {std::move(plan), devices,
            static_cast<std::int64_t>(devices) - static_cast<std::int64_t>(in_use_)};
  }

 private:
  [[nodiscard]] Plan plan_with(PlanInput& input, std::uint32_t devices) const {
    input.options.max_devices = devices;
    return policy_.plan(input);
  }

  // In growing steps, then back by halves: a cluster of thousands is not tried one by one.
  void take_more(std::uint32_t* devices, Plan* plan) {
    std::uint32_t too_few = *devices;
    for (std::uint32_t step = 1; !plan->schedulable() && *devices < limit_; step *= 2) {
      too_few = *devices;
      *devices += std::min(step, limit_ - *devices);
      *plan = plan_with(limited_, *devices);
    }
    while (plan->schedulable() && *devices - too_few > 1) {
      const std::uint32_t middle = too_few + (*devices - too_few) / 2;
      Plan smaller = plan_with(limited_, middle);
      if (smaller.schedulable()) {
        *devices = middle;
        *plan = std::move(smaller);
      } else {
        too_few = middle;
      }
    }
  }

  // As many as the raised demand can spare: not one after the other where a plan leaves several
  // idle.
  void give_back(std::uint32_t* devices, Plan* plan) {
    while (*devices > least_) {
      const Plan raised = plan_with(raised_, *devices - 1);
      if (!raised.schedulable()) return;
      const std::uint32_t fewer = std::max(least_, raised.devices_used());
      Plan smaller = plan_with(limited_, fewer);
      if (!smaller.schedulable()) return;  // policies are not monotonic in the load
      *devices = fewer;
      *plan = std::move(smaller);
    }
  }

  const Policy& policy_;
  PlanInput limited_;  // the demand itself
  PlanInput raised_;   // and with the reserve
  std::uint32_t limit_ = 0;
  std::uint32_t least_ = 0;
  std::uint32_t in_use_ = 0;
};

}  // namespace

ScalingResult scale(const Policy& policy, const PlanInput& input, const ScalingOptions& options) {
  return Scaling(policy, input, options).run();
}

}  // namespace gpulet::schedule
