// Finds good devices for unmet needs: one device at a time (fill), greedily, and by MIG-serving's
// Monte Carlo tree search (section 5.3, appendix A.2).
//
// In the search tree a node is a vector of unmet needs and an edge is a device. A node has the K
// best devices for five services drawn at random. A rollout estimates the distance to the end: at
// each step it picks one of the good devices cached for similar states. Devices are rated by prices
// (deployment_context.h): the best devices sell for their full price. Pure; one search per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/random.h"
#include "schedule/mig/deployment_context.h"

namespace gpulet::schedule::mig {

struct RatedMix {
  InstanceMix mix;
  // Sum over the instances: worth * the part of the instance's rate that its service still needs.
  double score = 0;
};

// Fills a layout, largest instance first. Each instance goes to the service that gains the most;
// among equals to the first in `services`. Instances without a gain stay out. `unmet`: by service;
// `worth`: of one request per second, by service.
[[nodiscard]] RatedMix fill(const DeploymentContext& context, const LayoutShape& shape,
                            std::span<const std::uint32_t> services,
                            const std::vector<double>& unmet, const std::vector<double>& worth);

// The distinct devices with the highest scores, at most `most`, best first; ties are broken at
// random. Draws `services` services with unmet needs, and fills every layout for each of them, for
// each pair and for all. Empty where no need is unmet.
[[nodiscard]] std::vector<RatedMix> candidates(const DeploymentContext& context,
                                               const std::vector<double>& unmet,
                                               const std::vector<double>& worth,
                                               std::size_t services, std::size_t most,
                                               Random& random);

[[nodiscard]] std::vector<InstanceMix> greedy_mixes(const DeploymentContext& context);

struct TreeSearchOptions {
  std::uint32_t rollouts = 50;
  std::uint32_t children = 10;  // the paper's K
  std::uint32_t services = 5;   // drawn by each node
};

// Devices that meet all of the unmet needs. REQUIRES: some profile serves every unmet need.
[[nodiscard]] std::vector<InstanceMix> search_tree(const DeploymentContext& context,
                                                   const Prices& prices,
                                                   const std::vector<double>& unmet,
                                                   const TreeSearchOptions& options,
                                                   Random& random);

// ---- The genetic algorithm of MIG-serving (section 5.2, genetic.cc). An individual is a
// deployment; its genes are devices.

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

// Erases some devices, preferably wasteful ones. Returns the unmet needs.
[[nodiscard]] std::vector<double> erase_some(const DeploymentContext& context, const Prices& prices,
                                             std::vector<InstanceMix>& devices, Random& random);

// Erases some devices and fills the gap by tree search.
void cross_over(const DeploymentContext& context, const Prices& prices,
                std::vector<InstanceMix>& devices, Random& random);

// The best of the parents and their children, by ascending cost. Parents survive ties.
[[nodiscard]] std::vector<Individual> next_generation(const DeploymentContext& context,
                                                      const Prices& prices,
                                                      std::vector<Individual> parents,
                                                      std::uint64_t seed, const ForEach& for_each);

}  // namespace gpulet::schedule::mig
