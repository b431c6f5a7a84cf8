// Latencies beside the measured ones: estimated, stated in a models file, corrected by what serving
// showed.
//
// Estimates are latencies of a model that was not measured, made from some batches that ran on the
// serving device (probes) and from the model nearest to it of those that were measured
// (docs/scheduling.md, "Estimated latencies"). Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"

namespace gpulet::config {
struct Measurement;
struct ModelConfig;
}  // namespace gpulet::config

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

// ---- stated
//
// The figures that a models file states in the entry of a model (config::Measurement). Pure; any
// thread.

// The latencies of one process and the memory; the other figures have no place in an entry.
// REQUIRES: the profile has the model, or all of its buckets.
[[nodiscard]] config::Measurement measurement_of(const Profile& measured,
                                                 const config::ModelConfig& model);

// Puts the figures of the entry in place of those that the profiles have for the model. A type of
// device without a profile gets one. REQUIRES: the entry was read from a models file.
void state_figures(const config::ModelConfig& entry, ProfileSet& profiles);

// ---- corrections
//
// Corrections of a profile: how much longer batches take, or shorter, than the profile says, as
// observed while serving (docs/scheduling.md, "Feedback"). Values; any thread.

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
