// The static partitions that MIG-serving is compared with (Tan et al., sections 2.3 and 8.1): each
// instance serves one service. They skip services that no profile can serve. Pure; any thread.
#pragma once

#include "gpulet/schedule/mig.h"

namespace gpulet::research {

// One 7g (A30: 4g) a device.
[[nodiscard]] schedule::mig::Deployment whole_devices(const schedule::mig::DeploymentTask& task);
// 1g everywhere.
[[nodiscard]] schedule::mig::Deployment small_instances(const schedule::mig::DeploymentTask& task);
// 4-2-1, one service a device.
[[nodiscard]] schedule::mig::Deployment fixed_mix(const schedule::mig::DeploymentTask& task);

}  // namespace gpulet::research
