#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "gpulet/schedule/mig.h"
#include "schedule/mig/deployment_state.h"
#include "tests/schedule/mig/transition_checks.h"
#include "tests/support/names.h"

namespace gpulet::schedule::mig {
namespace {

using partition::MigGeometry;
using partition::MigInstance;
using partition::MigLayout;
using support::names;

MigGeometry geometry(std::string_view name) { return MigGeometry::of(name).value(); }

// `count` devices, `to_a_node` on each node.
std::vector<TransitionDevice> devices(std::size_t count, std::size_t to_a_node = 8,
                                      const MigGeometry& of = geometry("a100-80")) {
  std::vector<TransitionDevice> all;
  for (std::size_t at = 0; at < count; ++at)
    all.push_back({"node" + std::to_string(at / to_a_node), of});
  return all;
}

ServingInstance serving(std::uint32_t device, MigInstance instance, std::uint32_t service,
                        double rate) {
  return {device, instance, {{service, rate}}};
}

// A random source that is seeded by the given numbers.
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

  // `used` devices that either deployment may use, and spare ones; of one type or two.
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
  ServingInstance any(const TransitionTask& task, std::uint32_t device, MigInstance instance) {
    ServingInstance made{device, instance, {}};
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

  void add(std::vector<ServingInstance>& all_serving, const TransitionTask& task,
           std::uint32_t device) {
    const auto layouts = task.devices[device].geometry.maximal_layouts();
    for (const MigInstance& instance : layouts[dice_.below(layouts.size())]) {
      if (dice_.chance(90)) all_serving.push_back(any(task, device, instance));
    }
  }

  // No slack: every instance is needed, and instances of one size exchange their services.
  void shuffle_full_devices(TransitionTask& task, std::size_t used) {
    for (std::uint32_t device = 0; device < used; ++device) {
      const auto layouts = task.devices[device].geometry.maximal_layouts();
      for (const MigInstance& instance : layouts[dice_.below(layouts.size())]) {
        if (dice_.chance(97)) task.from.push_back(any(task, device, instance));
      }
    }
    task.to = task.from;
    for (std::size_t at = 0; at < task.to.size(); ++at) {
      ServingInstance& one = task.to[at];
      ServingInstance& other = task.to[dice_.below(at + 1)];
      if (one.instance.slices == other.instance.slices) std::swap(one.parts, other.parts);
    }
  }

  // A copy with a few changed instances, services and rates.
  void keep_some(TransitionTask& task, std::uint32_t device) {
    for (const ServingInstance& there : task.from) {
      if (there.device != device || dice_.chance(10)) continue;
      ServingInstance kept = dice_.chance(20) ? any(task, device, there.instance) : there;
      if (dice_.chance(30)) kept.parts[0].rate *= 0.5 + 0.1 * static_cast<double>(dice_.below(11));
      task.to.push_back(kept);
    }
  }

  Dice& dice_;
  std::vector<double> efficiency_, unit_;
};

std::size_t devices_used(const std::vector<ServingInstance>& all_serving) {
  std::set<std::uint32_t> used;
  for (const ServingInstance& one : all_serving) used.insert(one.device);
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

// The rates of five services by slices: some are more efficient on small instances, some on large
// ones.
double rate_of_five(std::uint32_t service, std::uint32_t slices) {
  constexpr std::array kEfficiency{0.7, 0.85, 1.0, 1.1, 0.9};
  constexpr std::array kUnit{40.0, 25.0, 12.0, 90.0, 30.0};
  return kUnit[service] * std::pow(slices, kEfficiency[service]);
}

// Devices 0 to count - 1, each with one of the layouts and two of the services.
std::vector<ServingInstance> spread(std::uint32_t count, const std::vector<MigLayout>& layouts,
                                    std::uint32_t first_service) {
  std::vector<ServingInstance> all_serving;
  for (std::uint32_t device = 0; device < count; ++device) {
    const MigLayout& layout = layouts[device % layouts.size()];
    for (std::uint32_t at = 0; at < layout.size(); ++at) {
      const std::uint32_t service = (device + first_service + at % 2) % 5;
      all_serving.push_back(
          serving(device, layout[at], service, rate_of_five(service, layout[at].slices)));
    }
  }
  return all_serving;
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

TEST(TransitionTest, ChangedRatesNeedNoActions) {
  TransitionTask task{devices(1), {"a"}, {serving(0, {3, 0}, 0, 10)}, {serving(0, {3, 0}, 0, 7)}};
  EXPECT_TRUE(plan_transition(task).value().stages.empty());
  EXPECT_TRUE(plan_transition(task).value().actions.empty());
}

TEST(TransitionTest, RemovesUnneededInstancesWithoutReplicas) {
  // b takes the slot of a, and a has another instance that suffices at night.
  TransitionTask task{devices(2), {"a", "b"}, {}, {}};
  task.from = {serving(0, {7, 0}, 0, 70), serving(1, {3, 0}, 0, 30)};
  task.to = {serving(0, {7, 0}, 1, 50), serving(1, {3, 0}, 0, 30)};
  const Transition transition = plan_transition(task).value();
  ASSERT_EQ(transition.stages.size(), 2U);
  EXPECT_TRUE(transition.stages[0].created.empty());
  EXPECT_EQ(transition.stages[0].removed, (std::vector{task.from[0]}));
  EXPECT_EQ(transition.stages[0].least_rate, (std::vector<double>{30, 0}));
  EXPECT_EQ(transition.stages[1].created, (std::vector{task.to[0]}));
  ASSERT_EQ(transition.actions.size(), 2U);
  EXPECT_EQ(transition.actions[0].kind, ActionKind::remove);
  EXPECT_TRUE(transition.actions[0].after.empty()) << "no creation has to come first";
  EXPECT_EQ(transition.actions[1].kind, ActionKind::create)
      << "no repartition: the instance exists";
  EXPECT_EQ(transition.actions[1].after, (std::vector<std::size_t>{0}));
}

TransitionTask swapped_on(std::size_t device_count) {
  TransitionTask task{devices(device_count, 2), {"a", "b"}, {}, {}};
  task.from = {serving(0, {7, 0}, 0, 70), serving(1, {7, 0}, 1, 70)};
  task.to = {serving(0, {7, 0}, 1, 70), serving(1, {7, 0}, 0, 70)};
  return task;
}

TEST(TransitionTest, SwappingTwoServicesNeedsAThirdDevice) {
  const auto refused = plan_transition(swapped_on(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused.status(), "1", "a100-80"));

  const TransitionTask task = swapped_on(3);
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(transition.extra_devices, 1U);
  EXPECT_EQ(transition.stages.size(), 3U);
  EXPECT_EQ(count_actions(transition, task).migrated_across_nodes, 2U) << "there and back";
  EXPECT_EQ(count_actions(transition, task).migrated_within_nodes, 1U);
}

TEST(TransitionTest, TemporaryReplicasPreferTheirOwnNode) {
  // a and b swap slots on device 2; all other devices are empty, and device 3 is on the same node.
  TransitionTask task{devices(6, 2), {"a", "b"}, {}, {}};
  task.from = {serving(2, {3, 0}, 0, 30), serving(2, {3, 4}, 1, 30)};
  task.to = {serving(2, {3, 0}, 1, 30), serving(2, {3, 4}, 0, 30)};
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(transition.extra_devices, 1U);
  ASSERT_FALSE(transition.stages.empty());
  for (const ServingInstance& created : transition.stages[0].created) EXPECT_EQ(created.device, 3U);
  EXPECT_EQ(count_actions(transition, task).migrated_across_nodes, 0U);
}

TEST(TransitionTest, SmallReplicasReplaceALargeInstance) {
  // A 7g of a becomes two 3g; the two other devices have room for a 3g beside their 4g.
  TransitionTask task{devices(3), {"a", "b"}, {}, {}};
  task.from = {serving(0, {7, 0}, 0, 50), serving(1, {4, 0}, 1, 40), serving(2, {4, 0}, 1, 40)};
  task.to = {serving(0, {3, 0}, 0, 25), serving(0, {3, 4}, 0, 25), serving(1, {4, 0}, 1, 40),
             serving(2, {4, 0}, 1, 40)};
  const Transition transition = plan_transition(task).value();
  EXPECT_EQ(testing::fault_in_stages(transition, task), "");
  EXPECT_EQ(transition.extra_devices, 0U);
  EXPECT_EQ(transition.stages.size(), 2U);
  EXPECT_EQ(count_actions(transition, task).migrated_within_nodes, 2U);
}

TEST(TransitionTest, BlockedInstancesComeByTheLeastNeededBlockers) {
  // Each 4g is blocked by a 3g. a must keep 40 requests per second and "ending" none.
  TransitionTask task{devices(3), {"a", "ending"}, {}, {}};
  task.from = {serving(0, {3, 0}, 0, 30), serving(1, {3, 0}, 0, 10), serving(2, {3, 0}, 1, 50)};
  for (std::uint32_t device = 0; device < 3; ++device)
    task.to.push_back(serving(device, {4, 0}, 0, 40));
  const TransitionGoal goal = goal_of(task);
  const DeploymentState state(goal);
  std::vector<std::uint32_t> order;
  for (const Placement& placement : blocked(state)) order.push_back(placement.slot.device);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(TransitionTest, RejectsMalformedTasks) {
  const auto code_of = [](std::vector<ServingInstance> from, std::vector<ServingInstance> to) {
    return plan_transition({devices(1), {"a"}, std::move(from), std::move(to)}).status().code();
  };
  const ServingInstance valid = serving(0, {3, 0}, 0, 1);
  EXPECT_EQ(code_of({valid}, {valid}), StatusCode::ok);
  const std::vector<std::vector<ServingInstance>> malformed{
      {serving(3, {3, 0}, 0, 1)},                            // unknown device
      {serving(0, {3, 1}, 0, 1)},                            // unknown instance
      {serving(0, {3, 0}, 0, 1), serving(0, {4, 0}, 0, 1)},  // overlapping instances
      {serving(0, {3, 0}, 1, 1)},                            // unknown service
      {serving(0, {3, 0}, 0, -1)},                           // negative rate
      {serving(0, {3, 0}, 0, INFINITY)},
      {{0, {3, 0}, {}}},                // no service
      {{0, {3, 0}, {{0, 1}, {0, 1}}}},  // repeated service
  };
  for (std::size_t at = 0; at < malformed.size(); ++at) {
    EXPECT_EQ(code_of(malformed[at], {}), StatusCode::invalid) << at;
    EXPECT_EQ(code_of({}, malformed[at]), StatusCode::invalid) << at;
  }
}

}  // namespace
}  // namespace gpulet::schedule::mig
