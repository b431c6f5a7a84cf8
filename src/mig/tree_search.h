// MIG-serving's Monte Carlo tree search (section 5.3, appendix A.2): from what services lack to a
// short list of devices that serve it. A node is what is lacking, an edge a device; a node has the
// K best devices for five services drawn at random. How far it is to the end is estimated by going
// there, choosing at each step among the good devices remembered for states of that kind.
//
// What is a good device is told by prices (prices.h): one that sells for its own price. One search
// at a time and thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/core/random.h"
#include "mig/prices.h"
#include "mig/problem.h"

namespace gpulet::mig {

struct TreeSearchOptions {
  std::uint32_t rollouts = 50;
  std::uint32_t children = 10;  // the paper's K
  std::uint32_t services = 5;   // that a node draws
};

// Devices for all of the rest. REQUIRES: nothing lacks that no profile serves.
[[nodiscard]] std::vector<Mix> search_tree(const Problem& problem, const Prices& prices,
                                           const std::vector<double>& rest,
                                           const TreeSearchOptions& options, Random& random);

// What a device's instances cost.
[[nodiscard]] double price_of(const Mix& mix, const Prices& prices);

}  // namespace gpulet::mig
