// The ideal scheduler (gpulet, section 5.2): tries every combination of partitionings of all
// devices. What is done within a combination, and the limits of the search, stand at the head of
// ideal.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"
#include "schedule/problem.h"

namespace gpulet::schedule {

class Ideal final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "ideal"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Whether the search takes a cluster of that size on at all; where not, `ideal` is `elastic`.
[[nodiscard]] bool ideal_searches(const Problem& problem);

}  // namespace gpulet::schedule
