// A policy is a pure function from a PlanInput to a Plan: no clock, randomness, log or I/O. It
// iterates in sorted order and breaks ties by name, so the same input gives the same bytes. It
// explains inside the value (`unserved`, `notes`). Every plan is held against check() before anyone
// acts on it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// How much more than the mean a round must hold (docs/scheduling.md, "Random arrivals").
enum class Headroom {
  none,     // the mean: right for arrivals like clockwork
  poisson,  // what keeps 99 % of Poisson arrivals within their SLO
};

// With Headroom::poisson, the part of a model's requests that chance may make late: half of the 1 %
// that a plan promises. The other half is for what the formula leaves out.
inline constexpr double kMostLateByChance = 0.005;

struct PlanOptions {
  double margin = 1.05;                      // every latency is multiplied by it; at least 1
  std::optional<std::uint32_t> max_devices;  // use at most so many
  Headroom headroom = Headroom::poisson;
};

// What a policy may look at. The referenced profiles outlive the call.
struct PlanInput {
  Cluster cluster;
  std::vector<ModelDemand> demands;
  const profile::ProfileSet* profiles = nullptr;  // REQUIRES: not null
  // By device type; null: every slowdown is 1. Outlives the call.
  const profile::InterferenceSet* interference = nullptr;
  const Plan* current = nullptr;  // the plan in force, or null: unchanged gpulets keep their place
  PlanOptions options;
};

class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Fewer devices may be enough, so that the scaling loop makes sense around it.
  [[nodiscard]] virtual bool scales() const { return true; }
  // REQUIRES: validate(input) is ok. Never throws for any valid input; what cannot be served is in
  // `unserved`.
  [[nodiscard]] virtual Plan plan(const PlanInput& input) const = 0;
};

// Refuses (invalid) what no policy should see: negative, NaN or infinite rates, SLOs and memory, a
// demand named twice or not at all, a max_batch or max_partitions of 0, a device type without a
// profile, sizes outside 1..100 or unsorted or, where MIG divides, others than its profiles', a
// margin below 1, two devices with one key. A model
// without a profile, or with an SLO that nothing meets, is no error here: it is `unserved`.
[[nodiscard]] Status validate(const PlanInput& input);

// The policy of that name. Fails (not_found) with the names there are.
[[nodiscard]] Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
[[nodiscard]] std::vector<std::string_view> policy_names();

}  // namespace gpulet::schedule
