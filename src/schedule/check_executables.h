// The part of check() that is about executables (schedule/executables.h). Pure.
#pragma once

#include <string>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// What is wrong with one executable, in sentences that do not name it yet: anything but one request
// at a time, rates or rounds that nobody keeps, a latency that is not the profile's, a device of
// the other kind, several models where there is one to control, a part of a GPU.
[[nodiscard]] std::vector<std::string> check_executable(const Device& device,
                                                        const PlannedGpulet& gpulet,
                                                        const profile::Profile* profile,
                                                        double margin);

// The same of the gpulets of one device together: two executables of one model, or others beside
// them.
[[nodiscard]] std::vector<std::string> check_executables_together(
    const std::vector<const PlannedGpulet*>& gpulets);

}  // namespace gpulet::schedule
