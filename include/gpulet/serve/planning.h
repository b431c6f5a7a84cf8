// Planning for the frontend's hosts: making and checking one plan (the answer to MakePlan), the
// planning options that are read as text, and the cost of a request under a plan. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/frontend_events.h"

namespace gpulet::serve {

// Makes the plan with the corrected profiles and checks it. Invalid input is a fault, like a failed
// check. Any thread.
[[nodiscard]] PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy);

// Plans for a cluster of which some devices (`closed`) take no new gpulets: the gpulets on them
// (`kept`) stay, and `plan` is called for the rest of the demand on the other devices. `input` has
// every device. Any thread.
[[nodiscard]] schedule::Plan plan_around(
    const schedule::PlanInput& input, const std::set<schedule::DeviceKey>& closed,
    std::vector<schedule::PlannedGpulet> kept,
    const std::function<schedule::Plan(const schedule::PlanInput&)>& plan);

// Parses "none" or "poisson". Fails (invalid) with the valid names.
[[nodiscard]] Result<schedule::Headroom> parse_headroom(std::string_view text);

struct ChosenInterference {
  profile::InterferenceKind kind = profile::InterferenceKind::none;
  profile::InterferenceSet models;
};

// The interference model for plans on devices of these types. `asked`: its name, which fails
// if it is unknown (invalid) or a profile in use lacks it (not_found). Empty: combined for every
// type whose profile knows its interference; the others have none.
[[nodiscard]] Result<ChosenInterference> choose_interference(
    const profile::ProfileSet& profiles, const std::vector<std::string>& device_types,
    const std::optional<std::string>& asked);

// The cost of one request of each model under the plan in force, in time of a whole device: a
// batch's duration times the share by the batch size, as the mean over its gpulets by rate, without
// spare share. One thread at a time.
class RequestCosts {
 public:
  // Takes the costs from the plan. Cheap if the epoch has not changed.
  void follow(Epoch epoch, const schedule::Plan& plan);
  // Zero (unknown) for a model without a gpulet.
  [[nodiscard]] Duration of(std::string_view model) const;

 private:
  Epoch epoch_{};
  std::map<std::string, Duration, std::less<>> costs_;
};

}  // namespace gpulet::serve
