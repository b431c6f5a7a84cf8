// The changes between the gpulets that run and a plan: which stay, which start, which stop, and
// where old and new ones cannot run side by side. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
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

}  // namespace gpulet::schedule
