// A deployment in the genetic algorithm (MIG-serving, section 5.2): a chromosome whose genes are
// devices, with its crossover and its mutation. Plain values; any thread.
#pragma once

#include <vector>

#include "gpulet/core/random.h"
#include "mig/prices.h"
#include "mig/problem.h"

namespace gpulet::mig {

struct Individual {
  std::vector<Mix> devices;
  // Devices, of which the least used counts as far as it is used: which of two deployments of the
  // same size is nearer to one device less.
  double cost = 0;
};

[[nodiscard]] Individual individual(std::vector<Mix> devices, const Prices& prices);

// Takes instances away that are not needed and makes others smaller where that suffices.
void trim(const Problem& problem, std::vector<Mix>& devices);

// Some pairs of instances of one profile swap their services.
void mutate(std::vector<Mix>& devices, Random& random);

// Some devices are erased, rather those that waste much, and the gap is filled by tree search.
void cross_over(const Problem& problem, const Prices& prices, std::vector<Mix>& devices,
                Random& random);

}  // namespace gpulet::mig
