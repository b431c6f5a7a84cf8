// The formula of headroom.h, worked out apart from it for check(): by the tail of the distribution
// instead of its head, by halving instead of Newton's steps, and without a table. Pure; any thread.
#pragma once

#include <cstdint>

namespace gpulet::schedule {

// The part of Poisson arrivals with `mean` requests a round that is late in batches of `batch` when
// a request may wait `rounds` rounds; 1 for no round, or for more than a batch a round.
[[nodiscard]] double late_by_chance(std::uint32_t batch, double rounds, double mean);

}  // namespace gpulet::schedule
