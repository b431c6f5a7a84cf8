// Where new gpulets have no room beside the old ones. New ones are prepared while the old ones
// serve, so that for a while a device holds both; where it cannot, they are replaced in place
// (docs/architecture.md, "Reorganisation"). Pure; any thread.
#pragma once

#include <set>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::schedule {

// The devices that get a new gpulet by `steps`, and do not hold those beside all that are `there`
// (those on their way out included): their memory is too small, or a new one's instance of MIG
// cannot be made beside the old ones' or has as many gpulets as it may. A model whose memory was
// not measured counts as nothing, and so does a device without a limit.
[[nodiscard]] std::set<DeviceKey> devices_without_shadow_room(
    const std::vector<RunningGpulet>& there, const Plan& plan, const Steps& steps,
    const Cluster& cluster, const profile::ProfileSet& profiles);

}  // namespace gpulet::schedule
