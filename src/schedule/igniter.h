// iGniter (Xu et al., IEEE TPDS 2022), as InSS compares itself with it (sections 6.1 and 7): the
// least share for every model, placed where it costs its neighbours the least. The choices the
// papers leave open stand at the head of igniter.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class Igniter final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "igniter"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
