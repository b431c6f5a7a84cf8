#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/reconcile.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::Worked;
using Ids = std::vector<GpuletId>;
using Indices = std::vector<std::size_t>;

// A device of 100 MB; models m1, m10, m20, ... need as many MB.
class Replacement : public ::testing::Test {
 protected:
  Replacement() {
    testing::add_profile(world_, "gpu",
                         {{"m1", 1, 1}, {"m10", 1, 1}, {"m20", 1, 1}, {"m60", 1, 1}});
    testing::add_devices(world_, "n0", "gpu", 1);
    device().memory_mb = 100;
    for (auto& [name, model] : profile().models) model.memory_mb = std::stod(name.substr(1));
  }

  Device& device() { return world_.input.cluster.devices[0]; }
  profile::Profile& profile() { return world_.profiles->at("gpu"); }

  static DeviceProcess process(std::uint64_t id, const std::string& model, bool planned = false) {
    return {GpuletId{id}, {model}, {}, planned, true};
  }
  void wait_for(const std::vector<std::string>& models) {
    for (const std::string& model : models) {
      PlannedGpulet& one = planned_.emplace_back();
      one.device = {"n0", 0};
      one.assignments.push_back({model});
    }
  }
  std::vector<const PlannedGpulet*> waiting() const {
    std::vector<const PlannedGpulet*> all;
    for (const PlannedGpulet& one : planned_) all.push_back(&one);
    return all;
  }
  Starts starts(const std::vector<DeviceProcess>& there) {
    return next_starts(device(), &profile(), there, waiting());
  }

  Worked world_;
  std::vector<PlannedGpulet> planned_;
};

TEST_F(Replacement, WhatHasRoomStartsAtOnce) {
  wait_for({"m60", "m20", "m10"});
  const Starts found = starts({process(1, "m60")});
  EXPECT_EQ(found.start, (Indices{1, 2}));
  EXPECT_TRUE(found.end.empty());
}

TEST_F(Replacement, OnlyTheReplacedOneEnds) {
  wait_for({"m60"});
  const Starts found = starts({process(1, "m20"), process(2, "m60"), process(3, "m10")});
  EXPECT_TRUE(found.start.empty());
  EXPECT_EQ(found.end, (Ids{{2}}));
}

TEST_F(Replacement, NothingEndsWhileAnotherLoadsOrEnds) {
  wait_for({"m60"});
  DeviceProcess loads = process(2, "m20", true);
  loads.settled = false;
  EXPECT_TRUE(starts({process(1, "m60"), loads}).end.empty());
  loads.planned = false;
  EXPECT_TRUE(starts({process(1, "m60"), loads}).end.empty());
}

TEST_F(Replacement, PlannedOnesDoNotEnd) {
  wait_for({"m60"});
  EXPECT_EQ(starts({process(1, "m60", true), process(2, "m10")}).end, (Ids{{2}}));
  EXPECT_EQ(starts({process(1, "m60", true)}).start, (Indices{0})) << "waiting would not help";
}

TEST_F(Replacement, TheOneThatCostsLeastComesFirst) {
  wait_for({"m60", "m20"});
  const Starts found = starts({process(1, "m20"), process(2, "m20"), process(3, "m60", true)});
  EXPECT_EQ(found.end.size(), 1U);
  EXPECT_EQ(found.next, 1U);
}

TEST_F(Replacement, MigInstancesInTheWayEnd) {
  testing::divide_by_mig(world_, "a100-80");
  wait_for({"m1"});
  planned_[0].instance = partition::MigInstance{4, 0};
  DeviceProcess there = process(1, "m10");
  there.instance = partition::MigInstance{3, 4};
  DeviceProcess in_the_way = process(2, "m1");
  in_the_way.instance = partition::MigInstance{1, 2};
  device().memory_mb = 0;
  EXPECT_EQ(starts({there, in_the_way}).end, (Ids{{2}}));
  in_the_way.instance = partition::MigInstance{4, 0};
  EXPECT_EQ(starts({in_the_way}).end, (Ids{{2}}));
}

TEST_F(Replacement, OutagesAreKnownBeforehand) {
  wait_for({"m60", "m20"});
  const auto outages =
      expected_outages(device(), &profile(), {process(1, "m60"), process(2, "m20")}, waiting());
  ASSERT_EQ(outages.size(), 1U) << "m20 has room, and leaves some";
  EXPECT_EQ(outages[0].dark, (Ids{{1}}));
  EXPECT_EQ(outages[0].until, 0U);
}

// However processes and needs are, everything starts, memory suffices, and as expected.
RC_GTEST_FIXTURE_PROP(Replacement, EveryGpuletStartsWithinTheMemory, ()) {
  const auto any_models = [](std::size_t most) {
    return *rc::gen::resize(static_cast<int>(most),
                            rc::gen::container<std::vector<std::string>>(
                                rc::gen::element<std::string>("m1", "m10", "m20", "m60")));
  };
  const auto sum_mb = [](const std::vector<DeviceProcess>& there) {
    double sum = 0;
    for (const DeviceProcess& one : there) sum += std::stod(one.models[0].substr(1));
    return sum;
  };
  std::vector<DeviceProcess> there;
  for (const std::string& model : any_models(6)) {
    there.push_back(process(there.size() + 1, model));
    if (sum_mb(there) > 100) there.pop_back();
  }
  double wanted_mb = 0;
  for (const std::string& model : any_models(6)) {
    wanted_mb += std::stod(model.substr(1));
    if (wanted_mb <= 100) wait_for({model});
  }
  std::vector<const PlannedGpulet*> left = waiting();
  const auto outages = expected_outages(device(), &profile(), there, left);
  std::size_t ended = 0;
  while (!left.empty()) {
    const Starts found = next_starts(device(), &profile(), there, left);
    RC_ASSERT(found.start.empty() != found.end.empty());
    if (!found.end.empty()) {
      RC_ASSERT(ended < outages.size());
      RC_ASSERT(found.end == outages[ended++].dark);
      std::erase_if(there, [&](const DeviceProcess& one) {
        return std::binary_search(found.end.begin(), found.end.end(), one.id);
      });
      continue;
    }
    for (auto at = found.start.rbegin(); at != found.start.rend(); ++at) {
      there.push_back(process(0, left[*at]->assignments[0].model, true));
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(*at));
    }
    RC_ASSERT(sum_mb(there) <= 100);
    std::erase_if(there, [&](const DeviceProcess& one) {
      return !one.planned && std::none_of(left.begin(), left.end(), [&](const auto* waits) {
        return waits->assignments[0].model == one.models[0];
      });
    });
  }
  RC_ASSERT(ended == outages.size());
}

}  // namespace
}  // namespace gpulet::schedule
