// The way from one plan to the next, gpulet by gpulet: which new gpulets may serve now, and which
// old ones end, so that what serves keeps the rules of check() at every step. Pure; any thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// Gpulets and their parts of a plan.
using GpuletParts = std::map<GpuletId, PlannedGpulet>;
using WantedParts = std::map<GpuletId, const PlannedGpulet*>;  // never null

// What serves on the way between two plans is a mixture of both. A snapshot of it; refers to
// objects that outlive the call.
struct MixtureInput {
  const Cluster& cluster;  // devices that it lacks have no limits
  const profile::ProfileSet& profiles;
  const profile::InterferenceSet* interference = nullptr;  // as in PlanInput
  const GpuletParts& serving;                              // the mixture in force
  // The plan to come. A gpulet that both have changes its part without a new process.
  const WantedParts& wanted;
  const std::set<GpuletId>& ready;  // of `wanted`: those that could serve their part now
  // Models of which `wanted` lacks gpulets of the plan: what serves them now is still needed.
  const std::set<std::string>& incomplete;
  // The lesser of a model's rates in the plan before and in the plan to come. A mixture serves as
  // much, unless the one in force serves less already.
  const std::map<std::string, double>& least_rates;
  // Models whose gpulets change all at once, because a new version takes over.
  const std::set<std::string>& together;
};

struct MixtureChange {
  std::vector<GpuletId> begin;  // serve their wanted part from now on; ascending
  std::vector<GpuletId> end;    // serve no more; not in `wanted`; ascending
  bool unfinished = false;      // the work of one call was not enough: more may begin already

  [[nodiscard]] bool empty() const { return begin.empty() && end.empty(); }
  friend bool operator==(const MixtureChange&, const MixtureChange&) = default;
};

// The least rates on the way between two plans.
[[nodiscard]] std::map<std::string, double> least_rates(const GpuletParts& before,
                                                        const WantedParts& after);

// The next mixture. Ready gpulets begin where their device has room for them: shares, number,
// memory, MIG instances, and slowdowns no larger than planned. Old gpulets in their way end where
// that leaves every model its least rate; those that are not in the way serve until all wanted
// gpulets of their models do. Pairs that only fit together begin together, and longer chains as far
// as a bound on the work allows. Gpulets of a MIG instance begin and end together. If all wanted
// gpulets are ready and no model is incomplete, the result is the plan. Each mixture keeps the
// rules of check() if both plans do, other than PlanOptions::max_devices and kMostGpuletsOfNode,
// and for demands equal to the rates that it assigns. Takes a few milliseconds, and some ten
// microseconds for each gpulet that is to begin.
[[nodiscard]] MixtureChange next_mixture(const MixtureInput& input);

}  // namespace gpulet::schedule
