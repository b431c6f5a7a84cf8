// Direct tests of the optimiser's steps: filling a device, tree search, and the genetic operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "schedule/mig/device_search.h"

namespace gpulet::schedule::mig {
namespace {

using partition::MigGeometry;
using Instances = std::vector<UnplacedInstance>;

// The profiles of an A100, by index.
constexpr std::uint32_t k1g = 0, k2g = 1, k3g = 2, k4g = 3, k7g = 4;

DeploymentTask task_of(std::vector<Service> services) {
  return {MigGeometry::of("a100-40").value(), std::move(services)};
}

// Four services with different growth over the profiles; the last one is too large for 1g.
DeploymentTask mixed_task() {
  return task_of({{"linear", 33, {1, 2, 3, 4, 7}},
                  {"sub-linear", 41, {2, 3.5, 4.5, 5, 7}},
                  {"super-linear", 57, {1, 2.2, 3.8, 5.4, 11}},
                  {"large", 29, {0, 2, 3.2, 4.5, 8}}});
}

InstanceMix mix_of(const Instances& instances) {
  InstanceMix mix;
  for (const UnplacedInstance& instance : instances) mix.add(instance);
  return mix;
}

Instances sorted_instances(const InstanceMix& mix) {
  Instances instances(mix.instances().begin(), mix.instances().end());
  std::sort(instances.begin(), instances.end());
  return instances;
}

std::vector<Instances> sorted_devices(const std::vector<InstanceMix>& devices) {
  std::vector<Instances> all;
  for (const InstanceMix& mix : devices) all.push_back(sorted_instances(mix));
  std::sort(all.begin(), all.end());
  return all;
}

// One instance per device: as wasteful as a deployment can be.
std::vector<InstanceMix> one_instance_per_device(const DeploymentContext& context) {
  std::vector<InstanceMix> devices;
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    std::uint32_t profile = 0;
    while (context.rate(service, profile) <= 0) ++profile;
    for (double unmet = context.need(service); unmet > 0; unmet -= context.rate(service, profile))
      devices.push_back(mix_of({{profile, service}}));
  }
  return devices;
}

void expect_valid(const DeploymentTask& task, const std::vector<InstanceMix>& devices) {
  EXPECT_TRUE(faults(DeploymentContext(task).place(devices), task).empty());
}

const LayoutShape& shape_of(const DeploymentContext& context, std::vector<std::uint32_t> profiles) {
  return *std::find_if(context.shapes().begin(), context.shapes().end(),
                       [&](const LayoutShape& shape) { return shape.profiles == profiles; });
}

TEST(DeviceSearchTest, FillGivesEachInstanceToTheServiceThatGainsMost) {
  const DeploymentContext context(
      task_of({{"a", 100, {1, 2, 3, 4, 7}}, {"b", 100, {2, 3, 4, 5, 8}}}));
  const LayoutShape& shape = shape_of(context, {k4g, k3g});
  const std::vector<std::uint32_t> a_first{0, 1}, b_first{1, 0};
  // The 4g: 4 for a, but only 3 for b. The 3g: 3 for both.
  const RatedMix tie = fill(context, shape, a_first, {100, 3}, {1, 1});
  EXPECT_EQ(sorted_instances(tie.mix), (Instances{{k3g, 0}, {k4g, 0}}));
  EXPECT_DOUBLE_EQ(tie.score, 7);
  EXPECT_EQ(sorted_instances(fill(context, shape, b_first, {100, 3}, {1, 1}).mix),
            (Instances{{k3g, 1}, {k4g, 0}}));
  // Twice the worth decides for b; the first instance leaves b nothing to gain.
  const RatedMix worth_more = fill(context, shape, a_first, {100, 3}, {1, 2});
  EXPECT_EQ(sorted_instances(worth_more.mix), (Instances{{k3g, 0}, {k4g, 1}}));
  EXPECT_DOUBLE_EQ(worth_more.score, 9);
  // An instance that no service needs stays out.
  EXPECT_EQ(sorted_instances(fill(context, shape, a_first, {4, 0}, {1, 1}).mix),
            (Instances{{k4g, 0}}));
}

TEST(DeviceSearchTest, CandidatesAreDistinctAndSortedByScore) {
  const DeploymentTask task = mixed_task();
  const DeploymentContext context(task);
  const std::vector<double> worth = best_prices(context).per_request;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed);
    const auto found = candidates(context, context.needs(), worth, 3, 8, random);
    ASSERT_EQ(found.size(), 8U);
    std::vector<Instances> mixes;
    for (std::size_t at = 0; at < found.size(); ++at) {
      EXPECT_NO_THROW((void)context.place({&found[at].mix, 1}));
      if (at > 0) {
        EXPECT_LE(found[at].score, found[at - 1].score + 1e-8);
      }
      EXPECT_EQ(std::count(mixes.begin(), mixes.end(), sorted_instances(found[at].mix)), 0);
      mixes.push_back(sorted_instances(found[at].mix));
    }
  }
  Random random(1);
  EXPECT_TRUE(candidates(context, {0, 0, 0, 0}, worth, 3, 8, random).empty());
}

