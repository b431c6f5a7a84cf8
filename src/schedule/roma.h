// roma: executables on all devices (schedule/executables.h), whatever the demand is. Source: ROMA,
// section 2.2; its dispatch is the engine's (serve/dispatcher.h), its control the room control's.
#pragma once

#include <string_view>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class Roma final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "roma"; }
  [[nodiscard]] bool scales() const override { return false; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
