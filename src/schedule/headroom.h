// How many requests a round may bring on average so that 99 % of Poisson arrivals keep their SLO.
//
// A gpulet that works without pause is a queue served in batches: while a round runs, N requests
// arrive, Poisson with mean m = rate times duty cycle; the next round takes up to b of them; a
// round in which nobody came is followed by one that starts with the next arrival. So there are m +
// exp(-m) requests to a round. The SLO lets a request wait k = floor((SLO - exec) / duty cycle)
// rounds, one of them the round in which it arrives. With k = 1 just the requests beyond b are
// late:
//
//     E[(N - b)+] / (m + exp(-m))
//
// With more rounds to wait a late one must also find (k - 1) b others ahead of it, which has a
// probability of about exp(-t (k - 1) b), t > 0 solving m (exp(t) - 1) = t b (the Cramer-Lundberg
// exponent of the queue). Both together are within a tenth of what the simulated queue does at k <=
// 3 and on the safe side beyond (docs/scheduling.md, "Random arrivals"). Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class HeadroomTable {
 public:
  HeadroomTable();

  // The highest mean of requests per round that batches of `batch` hold where a request may wait
  // `rounds`: 0 for no round. Rises with both. Beyond the table's last batch its utilisation holds,
  // beyond its last number of rounds that row: both on the safe side.
  [[nodiscard]] double mean(std::uint32_t batch, double rounds) const;

 private:
  static constexpr std::size_t kBatches = 64;
  static constexpr std::size_t kRounds = 6;
  std::array<std::array<double, kBatches>, kRounds> means_{};
};

// The table of that kind, which lives as long as the program; null for none: a batch of b holds b.
[[nodiscard]] const HeadroomTable* headroom_table(Headroom headroom);

}  // namespace gpulet::schedule
