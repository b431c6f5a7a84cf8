#include "serve/adapt/slow_devices.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/planning/pipeline.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::slow_devices_test {
namespace {

using schedule::DeviceKey;

ObservedFactor observed(const std::string& model, int size, const DeviceKey& device, double factor,
                        const std::string& type = "card") {
  return {{model, type, Share{size}, device}, factor};
}

SlowDevices find(std::vector<ObservedFactor> factors, const SlowDevices& before = {}) {
  std::sort(factors.begin(), factors.end(),
            [](const auto& a, const auto& b) { return a.place < b.place; });
  return find_slow_devices(factors, before);
}

const DeviceKey kFirst{"n0", 0};
const DeviceKey kSecond{"n0", 1};
const DeviceKey kThird{"n0", 2};

TEST(SlowDevices, AreSlowerThanOthersForEveryModel) {
  EXPECT_EQ(find({observed("a", 40, kFirst, 1.4), observed("a", 40, kSecond, 1.0),
                  observed("b", 20, kFirst, 1.4), observed("b", 20, kSecond, 1.0)}),
            (SlowDevices{{kFirst, 1.4}}));
  EXPECT_TRUE(find({observed("a", 40, kFirst, 1.4), observed("a", 40, kSecond, 1.0),
                    observed("b", 20, kFirst, 1.0), observed("b", 20, kSecond, 1.0)})
                  .empty())
      << "only one model is slow there";
}

TEST(SlowDevices, AreNotThoseOfASlowTypeOrModel) {
  EXPECT_TRUE(find({observed("a", 40, kFirst, 1.4), observed("a", 40, kSecond, 1.4)}).empty());
  EXPECT_TRUE(find({observed("a", 40, kFirst, 1.4), observed("b", 40, kSecond, 1.0)}).empty());
  EXPECT_TRUE(
      find({observed("a", 40, kFirst, 1.4), observed("a", 40, kSecond, 1.0, "other")}).empty());
}

TEST(SlowDevices, CompareEqualSizesWherePossible) {
  EXPECT_TRUE(find({observed("a", 20, kFirst, 1.4), observed("a", 20, kSecond, 1.4),
                    observed("a", 60, kThird, 1.0)})
                  .empty())
      << "the profile is wrong at 20 %";
  EXPECT_EQ(find({observed("a", 20, kFirst, 1.4), observed("a", 60, kSecond, 1.0)}),
            (SlowDevices{{kFirst, 1.4}}));
}

TEST(SlowDevices, StaySlowUntilTheyAreNearTheOthers) {
  const SlowDevices slow{{kFirst, 1.4}};
  const auto again = [&](double factor) {
    return find({observed("a", 40, kFirst, factor), observed("a", 40, kSecond, 1.0)}, slow);
  };
  EXPECT_EQ(again(1.1), (SlowDevices{{kFirst, 1.1}}));
  EXPECT_TRUE(again(1.05).empty());
  // Its model runs nowhere else any more.
  EXPECT_EQ(find({observed("a", 40, kFirst, 1.6)}, slow), slow);
  EXPECT_TRUE(find({observed("a", 40, kFirst, 1.0)}, slow).empty());
  EXPECT_TRUE(find({observed("a", 40, kSecond, 1.0)}, slow).empty()) << "nothing runs there";
}

RC_GTEST_PROP(SlowDevices, AreExactlyThoseThatAreSlowed, ()) {
  const int devices = *rc::gen::inRange(3, 12);
  const int models = *rc::gen::inRange(1, 5);
  const int slow = *rc::gen::inRange(0, (devices + 1) / 2);
  const double slowness = *rc::gen::inRange(120, 400) / 100.0;
  std::vector<ObservedFactor> factors;
  SlowDevices expected;
  for (int device = 0; device < devices; ++device) {
    const DeviceKey key{"n0", static_cast<std::uint32_t>(device)};
    if (device < slow) expected.emplace(key, slowness);
    for (int model = 0; model < models; ++model) {
      const double usual = 0.5 + 0.25 * model;
      factors.push_back(
          observed("m" + std::to_string(model), 40, key, device < slow ? usual * slowness : usual));
    }
  }
  const SlowDevices found = find(std::move(factors));
  RC_ASSERT(found.size() == expected.size());
  for (const auto& [device, factor] : expected)
    RC_ASSERT(std::abs(found.at(device) - factor) < 1e-9);
}

// A plan for devices of type "card" with that slowness of the first one.
planning::PlanResult plan_beside_a_slow_device(double slowness, double rate) {
  auto profiles = std::make_shared<profile::ProfileSet>();
  profiles->emplace("card", testing::card_profile({{"a", 12}}));
  planning::PlanRequest request;
  request.profiles = profiles;
  for (const DeviceKey& key : {kFirst, kSecond, kThird}) {
    schedule::Device device;
    device.key = key;
    device.type = "card";
    device.sizes = {Share{20}, Share{40}, Share{60}, Share{80}, Share{100}};
    device.max_partitions = 2;
    request.cluster.devices.push_back(std::move(device));
  }
  schedule::ModelDemand demand;
  demand.name = "a";
  demand.rate = rate;
  demand.slo_ms = 180;
  demand.max_batch = 32;
  request.demands.push_back(demand);
  if (slowness > 1) request.slow_devices.emplace(kFirst, slowness);
  return planning::make_plan(request, *schedule::make_policy("elastic").value());
}

TEST(SlowDevices, HaveLongerLatenciesInPlansAndOthersDoNot) {
  const planning::PlanResult usual = plan_beside_a_slow_device(1, 300);
  const planning::PlanResult beside = plan_beside_a_slow_device(1.5, 300);
  ASSERT_TRUE(usual.faults.empty());
  ASSERT_TRUE(beside.faults.empty());
  EXPECT_TRUE(beside.plan.schedulable());
  const auto latency = [](const planning::PlanResult& made, const DeviceKey& device) {
    for (const schedule::PlannedGpulet& gpulet : made.plan.gpulets) {
      const schedule::Assignment& one = gpulet.assignments.front();
      // The card's profile: base * (0.5 + 0.5 n) * 100 / p.
      if (gpulet.device == device)
        return one.latency_ms * gpulet.size.fraction() / (12 * (0.5 + 0.5 * one.batch));
    }
    return 0.0;
  };
  ASSERT_GT(latency(usual, kSecond), 0);
  EXPECT_NEAR(latency(beside, kSecond), latency(usual, kSecond), 1e-9);
  if (latency(beside, kFirst) > 0) {
    EXPECT_NEAR(latency(beside, kFirst), 1.5 * latency(usual, kSecond), 1e-6);
  }
}

}  // namespace
}  // namespace gpulet::serve::slow_devices_test
