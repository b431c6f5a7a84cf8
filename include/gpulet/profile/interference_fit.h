// What fitting the models of interference to a profile's pairs left behind; kept in the profile.
// Values; any thread. How they are made: fit.h. What they predict: interference.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/profile/boosted_trees.h"

namespace gpulet::profile {

enum class InterferenceKind { none, linear, learned, measured, inss };

// slowdown = l2_self * L2(self) + l2_other * L2(other) + dram_self * DRAM(self) + dram_other *
// DRAM(other) + constant, of utilisations 0..1. gpulet, section 4.4.
struct LinearCoefficients {
  double l2_self = 0;
  double l2_other = 0;
  double dram_self = 0;
  double dram_other = 0;
  double constant = 1;

  friend bool operator==(const LinearCoefficients&, const LinearCoefficients&) = default;
};

// How far predictions are from pairs that the fit did not see: |predicted - measured latency| over
// the measured one, at three percentiles.
struct HeldOutErrors {
  InterferenceKind kind = InterferenceKind::none;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  // By model: the 90th percentile over the pairs in which it occurs, when none of them was fitted.
  std::map<std::string, double, std::less<>> unseen_model_p90;

  friend bool operator==(const HeldOutErrors&, const HeldOutErrors&) = default;
};

struct InterferenceFit {
  std::uint64_t seed = 0;
  double train_fraction = 0;                 // of the pairs, drawn with the seed
  std::size_t pairs = 0;                     // those whose latency alone is known too
  std::optional<LinearCoefficients> linear;  // fitted on the drawn fraction
  // Fitted on all pairs, once the drawn fraction had told the errors: more pairs only help it.
  std::optional<BoostedTrees> learned;
  bool learned_uses_utilization = false;  // false: its features of utilisation were held at 0
  std::vector<HeldOutErrors> errors;      // each kind's, fitted on the drawn fraction alone
  std::string note;                       // what could not be fitted, and why; empty: nothing

  friend bool operator==(const InterferenceFit&, const InterferenceFit&) = default;
};

}  // namespace gpulet::profile
