// Greedy best fit (gpulet, section 2.3): the spatial baseline. The choices the paper leaves open
// stand at the head of greedy_best_fit.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class GreedyBestFit final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "greedy-best-fit"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
