// Elastic partitioning (gpulet, section 4.3, algorithm 1): gpulets of the most effective size, best
// fit, then temporal merging. The choices the paper leaves open stand at the head of elastic.cc.
// Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Elastic partitioning; what is chosen and why is at the head of elastic.cc.
class ElasticPartitioning final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
