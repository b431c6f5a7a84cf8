// Which batches are run side by side to see what they cost each other, and in which order. Pure;
// the same profile, models and seed give the same plan.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/profile/profile.h"

namespace gpulet::tools {

// A gpulet with one model.
struct PairSide {
  std::string model;
  Share share;

  friend auto operator<=>(const PairSide&, const PairSide&) = default;
};

// Two gpulets that fit a device together, and the batches that each can run beside the other:
// those whose latency alone the profile holds.
struct PairGroup {
  PairSide first;
  PairSide second;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> batches;  // in the order to be run

  friend bool operator==(const PairGroup&, const PairGroup&) = default;
};

struct PairChoice {
  std::vector<std::string> models;
  std::set<std::uint32_t> batches;  // empty: all that were measured
  std::set<Share> sizes;            // empty: all that were measured
  std::uint64_t seed = 1;
};

// Every two sides once, a model beside itself among them, and every two batches of theirs, in an
// order drawn with the seed: whoever stops early has seen a fair sample.
[[nodiscard]] std::vector<PairGroup> plan_pairs(const profile::Profile& profile,
                                                const PairChoice& choice);

}  // namespace gpulet::tools
