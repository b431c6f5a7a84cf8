// Elastic partitioning (gpulet, section 4.3, algorithm 1): gpulets of the most effective size, best
// fit, then temporal merging. The choices the paper leaves open stand at the head of elastic.cc.
// Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"
#include "schedule/draft.h"

namespace gpulet::schedule {

// The best draft of all attempts that elastic makes.
[[nodiscard]] Draft elastic_partitioning(Problem& problem);

// What elastic plans from: the plan in force, changed where it must be, or else the best draft with
// its devices' spare share in use.
[[nodiscard]] Draft elastic_draft(Problem& problem);

class ElasticPartitioning final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
