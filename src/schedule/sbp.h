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
