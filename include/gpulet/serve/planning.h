// One plan, made and checked: what every host does for a MakePlan; and the choices that hosts read
// from their options as text. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

// Input that no policy should see comes back as a fault, like a plan that fails the checker.
[[nodiscard]] PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy);

// "none", "poisson". Fails (invalid) with the names there are.
[[nodiscard]] Result<schedule::Headroom> parse_headroom(std::string_view text);

struct ChosenInterference {
  profile::InterferenceKind kind = profile::InterferenceKind::none;
  profile::InterferenceSet models;
};

// The model of interference for plans on devices of those types. `asked`: its name; empty: learned
// where every profile in use holds a learned fit, else none. Fails (invalid, not_found) on an
// unknown name and where a profile in use has no fit of the kind that was asked for.
[[nodiscard]] Result<ChosenInterference> choose_interference(
    const profile::ProfileSet& profiles, const std::vector<std::string>& device_types,
    const std::optional<std::string>& asked);

}  // namespace gpulet::serve
