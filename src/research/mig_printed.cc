#include "research/mig_printed.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "schedule/mig/deployment_context.h"
#include "schedule/mig/device_search.h"

namespace gpulet::research {

using namespace schedule::mig;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::size_t kSurvivors = 4;
constexpr std::size_t kChildrenOfEach = 2;
constexpr std::size_t kMostErasedPart = 5;  // a fifth

// A layout whose instances each go to the service with the highest score.
RatedMix printed_fill(const DeploymentContext& context, const LayoutShape& shape,
                      const std::vector<std::uint32_t>& services,
                      const std::vector<double>& worth) {
  RatedMix rated;
  for (const std::uint32_t profile : shape.profiles) {
    double most = 0;
    std::uint32_t chosen = 0;
    for (const std::uint32_t service : services) {
      const double score = worth[service] * context.rate(service, profile);
      if (score <= most) continue;
      most = score;
      chosen = service;
    }
    if (most <= 0) continue;
    rated.mix.add({profile, chosen});
    rated.score += most;
  }
  return rated;
}

// Lines 8 to 12 of figure 15. Almost satisfied services are part of every mixture (lines 19 to 22).
InstanceMix best_printed_mix(const DeploymentContext& context, const std::vector<double>& unmet,
                             const std::vector<double>& worth) {
  std::vector<std::uint32_t> others, mixed;
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    if (unmet[service] <= 0) continue;
    (unmet[service] <= context.device_rate(service) ? mixed : others).push_back(service);
  }
  RatedMix best;
  const auto consider = [&] {
    for (const LayoutShape& shape : context.shapes()) {
      const RatedMix rated = printed_fill(context, shape, mixed, worth);
      if (rated.score > best.score) best = rated;
    }
  };
  consider();
  for (std::size_t one = 0; one < others.size(); ++one) {
    mixed.push_back(others[one]);
    consider();
    for (std::size_t other = 0; other < one; ++other) {
      mixed.push_back(others[other]);
      consider();
      mixed.pop_back();
    }
    mixed.pop_back();
  }
  return best.mix;
}

std::vector<InstanceMix> printed_mixes(const DeploymentContext& context) {
  std::vector<InstanceMix> devices;
  std::vector<double> unmet = context.needs();
  std::vector<double> worth(context.services(), 0);
  while (true) {
    for (std::size_t service = 0; service < worth.size(); ++service) {
      const double need = context.need(service);
      worth[service] = need > 0 ? unmet[service] / need / need : 0;
    }
    const InstanceMix best = best_printed_mix(context, unmet, worth);
    if (best.size == 0) return devices;
    context.serve(best, unmet);
    devices.push_back(best);
  }
}

// Section 5.2: erases devices at random and lets the slow algorithm fill the gap.
void printed_crossover(const DeploymentContext& context, const Prices& prices,
                       std::vector<InstanceMix>& devices, Random& random) {
  const std::size_t erased =
      1 + random.below(std::max<std::size_t>(devices.size() / kMostErasedPart, 1));
  for (std::size_t count = 0; count < erased && !devices.empty(); ++count) {
    std::swap(devices[random.below(devices.size())], devices.back());
    devices.pop_back();
  }
  std::vector<double> unmet = context.needs();
  for (const InstanceMix& mix : devices) context.serve(mix, unmet);
  const std::vector<InstanceMix> filling = search_tree(context, prices, unmet, {}, random);
  devices.insert(devices.end(), filling.begin(), filling.end());
}

using Chromosomes = std::vector<std::vector<InstanceMix>>;

// Parents survive ties.
Chromosomes printed_round(const DeploymentContext& context, const Prices& prices,
                          Chromosomes parents, std::uint64_t seed, const ForEach& for_each) {
  Chromosomes children(parents.size() * kChildrenOfEach);
  for_each(children.size(), [&](std::size_t at) {
    Random random(stream_seed(seed, std::to_string(at)));
    children[at] = parents[at % parents.size()];
    mutate(children[at], random);
    printed_crossover(context, prices, children[at], random);
  });
  for (std::vector<InstanceMix>& child : children) parents.push_back(std::move(child));
  std::stable_sort(parents.begin(), parents.end(),
                   [](const auto& one, const auto& other) { return one.size() < other.size(); });
  if (parents.size() > kSurvivors) parents.resize(kSurvivors);
  return parents;
}

}  // namespace

Deployment printed_greedy(const DeploymentTask& task) {
  const DeploymentContext context(task);
  return context.place(printed_mixes(context));
}

Deployment printed_two_phase(const DeploymentTask& task, const TwoPhaseOptions& options) {
  const DeploymentContext context(task);
  const Prices prices = best_prices(context);
  Chromosomes best{printed_mixes(context)};
  Progress progress{0, best.front().size(), prices.bound};
  std::uint32_t without_gain = 0;
  while (options.go_on(progress) && progress.round < options.most_rounds &&
         without_gain < options.rounds_without_gain && progress.devices > 0) {
    const std::uint64_t seed = stream_seed(options.seed, std::to_string(progress.round));
    best = printed_round(context, prices, std::move(best), seed, options.for_each);
    without_gain = best.front().size() < progress.devices ? 0 : without_gain + 1;
    ++progress.round;
    progress.devices = best.front().size();
  }
  return context.place(best.front());
}

}  // namespace gpulet::research
