#include "gpulet/mig/transition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "tests/mig/transition_checks.h"

namespace gpulet::mig {
namespace {

using partition::MigGeometry;
using partition::MigInstance;
using partition::MigLayout;
using ::testing::HasSubstr;

MigGeometry geometry(std::string_view name) { return MigGeometry::of(name).value(); }

// `count` devices, so many to a node.
std::vector<TransitionDevice> devices(std::size_t count, std::size_t to_a_node = 8,
                                      const MigGeometry& of = geometry("a100-80")) {
  std::vector<TransitionDevice> all;
  for (std::size_t at = 0; at < count; ++at)
    all.push_back({"node" + std::to_string(at / to_a_node), of});
  return all;
}

Holding holding(std::uint32_t device, MigInstance instance, std::uint32_t service, double rate) {
  return {device, instance, {{service, rate}}};
}

// Choices made by numbers drawn beforehand.
class Dice {
 public:
  explicit Dice(std::vector<std::uint32_t> rolls) : rolls_(std::move(rolls)) {}

  std::size_t below(std::size_t bound) {
    state_ += 0x9E3779B97F4A7C15ULL + rolls_[next_++ % rolls_.size()];
    std::uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<std::size_t>((mixed ^ (mixed >> 31)) % bound);
  }
  bool chance(std::size_t percent) { return below(100) < percent; }

 private:
  std::vector<std::uint32_t> rolls_;
  std::size_t next_ = 0;
  std::uint64_t state_ = 0;
};

class PairOfDeployments {
 public:
  explicit PairOfDeployments(Dice& dice) : dice_(dice) {}

  // `used` devices that either deployment may use, and spare ones; all alike or of two types.
  TransitionTask draw(std::size_t used, std::size_t spare) {
    TransitionTask task;
    const bool mixed = dice_.chance(20);
    const bool strict = dice_.chance(20);
    for (std::size_t at = 0; at < used + spare; ++at) {
      const bool is_a30 = mixed && at % used % 3 == 0;
      const MigGeometry whole = geometry(is_a30 ? "a30" : "a100-80");
      task.devices.push_back(
          {"node" + std::to_string(at / 4), strict ? whole.without_3g_beside_4g() : whole});
    }
    const std::size_t services = 1 + dice_.below(5);
    for (std::size_t at = 0; at < services; ++at) {
      task.services.push_back("s" + std::to_string(at));
      efficiency_.push_back(0.6 + 0.1 * static_cast<double>(dice_.below(8)));
      unit_.push_back(1 + static_cast<double>(dice_.below(50)));
    }
    if (dice_.chance(30)) {
      shuffle_full_devices(task, used);
      return task;
    }
    for (std::uint32_t device = 0; device < used; ++device) {
      if (dice_.chance(85)) add(task.from, task, device);
      if (dice_.chance(40)) {
        keep_some(task, device);
      } else if (dice_.chance(80)) {
        add(task.to, task, device);
      }
    }
    return task;
  }

 private:
  Holding any(const TransitionTask& task, std::uint32_t device, MigInstance instance) {
    Holding made{device, instance, {}};
    const std::size_t services = task.services.size();
    const auto one = static_cast<std::uint32_t>(dice_.below(services));
    const auto rate = [&](std::uint32_t service, double fraction) {
      const double full = unit_[service] * std::pow(instance.slices, efficiency_[service]);
      return full * fraction * (dice_.chance(80) ? 1 : 0.5);
    };
    if (one + 1 < services && dice_.chance(15)) {
      made.parts = {{one, rate(one, 0.5)}, {one + 1, rate(one + 1, 0.4)}};
    } else {
      made.parts = {{one, rate(one, 1)}};
    }
    return made;
  }

  void add(std::vector<Holding>& holdings, const TransitionTask& task, std::uint32_t device) {
    const auto layouts = task.devices[device].geometry.maximal_layouts();
    for (const MigInstance& instance : layouts[dice_.below(layouts.size())]) {
      if (dice_.chance(90)) holdings.push_back(any(task, device, instance));
    }
  }

