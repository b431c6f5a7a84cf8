// How much slower a batch gets by what runs beside it on the same device.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpulet/core/share.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// One of two batches that run at the same time in two gpulets of one device.
struct CoRunner {
  std::string_view model;
  std::uint32_t batch = 0;
  Share share;
};

// The factor by which L(b, p) of `self` grows while `other` runs: taken from the measured pair of
// the same two models that is nearest in both batches and both sizes (in logarithms: twice the
// batch is as far as twice the size), as its latency over L(b, p) of the same cell alone. At least
// 1; exactly 1 where no such pair was measured. Ties go to the pair that comes first in the
// profile. Looks at every pair of the profile.
[[nodiscard]] double measured_slowdown(const Profile& profile, const CoRunner& self,
                                       const CoRunner& other);

}  // namespace gpulet::profile
