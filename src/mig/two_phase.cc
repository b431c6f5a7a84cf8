#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/mig/optimise.h"
#include "mig/bounds.h"
#include "mig/greedy.h"
#include "mig/individual.h"

namespace gpulet::mig {
namespace {

constexpr std::size_t kParents = 4;
constexpr std::size_t kChildren = 8;

// The next generation: the best of the parents and of their children.
std::vector<Individual> next_generation(const Problem& problem, const Prices& prices,
                                        std::vector<Individual> parents, std::uint64_t seed,
                                        const ForEach& for_each) {
  std::vector<Individual> children(kChildren);
  for_each(kChildren, [&](std::size_t at) {
    Random random(stream_seed(seed, std::to_string(at)));
    std::vector<Mix> devices = parents[at % parents.size()].devices;
    mutate(devices, random);
    cross_over(problem, prices, devices, random);
    children[at] = individual(std::move(devices), prices);
  });
  for (Individual& child : children) parents.push_back(std::move(child));
  std::stable_sort(
      parents.begin(), parents.end(),
      [](const Individual& one, const Individual& other) { return one.cost < other.cost; });
  if (parents.size() > kParents) parents.resize(kParents);
  return parents;
}

}  // namespace

void one_after_another(std::size_t count, const std::function<void(std::size_t)>& body) {
  for (std::size_t at = 0; at < count; ++at) body(at);
}

Deployment two_phase(const Task& task, const TwoPhaseOptions& options) {
  const Problem problem(task);
  const Prices prices = best_prices(problem);
  std::vector<Mix> first = greedy_mixes(problem);
  trim(problem, first);
  std::vector<Individual> best{individual(std::move(first), prices)};
  Progress progress{0, best.front().devices.size(), prices.bound};
  const std::size_t fewest = whole_number_of(bound_of_whole_instances(problem, prices));
  std::uint32_t without_gain = 0;
  while (options.go_on(progress) && progress.devices > fewest &&
         progress.round < options.most_rounds && without_gain < options.rounds_without_gain) {
    const std::uint64_t seed = stream_seed(options.seed, std::to_string(progress.round));
    best = next_generation(problem, prices, std::move(best), seed, options.for_each);
    ++without_gain;
    if (best.front().devices.size() < progress.devices) without_gain = 0;
    ++progress.round;
    progress.devices = best.front().devices.size();
  }
  return problem.place(best.front().devices);
}

}  // namespace gpulet::mig
