#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/mig/device_search.h"

namespace gpulet::schedule::mig {
namespace {

constexpr std::size_t kParents = 4;   // the individuals that survive a generation
constexpr std::size_t kChildren = 8;  // per generation
constexpr std::size_t kFewestErased = 3;
// The budget of the tree search in a crossover: rollouts times erased devices.
constexpr std::size_t kPlacements = 600;
constexpr std::uint32_t kFewestRollouts = 4;
constexpr std::uint32_t kMostRollouts = 40;

// The total rate of each service on the devices.
std::vector<double> served_rates(const DeploymentContext& context,
                                 const std::vector<InstanceMix>& devices) {
  std::vector<double> rates(context.services(), 0);
  for (const InstanceMix& mix : devices) {
    for (const UnplacedInstance& instance : mix.instances())
      rates[instance.service] += context.rate(instance);
  }
  return rates;
}

// The smallest profile, at most the instance's own, on which its service reaches the rate.
std::uint32_t smallest_profile(const DeploymentContext& context, const UnplacedInstance& instance,
                               double rate) {
  for (std::uint32_t profile = 0; profile < instance.profile; ++profile) {
    if (context.rate(instance.service, profile) >= rate) return profile;
  }
  return instance.profile;
}

// The unsold fraction of each device: services pay only for the rate that they need.
std::vector<double> wastes(const DeploymentContext& context, const Prices& prices,
                           const std::vector<InstanceMix>& devices) {
  const std::vector<double> rates = served_rates(context, devices);
  std::vector<double> wastes;
  for (const InstanceMix& mix : devices) {
    double sold = 0;
    for (const UnplacedInstance& instance : mix.instances()) {
      const double needed = std::min(1.0, context.need(instance.service) / rates[instance.service]);
      sold += prices.per_request[instance.service] * context.rate(instance) * needed;
    }
    wastes.push_back(1 - sold);
  }
  return wastes;
}

// Draws how many of the devices to erase: log-uniform between kFewestErased and all.
std::size_t draw_erased_count(std::size_t devices, Random& random) {
  if (devices <= kFewestErased) return devices;
  const double ratio = static_cast<double>(devices) / static_cast<double>(kFewestErased);
  const double count = static_cast<double>(kFewestErased) * std::pow(ratio, random.uniform());
  return std::min(devices, static_cast<std::size_t>(std::lround(count)));
}

}  // namespace

Individual make_individual(std::vector<InstanceMix> devices, const Prices& prices) {
  if (devices.empty()) return {};
  double least_used = 1;
  for (const InstanceMix& mix : devices) least_used = std::min(least_used, price_of(mix, prices));
  const double cost = static_cast<double>(devices.size()) - (1 - least_used);
  return {std::move(devices), cost};
}

void trim(const DeploymentContext& context, std::vector<InstanceMix>& devices) {
  std::vector<double> spare = served_rates(context, devices);
  for (std::size_t service = 0; service < spare.size(); ++service)
    spare[service] -= context.need(service);
  for (InstanceMix& mix : devices) {
    for (std::size_t at = mix.size; at-- > 0;) {
      UnplacedInstance& instance = mix.items[at];
      double& service_spare = spare[instance.service];
      const double rate = context.rate(instance);
      if (rate <= service_spare) {
        service_spare -= rate;
        mix.remove(at);
        continue;
      }
      instance.profile = smallest_profile(context, instance, rate - service_spare);
      service_spare -= rate - context.rate(instance);
    }
  }
  std::erase_if(devices, [](const InstanceMix& mix) { return mix.size == 0; });
}

void mutate(std::vector<InstanceMix>& devices, Random& random) {
  if (devices.size() < 2) return;
  for (std::uint64_t pairs = random.below(devices.size()); pairs-- > 0;) {
    InstanceMix& one = devices[random.below(devices.size())];
    InstanceMix& other = devices[random.below(devices.size())];
    UnplacedInstance& first = one.items[random.below(one.size)];
    UnplacedInstance& second = other.items[random.below(other.size)];
    if (first.profile == second.profile) std::swap(first.service, second.service);
  }
}

std::vector<double> erase_some(const DeploymentContext& context, const Prices& prices,
                               std::vector<InstanceMix>& devices, Random& random) {
  const std::vector<double> waste = wastes(context, prices, devices);
  // The largest random addition to a waste, in devices. At 1, mere chance may decide.
  const double chance = random.below(2) == 0 ? 1 : 0.1;
  std::vector<std::pair<double, InstanceMix>> by_waste;
  for (std::size_t at = 0; at < devices.size(); ++at)
    by_waste.emplace_back(waste[at] + chance * random.uniform(), devices[at]);
  std::stable_sort(by_waste.begin(), by_waste.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  const std::size_t erased = draw_erased_count(devices.size(), random);
  devices.clear();
  std::vector<double> unmet = context.needs();
  for (std::size_t at = 0; at + erased < by_waste.size(); ++at) {
    devices.push_back(by_waste[at].second);
    context.serve(devices.back(), unmet);
  }
  return unmet;
}

void cross_over(const DeploymentContext& context, const Prices& prices,
                std::vector<InstanceMix>& devices, Random& random) {
  const std::size_t before = devices.size();
  const std::vector<double> unmet = erase_some(context, prices, devices, random);
  const std::size_t erased = before - devices.size();
  TreeSearchOptions options;
  options.rollouts =
      std::clamp(static_cast<std::uint32_t>(kPlacements / std::max<std::size_t>(erased, 1)),
                 kFewestRollouts, kMostRollouts);
  const std::vector<InstanceMix> filling = search_tree(context, prices, unmet, options, random);
  devices.insert(devices.end(), filling.begin(), filling.end());
  trim(context, devices);
}

std::vector<Individual> next_generation(const DeploymentContext& context, const Prices& prices,
                                        std::vector<Individual> parents, std::uint64_t seed,
                                        const ForEach& for_each) {
  std::vector<Individual> children(kChildren);
  for_each(kChildren, [&](std::size_t at) {
    Random random(stream_seed(seed, std::to_string(at)));
    std::vector<InstanceMix> devices = parents[at % parents.size()].devices;
    mutate(devices, random);
    cross_over(context, prices, devices, random);
    children[at] = make_individual(std::move(devices), prices);
  });
  for (Individual& child : children) parents.push_back(std::move(child));
  std::stable_sort(
      parents.begin(), parents.end(),
      [](const Individual& one, const Individual& other) { return one.cost < other.cost; });
  if (parents.size() > kParents) parents.resize(kParents);
  return parents;
}

void run_sequentially(std::size_t count, const std::function<void(std::size_t)>& body) {
  for (std::size_t at = 0; at < count; ++at) body(at);
}

Deployment two_phase(const DeploymentTask& task, const TwoPhaseOptions& options) {
  const DeploymentContext context(task);
  const Prices prices = best_prices(context);
  std::vector<InstanceMix> greedy = greedy_mixes(context);
  trim(context, greedy);
  std::vector<Individual> best{make_individual(std::move(greedy), prices)};
  Progress progress{0, best.front().devices.size(), prices.bound};
  const std::size_t fewest = whole_devices_for(bound_of_whole_instances(context, prices));
  std::uint32_t without_gain = 0;
  while (options.go_on(progress) && progress.devices > fewest &&
         progress.round < options.most_rounds && without_gain < options.rounds_without_gain) {
    const std::uint64_t seed = stream_seed(options.seed, std::to_string(progress.round));
    best = next_generation(context, prices, std::move(best), seed, options.for_each);
    ++without_gain;
    if (best.front().devices.size() < progress.devices) without_gain = 0;
    ++progress.round;
    progress.devices = best.front().devices.size();
  }
  return context.place(best.front().devices);
}

}  // namespace gpulet::schedule::mig
