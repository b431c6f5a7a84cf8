// How much slower one model's batches get beside another model's, up to a largest batch of the
// other: worked out once for each pair of places, between which planning then only looks up. Where
// rows_beside.h reckons with every batch that the neighbour's SLO allows, this is for neighbours
// whose batches are known. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "gpulet/profile/interference.h"
#include "schedule/problem.h"

namespace gpulet::schedule {

// A model at a size of a class, by index.
struct ModelAtSize {
  std::uint32_t device_class = 0;
  std::uint32_t model = 0;
  std::uint32_t size = 0;
};

// The slowdowns of one place by another. Both are looked at at their knots: the batches between
// which a slowdown is linear.
struct SlowdownTable {
  std::size_t others = 0;     // knots of the other
  std::vector<double> worst;  // [own knot * others + other knot]: of the other's knots up to that

  [[nodiscard]] double at(std::size_t own_knot, std::size_t other_knot) const {
    return worst[own_knot * others + other_knot];
  }
};

class SlowdownTables {
 public:
  // `problem` outlives it.
  explicit SlowdownTables(const Problem& problem) : problem_(&problem) {}

  // Ascending, at least one; the last is no smaller than the largest batch of the row alone, if any
  // is. REQUIRES: the class interferes, and the row alone has a batch.
  [[nodiscard]] std::span<const std::uint32_t> knots(const ModelAtSize& place);
  // Stays where it is. REQUIRES: both places are of one class, and as for knots().
  [[nodiscard]] const SlowdownTable& of(const ModelAtSize& self, const ModelAtSize& other);

 private:
  struct Knots {
    std::vector<std::uint32_t> batches;
    std::vector<profile::BatchTraits> traits;  // beside batches
  };
  const Knots& knots_of(const ModelAtSize& place);

  const Problem* problem_;
  std::unordered_map<std::uint64_t, Knots> knots_;
  std::unordered_map<std::uint64_t, SlowdownTable> tables_;
};

}  // namespace gpulet::schedule
