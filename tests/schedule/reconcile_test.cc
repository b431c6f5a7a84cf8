#include "gpulet/schedule/reconcile.h"

#include <gtest/gtest.h>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

PlannedGpulet planned(std::uint32_t device, int percent, const std::vector<RunningModel>& models) {
  PlannedGpulet gpulet;
  gpulet.device = {"n0", device};
  gpulet.size = Share{percent};
  for (const RunningModel& model : models) {
    Assignment& assignment = gpulet.assignments.emplace_back();
    assignment.model = model.name;
    assignment.batch = model.max_batch;
  }
  return gpulet;
}

RunningGpulet running(std::uint64_t id, std::uint32_t device, int percent,
                      const std::vector<RunningModel>& models) {
  return {GpuletId{id}, {"n0", device}, Share{percent}, models};
}

Plan plan_of(std::vector<PlannedGpulet> gpulets) {
  Plan plan;
  plan.gpulets = std::move(gpulets);
  return plan;
}

std::vector<std::uint64_t> retired(const Steps& steps) {
  std::vector<std::uint64_t> ids;
  for (const GpuletId id : steps.retire) ids.push_back(id.value);
  return ids;
}

TEST(Reconcile, CreatesEverythingWhereNothingRuns) {
  const Steps steps =
      reconcile({}, plan_of({planned(0, 50, {{"a", 4}}), planned(1, 50, {{"a", 4}})}));
  EXPECT_EQ(steps.create, (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(steps.keep.empty());
  EXPECT_TRUE(steps.retire.empty());
}

TEST(Reconcile, RetiresEverythingByAscendingIdForAnEmptyPlan) {
  const Steps steps =
      reconcile({running(9, 0, 50, {{"a", 4}}), running(3, 0, 50, {{"a", 4}})}, Plan());
  EXPECT_EQ(retired(steps), (std::vector<std::uint64_t>{3, 9}));
}

TEST(Reconcile, KeepsAGpuletWithMoreModelsAndLargerBatches) {
  const Steps steps =
      reconcile({running(1, 0, 50, {{"a", 8}, {"b", 8}})}, plan_of({planned(0, 50, {{"a", 4}})}));
  ASSERT_EQ(steps.keep.size(), 1U);
  EXPECT_EQ(steps.keep[0].running.value, 1U);
  EXPECT_TRUE(steps.empty());
}

TEST(Reconcile, ReplacesAGpuletThatWouldHaveToChange) {
  for (const RunningGpulet& other :
       {running(1, 0, 50, {{"a", 2}}), running(1, 0, 40, {{"a", 4}}), running(1, 1, 50, {{"a", 4}}),
        running(1, 0, 50, {{"b", 4}})}) {
    const Steps steps = reconcile({other}, plan_of({planned(0, 50, {{"a", 4}})}));
    EXPECT_EQ(steps.create.size(), 1U);
    EXPECT_EQ(retired(steps), (std::vector<std::uint64_t>{1}));
  }
}

TEST(Reconcile, KeepsAGpuletInItsOwnInstanceOnly) {
  const auto in = [](auto gpulet, std::optional<partition::MigInstance> instance) {
    gpulet.instance = instance;
    return gpulet;
  };
  using partition::MigInstance;
  const auto at_0 = in(planned(0, 42, {{"a", 4}}), MigInstance{3, 0});
  const auto at_4 = in(planned(0, 42, {{"a", 4}}), MigInstance{3, 4});
  // Two processes of one model share the first.
  const std::vector<RunningGpulet> there{in(running(1, 0, 42, {{"a", 4}}), MigInstance{3, 0}),
                                         in(running(2, 0, 42, {{"a", 4}}), MigInstance{3, 0})};
  EXPECT_TRUE(reconcile(there, plan_of({at_0, at_0})).empty());
  const Steps steps = reconcile(there, plan_of({at_0, at_4}));
  ASSERT_EQ(steps.keep.size(), 1U);
  EXPECT_EQ(steps.keep[0].planned, 0U);
  EXPECT_EQ(steps.create, (std::vector<std::size_t>{1}));
  EXPECT_EQ(retired(steps), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(reconcile({running(1, 0, 42, {{"a", 4}})}, plan_of({at_0})).create.size(), 1U)
      << "a gpulet without an instance";
}

TEST(RolloutCapacity, RequiresAnInstanceNextToTheRunningOnes) {
  using partition::MigInstance;
  Cluster cluster;
  cluster.devices.resize(1);
  cluster.devices[0].key = {"n0", 0};
  cluster.devices[0].mig = partition::MigGeometry::of("a100-80").value();
  RunningGpulet there = running(1, 0, 57, {{"a", 4}});
  there.instance = MigInstance{4, 0};
  const auto in_place = [&](std::vector<MigInstance> wanted) {
    Plan plan;
    for (const MigInstance& instance : wanted) {
      plan.gpulets.push_back(planned(0, 14, {{"b", 4}}));
      plan.gpulets.back().instance = instance;
    }
    return !devices_without_rollout_capacity({there}, plan, reconcile({there}, plan), cluster, {})
                .empty();
  };
  EXPECT_FALSE(in_place({{3, 4}}));
  EXPECT_FALSE(in_place({{2, 4}, {1, 6}}));
  EXPECT_TRUE(in_place({{2, 4}, {2, 2}})) << "the second overlaps the old one";
  EXPECT_TRUE(in_place({{4, 0}})) << "the instance has a process already";
  cluster.devices[0].processes_per_instance = 2;
  EXPECT_FALSE(in_place({{4, 0}}));
  EXPECT_TRUE(in_place({{4, 0}, {4, 0}}));
}

TEST(RolloutCapacity, RequiresMemoryForTheOldAndTheNewGpulets) {
  testing::Worked worked;
  testing::add_profile(worked, "card", {{"a", 1, 1, 32, 500}, {"b", 1, 1}, {"c", 1, 1, 32, 300}});
  Cluster cluster;
  cluster.devices.resize(1);
  cluster.devices[0].key = {"n0", 0};
  cluster.devices[0].type = "card";
  cluster.devices[0].memory_mb = 1000;
  const std::vector<RunningGpulet> there{running(1, 0, 50, {{"a", 4}})};
  const auto in_place = [&](const std::vector<RunningModel>& models) {
    const Plan plan = plan_of({planned(0, 40, models)});
    return !devices_without_rollout_capacity(there, plan, reconcile(there, plan), cluster,
                                             *worked.profiles)
                .empty();
  };
  EXPECT_FALSE(in_place({{"a", 4}}));
  EXPECT_FALSE(in_place({{"a", 4}, {"b", 4}})) << "the memory of b was not measured";
  EXPECT_FALSE(in_place({{"a", 4}, {"new", 4}})) << "nothing of it was measured";
  EXPECT_TRUE(in_place({{"a", 4}, {"c", 4}}));
  cluster.devices[0].memory_mb = 0;
  EXPECT_FALSE(in_place({{"a", 4}, {"c", 4}})) << "no limit";
}

TEST(Reconcile, PrefersTheExactSetOfModels) {
  const Steps steps =
      reconcile({running(1, 0, 50, {{"a", 4}, {"b", 4}}), running(2, 0, 50, {{"a", 32}})},
                plan_of({planned(0, 50, {{"a", 4}})}));
  ASSERT_EQ(steps.keep.size(), 1U);
  EXPECT_EQ(steps.keep[0].running.value, 2U);
  EXPECT_EQ(retired(steps), (std::vector<std::uint64_t>{1}));
}

TEST(Reconcile, DoesNotSpendALargeGpuletOnASmallNeed) {
  const Steps steps = reconcile({running(1, 0, 50, {{"a", 32}}), running(2, 0, 50, {{"a", 4}})},
                                plan_of({planned(0, 50, {{"a", 4}}), planned(0, 50, {{"a", 32}})}));
  EXPECT_TRUE(steps.empty());
  ASSERT_EQ(steps.keep.size(), 2U);
  EXPECT_EQ(steps.keep[0].running.value, 2U);
  EXPECT_EQ(steps.keep[1].running.value, 1U);
}

TEST(Reconcile, KeepsAGpuletForThePlannedOneThatUsesMostOfIt) {
  const Steps steps = reconcile({running(1, 0, 50, {{"a", 8}})},
                                plan_of({planned(0, 50, {{"a", 4}}), planned(0, 50, {{"a", 8}})}));
  ASSERT_EQ(steps.keep.size(), 1U);
  EXPECT_EQ(steps.keep[0].planned, 1U);
  EXPECT_EQ(steps.create, (std::vector<std::size_t>{0}));
}

TEST(Reconcile, KeepsAGpuletForOnePlannedGpuletOnly) {
  const Steps steps = reconcile({running(1, 0, 50, {{"a", 4}})},
                                plan_of({planned(0, 50, {{"a", 4}}), planned(0, 50, {{"a", 4}})}));
  EXPECT_EQ(steps.keep.size(), 1U);
  EXPECT_EQ(steps.create, (std::vector<std::size_t>{1}));
}

}  // namespace
}  // namespace gpulet::schedule
