// Where there are fewer devices than a deployment uses. Pure.
#pragma once

#include <cstddef>

#include "gpulet/mig/deployment.h"

namespace gpulet::schedule {

// So many of its devices that serve most: one after the other the one that completes most of what
// is needed yet. REQUIRES: the deployment has at least so many.
[[nodiscard]] mig::Deployment most_served(const mig::Deployment& deployment, const mig::Task& task,
                                          std::size_t devices);

}  // namespace gpulet::schedule
