// Corrections of a profile: how much longer batches take, or shorter, than the profile says, as
// observed while serving (docs/scheduling.md, "Feedback"). Values; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// Of one model on one type of device. A factor is the observed latency divided by that of the
// profile: 1.3 means 30 % longer. Factors are finite and positive.
struct ModelCorrection {
  double factor = 1;  // at the sizes that `at_size` lacks
  std::map<Share, double> at_size{};

  [[nodiscard]] double at(Share size) const;

  friend bool operator==(const ModelCorrection&, const ModelCorrection&) = default;
};

// By device type, then model. Models that it lacks need no correction.
using Corrections =
    std::map<std::string, std::map<std::string, ModelCorrection, std::less<>>, std::less<>>;

// 1 without a correction.
[[nodiscard]] double factor_of(const Corrections& corrections, std::string_view device_type,
                               std::string_view model, Share size);

// The profiles with every latency multiplied by its factor, exactly so at the sizes that a
// correction names. Everything else stays: pairs, utilisation, spread and memory.
[[nodiscard]] ProfileSet corrected(const ProfileSet& profiles, const Corrections& corrections);

}  // namespace gpulet::profile
