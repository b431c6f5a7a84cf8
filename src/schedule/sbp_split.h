// Squishy bin packing on devices that are split 1:1 (gpulet, section 3.2). What is done where a
// device cannot be halved stands at the head of sbp_split.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class SplitSquishyBinPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sbp-split"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
