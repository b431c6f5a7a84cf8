// What the learned model is told of a batch and its neighbour. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "gpulet/profile/interference.h"

namespace gpulet::profile {

// In the order in which trees number them: of the batch itself, then of the neighbour.
inline constexpr std::array<std::string_view, 16> kFeatureNames{"log2_batch",
                                                                "share",
                                                                "log_latency_ms",
                                                                "flatness",
                                                                "log_stretch",
                                                                "log_work",
                                                                "l2",
                                                                "dram",
                                                                "other_log2_batch",
                                                                "other_share",
                                                                "other_log_latency_ms",
                                                                "other_flatness",
                                                                "other_log_stretch",
                                                                "other_log_work",
                                                                "other_l2",
                                                                "other_dram"};
using Features = std::array<float, kFeatureNames.size()>;

// Which model it is, is not among them: they must do for models that were never paired.
// Utilisation is held at 0 where it was not measured.
[[nodiscard]] inline Features features_of(const SoloTraits& self, const SoloTraits& other,
                                          bool utilization) {
  const double used = utilization ? 1 : 0;
  Features features{};
  std::size_t next = 0;
  for (const SoloTraits* side : {&self, &other}) {
    for (const double number :
         {side->log2_batch, side->share, side->log_latency_ms, side->flatness, side->log_stretch,
          side->log_work, side->l2 * used, side->dram * used}) {
      features[next++] = static_cast<float>(number);
    }
  }
  return features;
}

}  // namespace gpulet::profile
