// The project's own policy: the fewest device fillings that cover the demand, with a lower bound
// (docs/cover.md). Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// How it goes about it stands at the head of cover.cc.
class CoverPolicy final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "cover"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
