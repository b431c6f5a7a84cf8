// Squishy bin packing (Nexus; gpulet, section 2.2): models take turns on whole devices. The choices
// the paper leaves open stand at the head of sbp.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Squishy bin packing on whole devices; what is chosen and why is at the head of sbp.cc.
class SquishyBinPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sbp"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
