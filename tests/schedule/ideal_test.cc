#include "schedule/ideal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/schedule/generated.h"
#include "tests/support/names.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

Worked devices_with(const std::vector<Share>& sizes, std::uint32_t partitions,
                    std::uint32_t count) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", count);
  for (Device& device : worked.input.cluster.devices) {
    device.sizes = sizes;
    device.max_partitions = partitions;
  }
  worked.input.demands = {{"a", 1, 66, 32}};
  return worked;
}

// As percent, largest first.
std::set<std::vector<int>> layouts_of(const Worked& worked) {
  const PlanContext context(worked.input);
  const DeviceClass& device_class = context.classes().front();
  std::set<std::vector<int>> all;
  const auto layouts = maximal_layouts(device_class, 1000);
  for (const Layout& layout : layouts.value()) {
    std::vector<int> percents;
    for (const std::uint32_t size : layout) percents.push_back(device_class.sizes[size]);
    EXPECT_TRUE(all.insert(percents).second);
  }
  return all;
}

using Sets = std::set<std::vector<int>>;

TEST(Layouts, EqualThePapersForItsSizes) {
  EXPECT_EQ(layouts_of(devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 1)),
            (Sets{{100}, {80, 20}, {60, 40}, {50, 50}}));
}

TEST(Layouts, HaveAtMostMaxPartitionsParts) {
  EXPECT_EQ(layouts_of(devices_with({{20}, {40}, {60}}, 3, 1)),
            (Sets{{60, 40}, {60, 20, 20}, {40, 40, 20}}));
  EXPECT_EQ(layouts_of(devices_with({{60}, {100}}, 2, 1)), (Sets{{100}}));
}

TEST(Layouts, AreEmptyAboveTheLimit) {
  std::vector<Share> sizes;
  for (int percent = 1; percent <= 100; ++percent) sizes.push_back(Share{percent});
  const Worked worked = devices_with(sizes, 10, 1);
  const PlanContext context(worked.input);
  EXPECT_FALSE(maximal_layouts(context.classes().front(), 100).has_value());
}

TEST(Combinations, AreMultisetsOverEqualDevices) {
  const Worked worked = devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 4);
  const PlanContext context(worked.input);
  const std::vector<std::vector<Layout>> layouts{
      maximal_layouts(context.classes().front(), 100).value()};
  EXPECT_EQ(count_combinations(context, layouts), 35);
  int visited = 0;
  EXPECT_FALSE(any_combination(context, layouts, [&](const Combination& combination) {
    EXPECT_EQ(combination.size(), 4U);
    ++visited;
    return false;
  }));
  EXPECT_EQ(visited, 35);
}

TEST(Combinations, UseAllAllowedDevicesOfAllTypes) {
  Worked worked = devices_with({{50}, {100}}, 2, 2);
  testing::add_profile(worked, "other", {{"a", 1, 1}});
  testing::add_devices(worked, "n1", "other", 2);
  worked.input.options.max_devices = 3;
  const PlanContext context(worked.input);
  const std::vector<std::vector<Layout>> layouts{
      maximal_layouts(context.classes()[0], 100).value(),
      maximal_layouts(context.classes()[1], 100).value()};
  double visited = 0;
  any_combination(context, layouts, [&](const Combination& combination) {
    EXPECT_EQ(combination.size(), 3U);
    ++visited;
    return false;
  });
  // 2 + 1 devices, or 1 + 2, with 2 and 4 layouts: 3 * 4 + 2 * 10.
  EXPECT_EQ(visited, 32);
  EXPECT_EQ(count_combinations(context, layouts), visited);
}

// Three kinds of devices with up to five partitions: placing a model examines all of them and all
// neighbours there. Counting placements alone would understate the work by a factor of fifty.
TEST(Fill, CountsCurveLookupsAsSteps) {
  const Worked worked = testing::generated(11957690, 11);
  PlanContext context(worked.input);
  std::vector<std::vector<Layout>> layouts;
  for (const DeviceClass& device_class : context.classes()) {
    layouts.push_back(maximal_layouts(device_class, 100).value());
  }
  constexpr std::uint64_t kMostSteps = 1000;
  constexpr std::uint64_t kAfterwards = 1000;  // the last placement of the last of four orders
  int combinations = 0;
  any_combination(context, layouts, [&](const Combination& combination) {
    const std::uint64_t before = context.curve_lookups();
    const FillResult filled = fill(context, combination, kMostSteps);
    EXPECT_LE(filled.steps, kMostSteps + kAfterwards);
    EXPECT_LE(context.curve_lookups() - before, filled.steps);
    return ++combinations == 20;
  });
  EXPECT_EQ(combinations, 20);
}