TEST(TreeSearchTest, MeetsAllNeedsAndImprovesWithRollouts) {
  const DeploymentTask task = mixed_task();
  const DeploymentContext context(task);
  const Prices prices = best_prices(context);
  // The number of devices, with the last one counted by its used fraction.
  const auto length_after = [&](std::uint32_t rollouts, std::uint64_t seed) {
    Random random(seed);
    const std::vector<InstanceMix> devices =
        search_tree(context, prices, context.needs(), {.rollouts = rollouts}, random);
    expect_valid(task, devices);
    return static_cast<double>(devices.size() - 1) + price_of(devices.back(), prices);
  };
  double few = 0, many = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const double first = length_after(1, seed);
    const double best = length_after(60, seed);
    EXPECT_LE(best, first) << seed << ": the first rollout is the same";
    few += first;
    many += best;
  }
  EXPECT_LT(many, few - 1) << "of 20 searches";
}

// Only a search that returns to the devices that turned out well finds this in 200 rollouts.
TEST(TreeSearchTest, FindsTheShortestDeploymentOfASmallTaskFromAlmostEverySeed) {
  DeploymentTask task = mixed_task();
  constexpr std::array<double, 4> kNeeds{4, 5, 6, 5};
  for (std::size_t service = 0; service < kNeeds.size(); ++service)
    task.services[service].need = kNeeds[service];
  const DeploymentContext context(task);
  const Prices prices = prices_by_slices(context);
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const std::vector<InstanceMix> devices =
        search_tree(context, prices, context.needs(), {.rollouts = 200}, random);
    expect_valid(task, devices);
    // Two devices and three slices of a third.
    found += devices.size() == 3 && price_of(devices.back(), prices) <= 3.0 / 7 + 1e-9 ? 1 : 0;
  }
  EXPECT_GE(found, 18);
}

TEST(TreeSearchTest, ServesOnlyTheUnmetNeeds) {
  const DeploymentContext context(mixed_task());
  const Prices prices = best_prices(context);
  Random random(1);
  const auto devices = search_tree(context, prices, {0, 0, 5, 0}, {}, random);
  ASSERT_EQ(devices.size(), 1U);
  for (const UnplacedInstance& instance : devices.front().instances())
    EXPECT_EQ(instance.service, 2U);
  EXPECT_TRUE(search_tree(context, prices, {0, 0, 0, 0}, {}, random).empty());
}

TEST(GeneticTest, TrimRemovesAndShrinksInstances) {
  const DeploymentContext context(task_of({{"a", 3, {1, 2, 3, 4, 7}}}));
  std::vector<InstanceMix> devices{mix_of({{k4g, 0}}), mix_of({{k7g, 0}})};
  trim(context, devices);
  EXPECT_EQ(sorted_devices(devices), (std::vector<Instances>{{{k3g, 0}}}));
  trim(context, devices);
  EXPECT_EQ(sorted_devices(devices), (std::vector<Instances>{{{k3g, 0}}})) << "nothing to spare";
}