  // No slack at all: everything is needed, and instances of one size exchange what they serve.
  void shuffle_full_devices(TransitionTask& task, std::size_t used) {
    for (std::uint32_t device = 0; device < used; ++device) {
      const auto layouts = task.devices[device].geometry.maximal_layouts();
      for (const MigInstance& instance : layouts[dice_.below(layouts.size())]) {
        if (dice_.chance(97)) task.from.push_back(any(task, device, instance));
      }
    }
    task.to = task.from;
    for (std::size_t at = 0; at < task.to.size(); ++at) {
      Holding& one = task.to[at];
      Holding& other = task.to[dice_.below(at + 1)];
      if (one.instance.slices == other.instance.slices) std::swap(one.parts, other.parts);
    }
  }

  // As it was, but for some instances, services and rates.
  void keep_some(TransitionTask& task, std::uint32_t device) {
    for (const Holding& there : task.from) {
      if (there.device != device || dice_.chance(10)) continue;
      Holding kept = dice_.chance(20) ? any(task, device, there.instance) : there;
      if (dice_.chance(30)) kept.parts[0].rate *= 0.5 + 0.1 * static_cast<double>(dice_.below(11));
      task.to.push_back(kept);
    }
  }

  Dice& dice_;
  std::vector<double> efficiency_, unit_;
};

std::size_t devices_used(const std::vector<Holding>& holdings) {
  std::set<std::uint32_t> used;
  for (const Holding& one : holdings) used.insert(one.device);
  return used.size();
}

Dice drawn_dice() {
  return Dice(
      *rc::gen::container<std::vector<std::uint32_t>>(40, rc::gen::arbitrary<std::uint32_t>()));
}

void assert_sound(const Transition& transition, const TransitionTask& task, Dice& dice) {
  RC_ASSERT(testing::fault_in_stages(transition, task) == "");
  const auto pick = [&](std::size_t bound) { return dice.below(bound); };
  RC_ASSERT(testing::fault_in_replay(transition, task, pick) == "");
}

RC_GTEST_PROP(TransitionTest, KeepsRatesAndLayoutsAtEveryStageAndInEveryOrderOfActions, ()) {
  Dice dice = drawn_dice();
  const TransitionTask task = PairOfDeployments(dice).draw(2 + dice.below(11), dice.below(3));
  const Result<Transition> planned = plan_transition(task);
  RC_CLASSIFY(!planned.ok(), "unavailable");
  if (!planned.ok()) {
    RC_ASSERT(planned.status().code() == StatusCode::unavailable);
    RC_ASSERT(planned.status().message().find("more free device") != std::string::npos);
    return;
  }
  assert_sound(planned.value(), task, dice);
}

RC_GTEST_PROP(TransitionTest, AlwaysSucceedsWithAsManySpareDevicesAsAreInUse, ()) {
  Dice dice = drawn_dice();
  const std::size_t used = 2 + dice.below(11);
  const TransitionTask task = PairOfDeployments(dice).draw(used, used);
  const Result<Transition> planned = plan_transition(task);
  RC_ASSERT(planned.status().message() == "");
  assert_sound(planned.value(), task, dice);
  const Stage* fullest = nullptr;
  for (const Stage& stage : planned.value().stages) {
    if (fullest == nullptr || stage.devices_in_use > fullest->devices_in_use) fullest = &stage;
  }
  const std::size_t larger = std::max(devices_used(task.from), devices_used(task.to));
  const std::size_t most = fullest == nullptr ? 0 : fullest->devices_in_use;
  RC_ASSERT(planned.value().extra_devices == (most > larger ? most - larger : 0));
}

// Five services, their rates by the slices of an instance: some gain more by small instances, some
// by large ones.
double rate_of_five(std::uint32_t service, std::uint32_t slices) {
  constexpr std::array kEfficiency{0.7, 0.85, 1.0, 1.1, 0.9};
  constexpr std::array kUnit{40.0, 25.0, 12.0, 90.0, 30.0};
  return kUnit[service] * std::pow(slices, kEfficiency[service]);
}

// Devices 0 to count - 1, each with one of the layouts and two of the services.
std::vector<Holding> spread(std::uint32_t count, const std::vector<MigLayout>& layouts,
                            std::uint32_t first_service) {
  std::vector<Holding> holdings;
  for (std::uint32_t device = 0; device < count; ++device) {
    const MigLayout& layout = layouts[device % layouts.size()];
    for (std::uint32_t at = 0; at < layout.size(); ++at) {
      const std::uint32_t service = (device + first_service + at % 2) % 5;
      holdings.push_back(
          holding(device, layout[at], service, rate_of_five(service, layout[at].slices)));
    }
  }
  return holdings;
}

TransitionTask day_to_night() {
  TransitionTask task{devices(24), {"bert", "densenet", "gpt2", "resnet", "vgg"}, {}, {}};
  task.from =
      spread(16, {{{7, 0}}, {{4, 0}, {3, 4}}, {{4, 0}, {2, 4}, {1, 6}}, {{3, 0}, {3, 4}}}, 0);
  task.to = spread(
      5, {{{4, 0}, {2, 4}, {1, 6}}, {{2, 0}, {2, 2}, {3, 4}}, {{1, 0}, {1, 1}, {2, 2}, {3, 4}}}, 2);
  return task;
}

TransitionTask reversed(TransitionTask task) {
  std::swap(task.from, task.to);
  return task;
}

std::string counts_of(const Transition& transition, const TransitionTask& task) {
  const ActionCounts counts = count_actions(transition, task);
  return std::to_string(transition.stages.size()) + " stages, " +
         std::to_string(transition.extra_devices) + " extra devices, " +
         std::to_string(counts.created) + " created, " + std::to_string(counts.removed) +
         " removed, " + std::to_string(counts.migrated_within_nodes) + " migrated within nodes, " +
         std::to_string(counts.migrated_across_nodes) + " across, " +
         std::to_string(counts.repartitions) + " repartitions";
}

TEST(TransitionTest, DayToNightAndBackNeedNoExtraDevices) {
  const TransitionTask to_night = day_to_night();
  const TransitionTask to_day = reversed(to_night);
  const Transition night = plan_transition(to_night).value();
  const Transition day = plan_transition(to_day).value();
  std::cout << "day to night: " << counts_of(night, to_night) << "\n"
            << "night to day: " << counts_of(day, to_day) << "\n";
  for (const auto& [transition, task] : {std::pair(night, to_night), std::pair(day, to_day)}) {
    EXPECT_EQ(testing::fault_in_stages(transition, task), "");
    EXPECT_EQ(testing::fault_in_replay(transition, task, [](std::size_t) { return 0; }), "");
    EXPECT_EQ(transition.extra_devices, 0U);
  }
  const ActionCounts of_night = count_actions(night, to_night);
  const ActionCounts of_day = count_actions(day, to_day);
  EXPECT_GT(of_night.removed, of_night.created);
  EXPECT_GT(of_day.created, of_day.removed);
  EXPECT_GT(of_day.repartitions, of_night.repartitions) << "it uses more devices";
}

TEST(TransitionTest, NothingIsDoneWhereOnlyRatesChange) {
  TransitionTask task{devices(1), {"a"}, {holding(0, {3, 0}, 0, 10)}, {holding(0, {3, 0}, 0, 7)}};
  EXPECT_TRUE(plan_transition(task).value().stages.empty());
  EXPECT_TRUE(plan_transition(task).value().actions.empty());
}

TEST(TransitionTest, WhatIsNotNeededAnyMoreGoesWithoutADetour) {
  // b takes a's place, and a has another instance that suffices at night.
  TransitionTask task{devices(2), {"a", "b"}, {}, {}};
  task.from = {holding(0, {7, 0}, 0, 70), holding(1, {3, 0}, 0, 30)};
  task.to = {holding(0, {7, 0}, 1, 50), holding(1, {3, 0}, 0, 30)};
  const Transition transition = plan_transition(task).value();
  ASSERT_EQ(transition.stages.size(), 2U);
  EXPECT_TRUE(transition.stages[0].created.empty());
  EXPECT_EQ(transition.stages[0].removed, (std::vector{task.from[0]}));
  EXPECT_EQ(transition.stages[0].least_rate, (std::vector<double>{30, 0}));
  EXPECT_EQ(transition.stages[1].created, (std::vector{task.to[0]}));
  ASSERT_EQ(transition.actions.size(), 2U);
  EXPECT_EQ(transition.actions[0].kind, ActionKind::remove);
  EXPECT_TRUE(transition.actions[0].after.empty()) << "nothing has to be there first";
  EXPECT_EQ(transition.actions[1].kind, ActionKind::create) << "no cut: the instance is there";
  EXPECT_EQ(transition.actions[1].after, (std::vector<std::size_t>{0}));
}

TransitionTask swapped_on(std::size_t device_count) {
  TransitionTask task{devices(device_count, 2), {"a", "b"}, {}, {}};
  task.from = {holding(0, {7, 0}, 0, 70), holding(1, {7, 0}, 1, 70)};
  task.to = {holding(0, {7, 0}, 1, 70), holding(1, {7, 0}, 0, 70)};
  return task;
}

TEST(TransitionTest, TwoServicesThatChangePlacesNeedAThirdDevice) {
  const auto refused = plan_transition(swapped_on(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::unavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("1 more free device (a100-80) would do"));

  const TransitionTask task = swapped_on(3);
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(transition.extra_devices, 1U);
  EXPECT_EQ(transition.stages.size(), 3U);
  EXPECT_EQ(count_actions(transition, task).migrated_across_nodes, 2U) << "there and back";
  EXPECT_EQ(count_actions(transition, task).migrated_within_nodes, 1U);
}

TEST(TransitionTest, StandInsPreferTheirOwnNode) {
  // a and b change places on device 2; every other device is empty, and 3 is of its node.
  TransitionTask task{devices(6, 2), {"a", "b"}, {}, {}};
  task.from = {holding(2, {3, 0}, 0, 30), holding(2, {3, 4}, 1, 30)};
  task.to = {holding(2, {3, 0}, 1, 30), holding(2, {3, 4}, 0, 30)};
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(transition.extra_devices, 1U);
  ASSERT_FALSE(transition.stages.empty());
  for (const Holding& created : transition.stages[0].created) EXPECT_EQ(created.device, 3U);
  EXPECT_EQ(count_actions(transition, task).migrated_across_nodes, 0U);
}

TEST(TransitionTest, SmallInstancesStandInWhereALargeOneHasNoRoom) {
  // A 7g of a becomes two 3g; beside the 4g of the two other devices is room for a 3g each.
  TransitionTask task{devices(3), {"a", "b"}, {}, {}};
  task.from = {holding(0, {7, 0}, 0, 50), holding(1, {4, 0}, 1, 40), holding(2, {4, 0}, 1, 40)};
  task.to = {holding(0, {3, 0}, 0, 25), holding(0, {3, 4}, 0, 25), holding(1, {4, 0}, 1, 40),
             holding(2, {4, 0}, 1, 40)};
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(testing::fault_in_stages(transition, task), "");
  EXPECT_EQ(transition.extra_devices, 0U);
  EXPECT_EQ(transition.stages.size(), 2U);
  EXPECT_EQ(count_actions(transition, task).migrated_within_nodes, 2U);
}

TEST(TransitionTest, ATaskThatIsNotAsRequiredIsInvalid) {
  const auto message_of = [](const TransitionTask& task) {
    const auto planned = plan_transition(task);
    EXPECT_EQ(planned.status().code(), StatusCode::invalid);
    return planned.status().message();
  };
  TransitionTask task{devices(1), {"a"}, {}, {}};
  task.from = {holding(3, {3, 0}, 0, 1)};
  EXPECT_THAT(message_of(task), HasSubstr("from: 3g@0 on device 3: there are 1 devices"));
  task.from = {holding(0, {3, 0}, 0, 1), holding(0, {4, 0}, 0, 1)};
  EXPECT_THAT(message_of(task), HasSubstr("4g@0 on device 0 of node0 cannot be there"));
  task.from = {holding(0, {3, 0}, 1, 1)};
  EXPECT_THAT(message_of(task), HasSubstr("service 1 of 1"));
  task.from = {holding(0, {3, 0}, 0, -1)};
  EXPECT_THAT(message_of(task), HasSubstr("-1.0"));
  task.from = {{0, {3, 0}, {}}};
  EXPECT_THAT(message_of(task), HasSubstr("serves nothing"));
  task.from.clear();
  task.to = {{0, {3, 0}, {{0, 1}, {0, 1}}}};
  EXPECT_THAT(message_of(task), HasSubstr("to: 3g@0 on device 0 of node0 has its parts"));
}

}  // namespace
}  // namespace gpulet::mig