// The part of the demands that finds no place on that many devices with the layout.
double unplaced_on(const Worked& worked, const Layout& layout, std::size_t devices) {
  PlanContext context(worked.input);
  const Combination combination(devices, DividedDevice{0, &layout});
  constexpr std::uint64_t kMostSteps = 10000;
  return fill(context, combination, kMostSteps).builder.unplaced_fraction();
}

// 32 requests in 33 ms, on each device.
TEST(Fill, FillsEveryDeviceToTheLastRequest) {
  Worked worked = devices_with({{100}}, 1, 2);
  worked.input.demands = {{"a", 2 * 32 * 1000.0 / 33, 66, 32}};
  EXPECT_EQ(unplaced_on(worked, {0}, 2), 0);
  worked.input.demands[0].rate *= 1.01;
  EXPECT_GT(unplaced_on(worked, {0}, 2), 0);
}

TEST(Fill, OpensAnotherDeviceWhereTheOpenOneLacksMemory) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1, 32, 700}, {"b", 1, 1, 32, 700}});
  testing::add_devices(worked, "n0", "gpu", 2);
  for (Device& device : worked.input.cluster.devices) {
    device.sizes = {{50}};
    device.memory_mb = 1000;
  }
  worked.input.demands = {{"a", 100, 66, 32}, {"b", 100, 66, 32}};
  const Layout halves{0, 0};
  EXPECT_EQ(unplaced_on(worked, halves, 2), 0);
  EXPECT_EQ(unplaced_on(worked, halves, 1), 1) << "one of the two models";
}

// b and c are too slow at 20 %, and leave too little of the 80 % for a. So a fills the 20 % and its
// rest goes next to them. In every order of the models a comes between b and c.
TEST(Fill, PutsTheRestOfAModelIntoAnEarlierGpulet) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 0, 1}, {"b", 0, 12}, {"c", 0, 12}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.cluster.devices[0].sizes = {{20}, {80}};
  worked.input.demands = {{"a", 300, 100, 32}, {"b", 28, 110, 32}, {"c", 20, 90, 32}};
  const Layout large_first{1, 0};
  EXPECT_EQ(unplaced_on(worked, large_first, 1), 0);
}

// A search remembers the rates that it found in earlier combinations.
TEST(SearchLayouts, FindsWhatFillingEachCombinationDoes) {
  constexpr SearchLimits kLimits{1'000'000, 400};
  constexpr double kUnbeaten = 1e9;
  int searches = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Worked worked = testing::generated(seed, 5);
    PlanContext context(worked.input);
    const Searched searched = search_layouts(context, kUnbeaten, kLimits);
    if (!searched.builder) continue;
    ++searches;
    std::vector<std::vector<Layout>> layouts;
    for (const DeviceClass& device_class : context.classes())
      layouts.push_back(maximal_layouts(device_class, 100).value());
    double least = kUnbeaten;
    any_combination(context, layouts, [&](const Combination& combination) {
      const FillResult filled = fill(context, combination, kLimits.each);
      least = std::min(least, filled.builder.unplaced_fraction());
      return least == 0;
    });
    EXPECT_NEAR(searched.builder->unplaced_fraction(), least, 1e-9) << "seed " << seed;
  }
  EXPECT_GE(searches, 10);
}

// Only 80 and 20 % serve everything, which no attempt of elastic finds. 60 and 40 %, which come
// later, serve more than the attempts do.
TEST(Ideal, AndElasticSearchTheLayouts) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 0, 1}, {"b", 2, 4}, {"c", 4, 0.5}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 200, 40, 32}, {"b", 98, 200, 32}, {"c", 480, 200, 32}};
  for (const char* name : {"elastic", "ideal"}) {
    const Plan plan = policy(name)->plan(worked.input);
    EXPECT_TRUE(plan.schedulable()) << name;
    EXPECT_TRUE(plan.notes.empty()) << name;
    EXPECT_EQ(testing::violations(plan, worked.input), "") << name;
  }
}

TEST(Ideal, NotesThatAClusterIsTooLargeToSearch) {
  Worked worked = devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 40);
  // Within the bound, but more than 40 devices serve within the SLO.
  worked.input.demands = {{"a", 38000, 66, 32}};
  const Plan plan = policy("ideal")->plan(worked.input);
  if (!plan.schedulable()) {
    ASSERT_EQ(plan.notes.size(), 1U);
    EXPECT_TRUE(support::names(plan.notes.front(), "40 devices", "16"));
  }
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

}  // namespace
}  // namespace gpulet::schedule
