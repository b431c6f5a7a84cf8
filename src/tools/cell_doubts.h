// Which measured cells may be wrong, and which of two measurements of a cell counts. Pure.
//
// Whatever else uses a machine makes batches slower, never faster, and it may last for some cells
// only. A figure that is too high then stands out from the others of its model: a batch takes at
// most as long as a larger one, and as its parts one after another; on a larger share it takes at
// most as long as on a smaller one, and on a smaller one at most as much longer as that is smaller.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/profile/latency_table.h"

namespace gpulet::tools {

// A cell is in doubt where it takes more than this many times what its neighbours allow. Caches and
// the choice of kernels make some difference, a machine that others use makes more.
inline constexpr double kAboveNeighbours = 1.4;

// How many times as long as its neighbours allow a cell takes: the nearest batches of its size and
// the nearest sizes with its batch. 0 for one without neighbours.
[[nodiscard]] double above_neighbours(const std::vector<profile::LatencySample>& samples,
                                      std::size_t cell);

// Marks the cells that are without doubt so far and are too far above their neighbours.
void doubt_by_neighbours(std::vector<profile::LatencySample>& samples);

// Of two measurements of one cell: one without doubt, else the faster one.
[[nodiscard]] profile::LatencySample better_of(const profile::LatencySample& a,
                                               const profile::LatencySample& b);

}  // namespace gpulet::tools
