// Guided self-tuning (gpu-let preprint, section 6.1, after GSLICE): the other spatial baseline. The
// choices the paper leaves open stand at the head of guided_self_tuning.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class GuidedSelfTuning final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "guided-self-tuning"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