TEST(GeneticTest, MutationSwapsServicesBetweenInstancesOfOneProfile) {
  const std::vector<InstanceMix> before{mix_of({{k4g, 0}, {k3g, 0}}), mix_of({{k4g, 1}, {k3g, 1}}),
                                        mix_of({{k4g, 2}, {k2g, 2}, {k1g, 2}})};
  const auto services_by_profile = [](const std::vector<InstanceMix>& devices) {
    std::map<std::uint32_t, std::multiset<std::uint32_t>> services;
    for (const InstanceMix& mix : devices) {
      for (const UnplacedInstance& instance : mix.instances())
        services[instance.profile].insert(instance.service);
    }
    return services;
  };
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<InstanceMix> after = before;
    Random random(seed);
    mutate(after, random);
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t device = 0; device < after.size(); ++device) {
      ASSERT_EQ(after[device].size, before[device].size);
      for (std::uint32_t at = 0; at < after[device].size; ++at)
        EXPECT_EQ(after[device].items[at].profile, before[device].items[at].profile);
    }
    EXPECT_EQ(services_by_profile(after), services_by_profile(before));
    changed += sorted_devices(after) != sorted_devices(before) ? 1 : 0;
  }
  EXPECT_GE(changed, 5);
}

TEST(GeneticTest, ErasingLeavesWhatTheOtherDevicesDoNotServe) {
  const DeploymentContext context(mixed_task());
  const Prices prices = best_prices(context);
  const std::vector<InstanceMix> all = one_instance_per_device(context);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<InstanceMix> devices = all;
    Random random(seed);
    const std::vector<double> unmet = erase_some(context, prices, devices, random);
    EXPECT_LE(devices.size(), all.size() - 3);
    std::vector<double> expected = context.needs();
    for (const InstanceMix& mix : devices) context.serve(mix, expected);
    EXPECT_EQ(unmet, expected);
  }
}

TEST(GeneticTest, CrossoverRefillsAWastefulDeployment) {
  const DeploymentTask task = mixed_task();
  const DeploymentContext context(task);
  const Prices prices = best_prices(context);
  const std::vector<InstanceMix> wasteful = one_instance_per_device(context);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<InstanceMix> devices = wasteful;
    Random random(seed);
    cross_over(context, prices, devices, random);
    expect_valid(task, devices);
    EXPECT_LT(devices.size(), wasteful.size());
    EXPECT_GE(static_cast<double>(devices.size()), prices.bound);
  }
}

TEST(GeneticTest, CostCountsTheLeastUsedDeviceByItsUsedPart) {
  const DeploymentContext context(task_of({{"a", 100, {1, 2, 3, 4, 7}}}));
  const Prices prices = prices_by_slices(context);
  const Individual one =
      make_individual({mix_of({{k7g, 0}}), mix_of({{k2g, 0}, {k1g, 0}})}, prices);
  EXPECT_NEAR(one.cost, 1 + 3.0 / 7, 1e-12);
  EXPECT_EQ(make_individual({}, prices).cost, 0);
}

// Child i of a generation, made by hand: mutated, then crossed over.
Individual child_of(const DeploymentContext& context, const Prices& prices,
                    const std::vector<Individual>& parents, std::uint64_t seed, std::size_t i) {
  Random random(stream_seed(seed, std::to_string(i)));
  std::vector<InstanceMix> devices = parents[i % parents.size()].devices;
  mutate(devices, random);
  cross_over(context, prices, devices, random);
  return make_individual(std::move(devices), prices);
}

TEST(GeneticTest, TheNextGenerationHasTheBestFourOfParentsAndEightChildren) {
  const DeploymentTask task = mixed_task();
  const DeploymentContext context(task);
  const Prices prices = best_prices(context);
  std::vector<Individual> parents{make_individual(one_instance_per_device(context), prices)};
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::vector<Individual> expected = parents;
    for (std::size_t i = 0; i < 8; ++i)
      expected.push_back(child_of(context, prices, parents, seed, i));
    std::stable_sort(expected.begin(), expected.end(),
                     [](const Individual& a, const Individual& b) { return a.cost < b.cost; });
    const std::vector<Individual> next =
        next_generation(context, prices, parents, seed, run_sequentially);
    ASSERT_EQ(next.size(), 4U);
    for (std::size_t at = 0; at < next.size(); ++at) {
      expect_valid(task, next[at].devices);
      EXPECT_EQ(next[at].cost, expected[at].cost);
      EXPECT_EQ(sorted_devices(next[at].devices), sorted_devices(expected[at].devices));
    }
    EXPECT_LE(next.front().cost, parents.front().cost);
    if (seed == 1) {
      EXPECT_LT(next.front().cost, parents.front().cost) << "children are better";
    }
    parents = next;
  }
}

}  // namespace
}  // namespace gpulet::schedule::mig
