#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "schedule/filling.h"
#include "schedule/layouts.h"
#include "tests/schedule/generated.h"

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
  const Problem problem(worked.input);
  const DeviceClass& device_class = problem.classes().front();
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

TEST(Layouts, AreThoseOfThePaperForItsSizes) {
  EXPECT_EQ(layouts_of(devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 1)),
            (Sets{{100}, {80, 20}, {60, 40}, {50, 50}}));
}

TEST(Layouts, HaveAsManyPartsAsADeviceMayHave) {
  EXPECT_EQ(layouts_of(devices_with({{20}, {40}, {60}}, 3, 1)),
            (Sets{{60, 40}, {60, 20, 20}, {40, 40, 20}}));
  EXPECT_EQ(layouts_of(devices_with({{60}, {100}}, 2, 1)), (Sets{{100}}));
}

TEST(Layouts, AreGivenUpWhereThereAreTooMany) {
  std::vector<Share> sizes;
  for (int percent = 1; percent <= 100; ++percent) sizes.push_back(Share{percent});
  const Worked worked = devices_with(sizes, 10, 1);
  const Problem problem(worked.input);
  EXPECT_FALSE(maximal_layouts(problem.classes().front(), 100).has_value());
}

TEST(Combinations, AreMultisetsOverDevicesThatAreAlike) {
  const Worked worked = devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 4);
  const Problem problem(worked.input);
  const std::vector<std::vector<Layout>> layouts{
      maximal_layouts(problem.classes().front(), 100).value()};
  EXPECT_EQ(count_combinations(problem, layouts), 35);
  int visited = 0;
  EXPECT_FALSE(any_combination(problem, layouts, [&](const Combination& combination) {
    EXPECT_EQ(combination.size(), 4U);
    ++visited;
    return false;
  }));
  EXPECT_EQ(visited, 35);
}

TEST(Combinations, UseAsManyDevicesOfAllTypesAsAreAllowed) {
  Worked worked = devices_with({{50}, {100}}, 2, 2);
  testing::add_profile(worked, "other", {{"a", 1, 1}});
  testing::add_devices(worked, "n1", "other", 2);
  worked.input.options.max_devices = 3;
  const Problem problem(worked.input);
  const std::vector<std::vector<Layout>> layouts{
      maximal_layouts(problem.classes()[0], 100).value(),
      maximal_layouts(problem.classes()[1], 100).value()};
  double visited = 0;
  any_combination(problem, layouts, [&](const Combination& combination) {
    EXPECT_EQ(combination.size(), 3U);
    ++visited;
    return false;
  });
  // 2 + 1 devices, or 1 + 2, with 2 and 4 layouts: 3 * 4 + 2 * 10.
  EXPECT_EQ(visited, 32);
  EXPECT_EQ(count_combinations(problem, layouts), visited);
}

RC_GTEST_PROP(Ideal, SchedulesWhateverElasticDoes, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const Worked worked = testing::generated(seed, 8);
  if (policy("elastic")->plan(worked.input).schedulable()) {
    RC_ASSERT(policy("ideal")->plan(worked.input).schedulable());
  }
}

// Three kinds of devices, divided in up to five: to place a model is to ask for room in all of
// them, and beside everyone there. Counted in placements alone such a search looked at fifty times
// as much as its steps said.
TEST(Filling, CountsWhatItTakesToAskForRoom) {
  const Worked worked = testing::generated(11957690, 11);
  Problem problem(worked.input);
  std::vector<std::vector<Layout>> layouts;
  for (const DeviceClass& device_class : problem.classes()) {
    layouts.push_back(maximal_layouts(device_class, 100).value());
  }
  constexpr std::uint64_t kMostSteps = 1000;
  constexpr std::uint64_t kAfterwards = 1000;  // of the last placement, in the last of four orders
  int combinations = 0;
  any_combination(problem, layouts, [&](const Combination& combination) {
    const std::uint64_t before = problem.rows_asked();
    const Filling filling = fill(problem, combination, kMostSteps);
    EXPECT_LE(filling.steps, kMostSteps + kAfterwards);
    EXPECT_LE(problem.rows_asked() - before, filling.steps);
    return ++combinations == 20;
  });
  EXPECT_EQ(combinations, 20);
}

TEST(Ideal, SaysThatAClusterIsTooLargeToSearch) {
  Worked worked = devices_with({{20}, {40}, {50}, {60}, {80}, {100}}, 2, 40);
  // Little enough for a bound not to rule it out, more than 40 devices serve within the objective.
  worked.input.demands = {{"a", 38000, 66, 32}};
  const Plan plan = policy("ideal")->plan(worked.input);
  if (!plan.schedulable()) {
    ASSERT_EQ(plan.notes.size(), 1U);
    EXPECT_NE(plan.notes.front().find("40 devices, more than 16"), std::string::npos);
  }
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

}  // namespace
}  // namespace gpulet::schedule
