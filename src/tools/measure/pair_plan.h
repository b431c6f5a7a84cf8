// Which pairs of batches are measured beside each other, and in which order, so that few processes
// are started. Values and pure functions; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"

namespace gpulet::tools {

// A gpulet with one model.
struct PairSide {
  std::string model;
  Share share;

  friend auto operator<=>(const PairSide&, const PairSide&) = default;
};

// Two gpulets that fit on one device, and the pairs of batches to measure. The profile has the solo
// latency of each batch.
struct PairGroup {
  PairSide first;
  PairSide second;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> batches;  // in this order

  friend bool operator==(const PairGroup&, const PairGroup&) = default;
};

struct PairChoice {
  std::vector<std::string> models;
  std::set<std::uint32_t> batches;  // empty: all in the profile
  std::set<Share> sizes;            // empty: all in the profile
  std::uint64_t seed = 1;
};

// Every pair of sides once, including a model beside itself, with every pair of their batches. The
// order is random but fixed by the seed, so that a run that stops early has a fair sample.
[[nodiscard]] std::vector<PairGroup> plan_pairs(const profile::Profile& profile,
                                                const PairChoice& choice);

[[nodiscard]] std::size_t count_pairs(const std::vector<PairGroup>& groups);

// The groups without the pairs of batches that `measured` has in both directions.
[[nodiscard]] std::vector<PairGroup> without_measured(
    std::vector<PairGroup> groups, const std::vector<profile::PairSample>& measured);

// A gpulet of a run. A side beside itself needs two: copies 0 and 1.
struct PairGpulet {
  PairSide side;
  int copy = 0;

  friend auto operator<=>(const PairGpulet&, const PairGpulet&) = default;
};

struct PairVisit {
  PairGpulet first;
  PairGpulet second;
  std::uint32_t first_batch = 0;
  std::uint32_t second_batch = 0;

  friend bool operator==(const PairVisit&, const PairVisit&) = default;
};

// The gpulets that are loaded at the same time, and the pairs that are measured meanwhile.
struct PairRound {
  std::set<PairGpulet> gpulets;
  std::vector<PairVisit> visits;

  friend bool operator==(const PairRound&, const PairRound&) = default;
};

// What a device holds at the same time.
struct ParkingSpace {
  std::size_t gpulets = 2;  // at least 2
  double memory_mb = 0;     // 0: not limited
};

// The memory of a process with that model.
using NeedOfModel = std::function<double(const std::string& model)>;

// Every pair of the groups once, in an order that is random but fixed by the seed. If all gpulets
// fit, there is one round. Otherwise they are divided into blocks, every two of which fit, and each
// round has the pairs of two blocks. Two gpulets are loaded even where they exceed the memory.
[[nodiscard]] std::vector<PairRound> plan_rounds(const std::vector<PairGroup>& groups,
                                                 const ParkingSpace& space,
                                                 const NeedOfModel& need_mb, std::uint64_t seed);

}  // namespace gpulet::tools
