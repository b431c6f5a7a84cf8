// The changes between the gpulets that run and a plan: which stay, which start, which stop, and
// where old and new ones cannot run side by side. Pure; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

using partition::RunningModel;

struct RunningGpulet {
  GpuletId id;
  DeviceKey device;
  Share size;
  std::vector<RunningModel> models;                  // by name
  std::optional<partition::MigInstance> instance{};  // where MIG divides the device
  bool controlled = false;                           // Service::controlled
};

struct Steps {
  struct Keep {  // the running gpulet serves the planned one unchanged
    GpuletId running;
    std::size_t planned = 0;  // index into plan.gpulets
  };
  std::vector<Keep> keep;
  std::vector<std::size_t> create;  // indices into plan.gpulets, ascending
  std::vector<GpuletId> retire;     // ascending

  [[nodiscard]] bool empty() const { return create.empty() && retire.empty(); }
};

// A running gpulet can serve a planned one on the same device, in the same instance and of the same
// size if it has loaded every planned model for at least the planned batch, and both are controlled
// or neither is. Each running gpulet serves at most one planned one; equal sets of models are
// matched first. A plan that already runs needs no step.
[[nodiscard]] Steps reconcile(const std::vector<RunningGpulet>& running, const Plan& plan);

// New gpulets start while the old ones still serve, so a device holds both for a while. Returns the
// devices that cannot hold the gpulets that `steps` creates in addition to those in `running` (the
// draining ones included): their memory is too small, or MIG cannot create an instance next to the
// old ones or has no process left in it. Gpulets of these devices are replaced in place
// (docs/architecture.md, "The path of a plan"). A model of unknown memory counts as 0, and a device
// without a memory limit always has enough.
[[nodiscard]] std::set<DeviceKey> devices_without_rollout_capacity(
    const std::vector<RunningGpulet>& running, const Plan& plan, const Steps& steps,
    const Cluster& cluster, const profile::ProfileSet& profiles);

// ---- mixture
//
// The way from one plan to the next, gpulet by gpulet: which new gpulets may serve now, and which
// old ones end, so that what serves keeps the rules of check() at every step. Pure; any thread.

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

// ---- replacement
//
// Gpulets of a device that cannot hold new processes beside all old ones: which new processes start
// now, and which old ones end first, one gpulet at a time. Pure; any thread.

// A gpulet's process on the device.
struct DeviceProcess {
  GpuletId id;
  std::vector<std::string> models;
  std::optional<partition::MigInstance> instance{};
  bool planned = false;  // the plan to come has its gpulet
  bool settled = true;   // it neither loads nor ends

  friend bool operator==(const DeviceProcess&, const DeviceProcess&) = default;
};

struct Starts {
  std::vector<std::size_t>
      start;  // of the waiting gpulets, ascending: the device has room for them
  // Old gpulets to end so that `next` has room. Empty where something starts, loads or ends.
  std::vector<GpuletId> end;
  std::size_t next = 0;
};

// `profile`: of the device's type; null: it has none. Where nothing starts, the waiting gpulet
// whose place costs the fewest old gpulets comes next: those that share a model with it end first,
// then those of most memory. A gpulet for which there would be no room without any old one starts
// when all of them have ended.
[[nodiscard]] Starts next_starts(const Device& device, const profile::Profile* profile,
                                 const std::vector<DeviceProcess>& there,
                                 const std::vector<const PlannedGpulet*>& waiting);

// Old gpulets that end before the gpulet that replaces them can load.
struct Outage {
  std::vector<GpuletId> dark;
  std::size_t until = 0;  // of the waiting gpulets: that one serves again
};

// What next_starts() will lead to, if each old gpulet ends where those that replace it are ready.
[[nodiscard]] std::vector<Outage> expected_outages(const Device& device,
                                                   const profile::Profile* profile,
                                                   std::vector<DeviceProcess> there,
                                                   std::vector<const PlannedGpulet*> waiting);

}  // namespace gpulet::schedule
