// Latencies of a model that was not measured, estimated from some batches that ran on the serving
// device (probes) and from the model nearest to it of those that were measured
// (docs/scheduling.md, "Estimated latencies"). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// Every latency that was not probed is multiplied by this (docs/scheduling.md, "Estimated
// latencies": how many measured cells exceed their estimate with it).
inline constexpr double kEstimateMargin = 1.25;

// The cells that an estimate covers: every size, with batches from 1 on.
struct EstimatedCells {
  std::vector<Share> sizes;
  std::uint32_t largest_batch = 1;
  double margin = kEstimateMargin;

  friend bool operator==(const EstimatedCells&, const EstimatedCells&) = default;
};

struct NearestModel {
  std::string name;
  const LatencyTable* latency = nullptr;  // of the profile; never null
};

// The measured model of the profile whose latencies at the probes are most similar in their ratios
// to each other, and then in size. Empty where none has a latency at any of the probes.
[[nodiscard]] std::optional<NearestModel> nearest_model(const Profile& profile,
                                                        std::span<const LatencySample> probes);

// A latency for every cell: exactly that of a probe where there is one. Elsewhere that of the
// nearest model, scaled as the probes are to it, with the margin. A latency is never below that of
// a probe with a smaller batch and a larger size. Beyond the largest probe, time grows at least in
// proportion to the batch. Where the nearest model has no answer, or is null, a smaller size is
// slower in proportion, and a larger one no faster. REQUIRES: at least one probe; finite, positive
// latencies; a probe per cell at most.
[[nodiscard]] LatencyTable estimated_latencies(const LatencyTable* nearest,
                                               std::span<const LatencySample> probes,
                                               const EstimatedCells& cells);

}  // namespace gpulet::profile
