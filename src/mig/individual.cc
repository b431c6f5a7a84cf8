#include "mig/individual.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "mig/tree_search.h"

namespace gpulet::mig {
namespace {

constexpr std::size_t kFewestErased = 3;
// The tree search's work, in devices that it places.
constexpr std::size_t kPlacements = 600;
constexpr std::uint32_t kFewestRollouts = 4;
constexpr std::uint32_t kMostRollouts = 40;

std::vector<double> served(const Problem& problem, const std::vector<Mix>& devices) {
  std::vector<double> rates(problem.services(), 0);
  for (const Mix& mix : devices) {
    for (const Slot& slot : mix.slots()) rates[slot.service] += problem.rate(slot);
  }
  return rates;
}

// The smallest profile that gives the service that rate at least; its own where none does.
std::uint32_t smaller(const Problem& problem, const Slot& slot, double rate) {
  for (std::uint32_t profile = 0; profile < slot.profile; ++profile) {
    if (problem.rate(slot.service, profile) >= rate) return profile;
  }
  return slot.profile;
}

// What of a device is not sold, when services pay for what they need only.
std::vector<double> wastes(const Problem& problem, const Prices& prices,
                           const std::vector<Mix>& devices) {
  const std::vector<double> rates = served(problem, devices);
  std::vector<double> wastes;
  for (const Mix& mix : devices) {
    double sold = 0;
    for (const Slot& slot : mix.slots()) {
      const double needed = std::min(1.0, problem.need(slot.service) / rates[slot.service]);
      sold += prices.of_request[slot.service] * problem.rate(slot) * needed;
    }
    wastes.push_back(1 - sold);
  }
  return wastes;
}

// From a few to all, as often few as many.
std::size_t count_to_erase(std::size_t devices, Random& random) {
  if (devices <= kFewestErased) return devices;
  const double ratio = static_cast<double>(devices) / static_cast<double>(kFewestErased);
  const double count = static_cast<double>(kFewestErased) * std::pow(ratio, random.uniform());
  return std::min(devices, static_cast<std::size_t>(std::lround(count)));
}

}  // namespace

Individual individual(std::vector<Mix> devices, const Prices& prices) {
  double least = devices.empty() ? 0 : 1;
  for (const Mix& mix : devices) least = std::min(least, price_of(mix, prices));
  const double cost = static_cast<double>(devices.size()) - (devices.empty() ? 0 : 1 - least);
  return {std::move(devices), cost};
}

void trim(const Problem& problem, std::vector<Mix>& devices) {
  std::vector<double> spare = served(problem, devices);
  for (std::size_t service = 0; service < spare.size(); ++service)
    spare[service] -= problem.need(service);
  for (Mix& mix : devices) {
    for (std::size_t at = mix.size; at-- > 0;) {
      Slot& slot = mix.slot[at];
      const double rate = problem.rate(slot);
      if (rate <= spare[slot.service]) {
        spare[slot.service] -= rate;
        mix.drop(at);
        continue;
      }
      slot.profile = smaller(problem, slot, rate - spare[slot.service]);
      spare[slot.service] -= rate - problem.rate(slot);
    }
  }
  std::erase_if(devices, [](const Mix& mix) { return mix.size == 0; });
}

void mutate(std::vector<Mix>& devices, Random& random) {
  if (devices.size() < 2) return;
  for (std::uint64_t pairs = random.below(devices.size()); pairs-- > 0;) {
    Mix& one = devices[random.below(devices.size())];
    Mix& other = devices[random.below(devices.size())];
    Slot& first = one.slot[random.below(one.size)];
    Slot& second = other.slot[random.below(other.size)];
    if (first.profile == second.profile) std::swap(first.service, second.service);
  }
}

void cross_over(const Problem& problem, const Prices& prices, std::vector<Mix>& devices,
                Random& random) {
  const std::vector<double> waste = wastes(problem, prices, devices);
  // Chance counts as much as a whole device wasted, or a tenth of that.
  const double chance = random.below(2) == 0 ? 1 : 0.1;
  std::vector<std::pair<double, Mix>> by_waste;
  for (std::size_t at = 0; at < devices.size(); ++at)
    by_waste.emplace_back(waste[at] + chance * random.uniform(), devices[at]);
  std::stable_sort(by_waste.begin(), by_waste.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  const std::size_t erased = count_to_erase(devices.size(), random);
  devices.clear();
  std::vector<double> rest = problem.needs();
  for (std::size_t at = 0; at + erased < by_waste.size(); ++at) {
    devices.push_back(by_waste[at].second);
    problem.serve(devices.back(), rest);
  }
  TreeSearchOptions options;
  options.rollouts =
      std::clamp(static_cast<std::uint32_t>(kPlacements / std::max<std::size_t>(erased, 1)),
                 kFewestRollouts, kMostRollouts);
  const std::vector<Mix> filling = search_tree(problem, prices, rest, options, random);
  devices.insert(devices.end(), filling.begin(), filling.end());
  trim(problem, devices);
}

}  // namespace gpulet::mig
