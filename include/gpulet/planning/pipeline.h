// The pipeline from a demand to a plan, which the frontend, the simulator and `gpulet schedule`
// share, so that all of them make the same plan for the same input. Its steps, from the outside in:
// what serving showed of the profiles and devices, gpulets that stay, spare share, models that must
// be alone, CPUs beside other devices, the promise (verify/verified_plan.h), and around the policy
// the smallest number of devices and the sharing of a shortage (schedule/scaling.h). Then the plan
// is checked and explained. Pure; any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::planning {

// How many times slower each slow device is than the others of its type. Others are not in it.
using SlowDevices = std::map<schedule::DeviceKey, double>;

struct PlanRequest {
  schedule::Cluster cluster;
  // Devices of the cluster that take no new gpulets now, and the gpulets that stay on them.
  std::set<schedule::DeviceKey> closed;
  std::vector<schedule::PlannedGpulet> kept;
  std::vector<schedule::ModelDemand> demands;
  // The demands include this growth until the next plan: 0.1 for 10 % above the current rates.
  // Where the devices serve the current rates but not the growth, the plan is for the current
  // rates.
  double growth = 0;
  // Models that keep failing on a node. They get no gpulets there.
  std::set<std::pair<std::string, std::string>> not_on{};
  std::optional<schedule::Plan> current;
  schedule::PlanOptions options;
  std::shared_ptr<const profile::ProfileSet> profiles;           // never null
  std::shared_ptr<const profile::InterferenceSet> interference;  // refers to them; may be null
  std::shared_ptr<const profile::Corrections> corrections;       // of the profiles; may be null
  SlowDevices slow_devices;                                      // slower than the corrections say
  bool scale = true;   // use as few devices as the scaling loop finds sufficient
  bool spill = false;  // plan CPU instances for the load that gpulets cannot serve in time
};

struct PlanResult {
  schedule::Plan plan;
  std::vector<schedule::Violation> faults;  // found by check(); a plan with faults is not used
  schedule::Explanation explanation{};      // empty where the plan has faults
};

// Makes the plan with the corrected profiles and checks it. Invalid input is a fault, like a failed
// check. All calls of the policy together get PlanOptions::budget_ms, and those for the current
// rates, where only these fit, once more.
[[nodiscard]] PlanResult make_plan(const PlanRequest& request, const schedule::Policy& policy);

// A budget for calls of which mostly the first one is needed: each gets half of what is left.
class PlanBudget {
 public:
  explicit PlanBudget(double total_ms) : left_ms_(total_ms) {}
  [[nodiscard]] double take_ms() { return left_ms_ /= 2; }
  [[nodiscard]] double left_ms() const { return left_ms_; }

 private:
  double left_ms_;
};

// Plans for a cluster of which some devices (`closed`) take no new gpulets: the gpulets on them
// (`kept`) stay, and `plan` is called for the rest of the demand on the other devices. `input` has
// every device.
[[nodiscard]] schedule::Plan plan_around(
    const schedule::PlanInput& input, const std::set<schedule::DeviceKey>& closed,
    std::vector<schedule::PlannedGpulet> kept,
    const std::function<schedule::Plan(const schedule::PlanInput&)>& plan);

// ---- settings
//
// Planning options that are read as text. Pure; any thread.

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
