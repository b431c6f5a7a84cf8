// Planning options that are read as text. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::planning {

// Parses "none" or "poisson". Fails (invalid) with the valid names.
[[nodiscard]] Result<schedule::Headroom> parse_headroom(std::string_view text);

struct ChosenInterference {
  profile::InterferenceKind kind = profile::InterferenceKind::none;
  profile::InterferenceSet models;
};

// The interference model for plans on devices of these types. `asked`: its name, which fails
// if it is unknown (invalid) or a profile in use lacks it (not_found). Empty: combined for every
// type whose profile knows its interference; the others have none. `fit_inss` fits the model inss.
[[nodiscard]] Result<ChosenInterference> choose_interference(
    const profile::ProfileSet& profiles, const std::vector<std::string>& device_types,
    const std::optional<std::string>& asked, profile::FitPairModel fit_inss = nullptr);

}  // namespace gpulet::planning
