// What serving showed of the profiles and the devices, as planning sees it. Pure; any thread.
#pragma once

#include <optional>

#include "gpulet/planning/pipeline.h"

namespace gpulet::planning {

struct Observed {
  schedule::Cluster cluster;
  profile::ProfileSet profiles;
  profile::InterferenceSet interference;
};

// The request's cluster and profiles, corrected, where slow devices and those of nodes on which
// models keep failing have types of their own. Empty: nothing differs from the profiles.
[[nodiscard]] std::optional<Observed> observed(const PlanRequest& request);

}  // namespace gpulet::planning
