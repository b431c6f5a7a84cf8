// The pairs of a profile, ordered so that the nearest one is found without looking at all of them:
// what measured_slowdown answers, to the last bit. Owns what it needs. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/core/share.h"
#include "profile/solo_traits.h"

namespace gpulet::profile {

class MeasuredPairs {
 public:
  // A batch by numbers; log_batch and log_percent are logarithms to base 2.
  struct Side {
    std::uint32_t model = 0;
    double log_batch = 0;
    double log_percent = 0;
  };

  // Keeps those whose latency alone the profile knows.
  MeasuredPairs(const std::vector<PairSample>& pairs, const Profile& profile,
                const SoloTraitsTable& models);

  [[nodiscard]] std::size_t size() const { return cells_.size(); }
  // At least 1; 1 where no pair of the two models was measured.
  [[nodiscard]] double slowdown(const Side& self, const Side& other) const;

 private:
  static constexpr std::size_t kLevels = 4;  // batch, size, other batch, other size
  using Key = std::array<double, kLevels>;

  struct Cell {
    std::uint32_t model = 0;
    std::uint32_t other_model = 0;
    Key key{};
    std::uint32_t order = 0;  // in the profile: the first one wins a tie
    double slowdown = 1;
    // Where the cells end that share this one's key up to a level.
    std::array<std::uint32_t, kLevels> end{};
  };

  std::vector<Cell> cells_;  // by models, then key
};

}  // namespace gpulet::profile
