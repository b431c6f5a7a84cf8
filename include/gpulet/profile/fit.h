// Fits the models of interference to a profile's measured pairs, and tells how far they are off on
// pairs that they did not see. docs/interference.md. Deterministic for the profile and the options;
// pure; any thread. Some tenths of a second for thousands of pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpulet/core/status.h"
#include "gpulet/profile/interference_fit.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// Fewer usable pairs say nothing about pairs that were not measured.
inline constexpr std::size_t kLeastPairs = 20;

struct FitOptions {
  std::uint64_t seed = 1;       // draws the fitted pairs, and the trees' rows
  double train_fraction = 0.7;  // of the pairs are fitted, the others held out; above 0, below 1
};

// A profile with too few pairs, or without utilisation, gets a fit that says so in its note and
// lacks what needs them. Fails (invalid) on a train_fraction out of bounds.
[[nodiscard]] Result<InterferenceFit> fit_interference(const Profile& profile,
                                                       const FitOptions& options);

}  // namespace gpulet::profile
