// The genetic algorithm of MIG-serving (section 5.2). An individual is a deployment; its genes are
// devices. Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/base/random.h"
#include "schedule/mig/deployment_context.h"
#include "schedule/mig/prices.h"

namespace gpulet::schedule::mig {

struct Individual {
  std::vector<InstanceMix> devices;
  // The number of devices, with the least used one counted by the used fraction. Among deployments
  // of one size the lowest cost is the nearest to one device less.
  double cost = 0;
};

[[nodiscard]] Individual make_individual(std::vector<InstanceMix> devices, const Prices& prices);

// Removes instances that are not needed and shrinks instances where a smaller one suffices.
void trim(const DeploymentContext& context, std::vector<InstanceMix>& devices);

// Swaps the services of some pairs of instances of one profile.
void mutate(std::vector<InstanceMix>& devices, Random& random);

// Erases some devices, preferably wasteful ones, and fills the gap by tree search.
void cross_over(const DeploymentContext& context, const Prices& prices,
                std::vector<InstanceMix>& devices, Random& random);

// The best of the parents and their children, by ascending cost. Parents survive ties.
[[nodiscard]] std::vector<Individual> next_generation(const DeploymentContext& context,
                                                      const Prices& prices,
                                                      std::vector<Individual> parents,
                                                      std::uint64_t seed, const ForEach& for_each);

}  // namespace gpulet::schedule::mig
