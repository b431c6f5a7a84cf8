#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/reconcile.h"
#include "tests/schedule/generated.h"

namespace gpulet::schedule {
namespace {

using testing::Worked;
using Ids = std::vector<GpuletId>;

// The way from one plan to another.
struct Way {
  explicit Way(const Worked& the_world) : world(the_world) {}

  [[nodiscard]] WantedParts wanted_parts() const {
    WantedParts parts;
    for (const auto& [id, part] : wanted) parts.emplace(id, &part);
    return parts;
  }
  [[nodiscard]] MixtureChange next() const {
    return next_mixture({world.input.cluster, *world.input.profiles, world.input.interference,
                         serving, wanted_parts(), ready, incomplete, least, together});
  }
  void apply(const MixtureChange& change) {
    for (const GpuletId id : change.begin) serving[id] = wanted.at(id);
    for (const GpuletId id : change.end) serving.erase(id);
  }
  void begin() { least = least_rates(serving, wanted_parts()); }

  const Worked& world;
  GpuletParts serving;
  GpuletParts wanted;
  std::set<GpuletId> ready;
  std::set<std::string> incomplete;
  std::map<std::string, double> least;
  std::set<std::string> together;
};

std::map<std::string, double> rates_of(const GpuletParts& parts) {
  std::map<std::string, double> rates;
  for (const auto& [id, part] : parts) {
    for (const Assignment& one : part.assignments) rates[one.model] += one.rate;
  }
  return rates;
}

// What check() finds in a mixture, for demands that it serves exactly.
std::vector<Violation> faults_of(const GpuletParts& mixture, const PlanInput& input) {
  Plan plan;
  for (const auto& [id, part] : mixture) plan.gpulets.push_back(part);
  std::sort(plan.gpulets.begin(), plan.gpulets.end(), in_plan_order);
  PlanInput served = input;
  const std::map<std::string, double> rates = rates_of(mixture);
  std::erase_if(served.demands, [&](const ModelDemand& one) { return !rates.contains(one.name); });
  for (ModelDemand& one : served.demands) one.rate = rates.at(one.name);
  served.options.max_devices.reset();
  return check(plan, served);
}

// ---- worked cases: one model to a gpulet, on devices "n0", of models that do not slow each other

class Mixture : public ::testing::Test {
 protected:
  Mixture() {
    testing::add_profile(world_, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
    testing::add_devices(world_, "n0", "gpu", 2);
  }

  static PlannedGpulet part(std::uint32_t device, int percent,
                            const std::map<std::string, double>& rates) {
    PlannedGpulet gpulet;
    gpulet.device = {"n0", device};
    gpulet.size = Share{percent};
    gpulet.duty_cycle_ms = 20;
    for (const auto& [model, rate] : rates)
      gpulet.assignments.push_back({model, rate, 1, 5, 1, 100});
    return gpulet;
  }
  // The change when these are ready.
  MixtureChange when_ready(std::initializer_list<std::uint64_t> ready) {
    way_.ready.clear();
    for (const std::uint64_t id : ready) way_.ready.insert(GpuletId{id});
    way_.begin();
    return way_.next();
  }

  Worked world_;
  Way way_{world_};
};

TEST_F(Mixture, AGpuletThatShrinksDoesNotWaitForTheOneThatGrows) {
  way_.serving = {{{1}, part(0, 60, {{"a", 10}})}, {{2}, part(0, 40, {{"b", 10}})}};
  way_.wanted = {{{3}, part(0, 40, {{"a", 10}})}, {{4}, part(0, 60, {{"b", 10}})}};
  EXPECT_TRUE(when_ready({}).empty());
  EXPECT_EQ(when_ready({3}), (MixtureChange{{{3}}, {{1}}}));
  EXPECT_TRUE(when_ready({4}).empty()) << "60 % and 60 % are too much";
  EXPECT_EQ(when_ready({3, 4}), (MixtureChange{{{3}, {4}}, {{1}, {2}}}));
  way_.apply({{{3}}, {{1}}});
  EXPECT_EQ(when_ready({3, 4}), (MixtureChange{{{4}}, {{2}}}));
}

TEST_F(Mixture, WhatIsNotInTheWayServesUntilAllOfItsModelDo) {
  way_.serving = {{{1}, part(0, 40, {{"a", 20}})}};
  way_.wanted = {{{2}, part(1, 40, {{"a", 10}})}, {{3}, part(1, 20, {{"a", 15}})}};
  EXPECT_EQ(when_ready({2}), (MixtureChange{{{2}}, {}}));
  way_.apply({{{2}}, {}});
  EXPECT_EQ(when_ready({2, 3}), (MixtureChange{{{3}}, {{1}}}));
}

TEST_F(Mixture, NoModelFallsBelowTheLesserOfItsRates) {
  way_.serving = {{{1}, part(0, 60, {{"a", 20}})}};
  way_.wanted = {{{2}, part(0, 60, {{"a", 10}})}, {{3}, part(1, 20, {{"a", 10}})}};
  EXPECT_TRUE(when_ready({2}).empty()) << "it alone serves half";
  EXPECT_EQ(when_ready({3}), (MixtureChange{{{3}}, {}}));
  way_.wanted[{3}].assignments[0].rate = 0.5;
  EXPECT_EQ(when_ready({2}), (MixtureChange{})) << "10.5 of 20";
  way_.wanted[{3}] = part(1, 20, {{"b", 1}});
  EXPECT_EQ(when_ready({2}), (MixtureChange{{{2}}, {{1}}})) << "the plan wants half";
}

TEST_F(Mixture, GpuletsThatChangePlacesBeginTogether) {
  way_.serving = {{{1}, part(0, 100, {{"a", 10}})}, {{2}, part(1, 100, {{"b", 10}})}};
  way_.wanted = {{{3}, part(0, 100, {{"b", 10}})},
                 {{4}, part(1, 100, {{"a", 10}})},
                 {{5}, part(0, 20, {{"c", 1}})}};
  way_.wanted.erase({5});
  way_.incomplete = {"c"};  // so that the plan is not whole
  EXPECT_TRUE(when_ready({3}).empty());
  EXPECT_TRUE(when_ready({4}).empty());
  EXPECT_EQ(when_ready({3, 4}), (MixtureChange{{{3}, {4}}, {{1}, {2}}}));
}

TEST_F(Mixture, AGpuletThatStaysChangesItsPartWhenOthersTakeOver) {
  way_.serving = {{{1}, part(0, 60, {{"a", 10}, {"b", 10}})}};
  way_.wanted = {{{1}, part(0, 60, {{"a", 20}})}, {{2}, part(0, 40, {{"b", 10}})}};
  EXPECT_TRUE(when_ready({1}).empty()) << "nothing else serves b";
  EXPECT_EQ(when_ready({1, 2}), (MixtureChange{{{1}, {2}}, {}}));
}

TEST_F(Mixture, WhatServesAModelWithoutItsWholePlanStays) {
  way_.serving = {{{1}, part(0, 40, {{"a", 10}})}};
  way_.wanted = {{{2}, part(0, 40, {{"a", 10}})}};
  way_.incomplete = {"a"};
  EXPECT_EQ(when_ready({2}), (MixtureChange{{{2}}, {}}));
}

TEST_F(Mixture, AModelThatIsNotWantedAnyMoreEnds) {
  way_.serving = {{{1}, part(0, 40, {{"a", 10}})}, {{2}, part(1, 40, {{"b", 10}})}};
  way_.wanted = {{{2}, part(1, 40, {{"b", 10}})}, {{3}, part(0, 100, {{"c", 10}})}};
  EXPECT_EQ(when_ready({2}), (MixtureChange{{}, {{1}}}));
}

TEST_F(Mixture, ANewVersionTakesOverEverywhereAtOnce) {
  way_.serving = {{{1}, part(0, 40, {{"a", 10}})}, {{2}, part(1, 40, {{"a", 10}})}};
  way_.wanted = {{{3}, part(0, 40, {{"a", 10}})},
                 {{4}, part(1, 40, {{"a", 10}})},
                 {{5}, part(1, 20, {{"b", 10}})}};
  way_.together = {"a"};
  EXPECT_TRUE(when_ready({3}).empty());
  EXPECT_EQ(when_ready({3, 4}), (MixtureChange{{{3}, {4}}, {{1}, {2}}}));
}

TEST_F(Mixture, MemoryIsRoomLikeShare) {
  for (auto& [name, model] : world_.profiles->at("gpu").models) model.memory_mb = 60;
  for (Device& device : world_.input.cluster.devices) device.memory_mb = 120;
  way_.serving = {{{1}, part(0, 20, {{"a", 10}})}, {{2}, part(0, 20, {{"b", 10}})}};
  way_.wanted = {{{1}, part(0, 20, {{"a", 10}})},
                 {{3}, part(0, 20, {{"c", 10}})},
                 {{4}, part(1, 20, {{"b", 10}})}};
  EXPECT_TRUE(when_ready({1, 3}).empty());
  EXPECT_EQ(when_ready({1, 3, 4}), (MixtureChange{{{3}, {4}}, {{2}}}));
}

// A model that is dark because its gpulet is replaced in place must not hold up others.
TEST_F(Mixture, ADarkModelHasNothingToKeep) {
  way_.serving = {{{1}, part(0, 60, {{"a", 10}, {"b", 10}})}};
  way_.wanted = {{{2}, part(0, 40, {{"a", 10}})}, {{3}, part(0, 60, {{"b", 10}})}};
  way_.begin();
  way_.serving.clear();
  way_.ready = {{2}};
  EXPECT_EQ(way_.next(), (MixtureChange{{{2}}, {}}));
}

// ---- properties

std::vector<RunningGpulet> running_of(const GpuletParts& parts) {
  std::vector<RunningGpulet> running;
  for (const auto& [id, part] : parts) {
    RunningGpulet& gpulet = running.emplace_back();
    gpulet.id = id;
    gpulet.device = part.device;
    gpulet.size = part.size;
    gpulet.instance = part.instance;
    gpulet.controlled = part.service == Service::controlled;
    for (const Assignment& one : part.assignments) gpulet.models.push_back({one.model, one.batch});
    std::sort(gpulet.models.begin(), gpulet.models.end());
  }
  return running;
}

// Two plans for the same models at other rates, some of which are 0.
Way any_way(Worked& world) {
  Way way(world);
  const auto names = testing::policy_names();
  const auto any_plan = [&](const Plan* current) {
    for (ModelDemand& one : world.input.demands)
      one.rate *= *rc::gen::element(0.0, 0.5, 1.0, 1.0, 2.0) + 1e-3;
    const auto name = names[*rc::gen::inRange<std::size_t>(0, names.size())];
    world.input.current = current;
    Plan plan = testing::policy(name)->plan(world.input);
    world.input.current = nullptr;
    return plan;
  };
  std::uint64_t last = 0;
  const Plan from = any_plan(nullptr);
  for (const PlannedGpulet& one : from.gpulets) way.serving[{++last}] = one;
  const Plan to = any_plan(*rc::gen::arbitrary<bool>() ? &from : nullptr);
  const Steps steps = reconcile(running_of(way.serving), to);
  for (const Steps::Keep& keep : steps.keep) way.wanted[keep.running] = to.gpulets[keep.planned];
  for (const std::size_t index : steps.create) way.wanted[{++last}] = to.gpulets[index];
  for (const Steps::Keep& keep : steps.keep) way.ready.insert(keep.running);
  way.begin();
  return way;
}

std::vector<GpuletId> in_any_order(const GpuletParts& wanted, const std::set<GpuletId>& ready) {
  std::vector<GpuletId> order;
  for (const auto& [id, part] : wanted) {
    if (!ready.contains(id))
      order.insert(order.begin() + *rc::gen::inRange<std::ptrdiff_t>(
                                       0, static_cast<std::ptrdiff_t>(order.size()) + 1),
                   id);
  }
  return order;
}

RC_GTEST_PROP(AnyMixture, KeepsTheRulesAtEveryStepAndEndsAtThePlan, ()) {
  Worked world = *rc::gen::inRange(0, 3) == 0 ? testing::any_mixed_input() : testing::any_input();
  Way way = any_way(world);
  const GpuletParts before = way.serving;
  std::vector<GpuletId> order = in_any_order(way.wanted, way.ready);
  order.push_back({});  // nothing more is ready at first
  std::rotate(order.begin(), order.end() - 1, order.end());
  for (const GpuletId id : order) {
    if (id != GpuletId{}) way.ready.insert(id);
    const std::map<std::string, double> had = rates_of(way.serving);
    const MixtureChange change = way.next();
    for (const GpuletId begun : change.begin) {
      RC_ASSERT(way.ready.contains(begun));
      const auto was = way.serving.find(begun);
      const bool serves = was != way.serving.end() && was->second == way.wanted.at(begun);
      RC_ASSERT(!serves);
    }
    for (const GpuletId ended : change.end) {
      RC_ASSERT(way.serving.contains(ended));
      RC_ASSERT(!way.wanted.contains(ended));
    }
    way.apply(change);
    const std::vector<Violation> faults = faults_of(way.serving, world.input);
    if (!faults.empty()) RC_LOG() << to_string(faults.front()) << "\n";
    RC_ASSERT(faults.empty());
    const std::map<std::string, double> rates = rates_of(way.serving);
    for (const auto& [model, least] : way.least) {
      const auto rate = rates.find(model);
      const auto was = had.find(model);
      const double needed = std::min(least, was == had.end() ? 0 : was->second);
      RC_ASSERT((rate == rates.end() ? 0 : rate->second) >= needed * (1 - 1e-6));
    }
    for (const auto& [kept, part] : before) {  // what the change does not concern
      const auto to = way.wanted.find(kept);
      if (to != way.wanted.end() && to->second == part) RC_ASSERT(way.serving.contains(kept));
    }
    RC_ASSERT(way.next().empty());
  }
  RC_ASSERT(way.serving == way.wanted);
}

// Whether the gpulet could begin as well if some of the old gpulets of its device ended, by trying
// all of them.
bool could_begin(const Way& way, GpuletId id) {
  GpuletParts base = way.serving;
  base[id] = way.wanted.at(id);
  Ids old;
  for (const auto& [other, part] : way.serving) {
    if (part.device == way.wanted.at(id).device && !way.wanted.contains(other))
      old.push_back(other);
  }
  const std::map<std::string, double> had = rates_of(way.serving);
  for (std::size_t bits = 0; bits < (std::size_t{1} << old.size()); ++bits) {
    GpuletParts mixture = base;
    for (std::size_t i = 0; i < old.size(); ++i) {
      if ((bits >> i & 1U) != 0) mixture.erase(old[i]);
    }
    const std::map<std::string, double> rates = rates_of(mixture);
    const bool enough = std::all_of(had.begin(), had.end(), [&](const auto& one) {
      const auto least = way.least.find(one.first);
      if (least == way.least.end()) return true;
      const auto rate = rates.find(one.first);
      return rate != rates.end() &&
             rate->second >= std::min(least->second, one.second) * (1 - 1e-12);
    });
    if (enough && faults_of(mixture, way.world.input).empty()) return true;
  }
  return false;
}

RC_GTEST_PROP(AnyMixture, LeavesOutNoGpuletThatCouldServe, ()) {
  Worked world = testing::generated(*rc::gen::arbitrary<std::uint64_t>(), 4);
  for (Device& device : world.input.cluster.devices)
    device.max_partitions = std::min(device.max_partitions, 2U);
  Way way = any_way(world);
  for (const GpuletId id : in_any_order(way.wanted, way.ready)) {
    way.ready.insert(id);
    way.apply(way.next());
    for (const GpuletId ready : way.ready) {
      const auto serves = way.serving.find(ready);
      if (serves != way.serving.end() && serves->second == way.wanted.at(ready)) continue;
      if (way.wanted.at(ready).instance) continue;  // begins with the others of its instance
      RC_ASSERT(!could_begin(way, ready));
    }
  }
}

}  // namespace
}  // namespace gpulet::schedule
