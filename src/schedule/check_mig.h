// The part of check() that is about devices divided by MIG. Pure.
#pragma once

#include <string>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// What is wrong with the gpulets of one device, in sentences that do not name the device yet: an
// instance that the device cannot have, two that share a memory slice, a size that is not its
// instance's share, several gpulets in an instance that are too many or have other models than the
// first, models that the instance's memory does not hold. For a device without MIG: a gpulet that
// names an instance.
[[nodiscard]] std::vector<std::string> check_mig(const Device& device,
                                                 const std::vector<const PlannedGpulet*>& gpulets,
                                                 const profile::Profile* profile);

}  // namespace gpulet::schedule
