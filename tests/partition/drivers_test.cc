// The green and simulated drivers, which enforce nothing themselves.
#include "gpulet/partition/drivers/drivers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <map>
#include <string_view>
#include <vector>

#include "tests/support/names.h"

namespace gpulet::partition {
namespace {

using support::names;
using ::testing::StartsWith;

const GreenGpu kH200{"GPU-1", {.sms = 132, .divisible = 128, .smallest = 8, .step = 8}};

TEST(GreenDriver, ReportsItsTraits) {
  const auto driver = make_green_driver(kH200);
  EXPECT_EQ(driver->mechanism(), "green");
  EXPECT_NEAR(driver->traits().step_percent, 6.06, 0.01);
  EXPECT_EQ(driver->traits().change, ChangeOfSize::in_place);
  EXPECT_EQ(driver->traits().fault, FaultReach::device);
  EXPECT_FALSE(driver->traits().limits_memory);
  EXPECT_TRUE(driver->ready());
}

TEST(GreenDriver, TheEnvironmentNamesTheGpuAndTheShareAndNoMpsDaemon) {
  const auto driver = make_green_driver(kH200);
  const auto granted = driver->grant({{1}, {20}});
  ASSERT_TRUE(granted.ok()) << granted.status().to_string();
  const auto& variables = granted.value().environment;
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "GPU-1");
  EXPECT_EQ(variables.at("GPULET_DEVICE"), "cuda:0");
  EXPECT_EQ(variables.at("GPULET_EXPECTED_SHARE"), "20");
  EXPECT_EQ(variables.at("GPULET_DEVICE_SMS"), "132");
  EXPECT_THAT(variables.at("CUDA_MPS_PIPE_DIRECTORY"), StartsWith("/nonexistent/"));
}

TEST(GreenDriver, RefusesSizesBelowABlock) {
  const auto driver = make_green_driver(kH200);
  const Status refused = driver->grant({{1}, {6}}).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused, "7 %")) << "the smallest size";
  EXPECT_EQ(driver->grant({{1}, {101}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant({{1}, {7}}).ok());
  EXPECT_EQ(driver->grant({{1}, {7}}).status().code(), StatusCode::internal);
}

TEST(GreenDriver, RefusesMoreThanTwoStreamsPerBlock) {
  const auto driver = make_green_driver(kH200);
  for (std::uint64_t id = 1; id <= 32; ++id) ASSERT_TRUE(driver->grant({{id}, {7}}).ok());
  const Status refused = driver->grant({{33}, {7}}).status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  driver->release({5});
  driver->release({99});
  EXPECT_TRUE(driver->grant({{33}, {7}}).ok());
}

MigGeometry geometry_of(std::string_view name) { return MigGeometry::of(name).value(); }

Claim claim(std::uint64_t gpulet, MigInstance instance, std::string_view of = "a100-80") {
  return {
      .gpulet = {gpulet}, .share = geometry_of(of).share_of(instance.slices), .instance = instance};
}

TEST(SimulatedDriver, KeepsTheContractAndEnforcesNothing) {
  const auto driver = make_simulated_driver();
  EXPECT_EQ(driver->mechanism(), "simulated");
  EXPECT_EQ(driver->traits().fault, FaultReach::process);
  EXPECT_FALSE(driver->end({1}, 1)) << "the caller may kill the process";
  EXPECT_EQ(driver->grant({{1}, {0}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant({{1}, {40}}).ok());
  EXPECT_FALSE(driver->grant({{1}, {40}}).ok());
  EXPECT_TRUE(driver->attach({1}, ::getpid()).ok());
  EXPECT_TRUE(driver->activate({1}).ok());
  EXPECT_TRUE(driver->adjust({1}, 1.5).ok());
  EXPECT_EQ(driver->adjust({1}, 0).code(), StatusCode::invalid);
  EXPECT_EQ(driver->adjust({2}, 1).code(), StatusCode::internal);
  driver->release({1});
  EXPECT_TRUE(driver->grant({{1}, {40}}).ok());
}

TEST(SimulatedDriver, GrantsASharePerIdAndNoMigInstances) {
  const auto driver = make_simulated_driver();
  EXPECT_EQ(driver->grant({{1}, {0}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant({{1}, {40}}).ok());
  EXPECT_EQ(driver->grant({{1}, {40}}).status().code(), StatusCode::internal);
  EXPECT_EQ(driver->grant(claim(2, {3, 0})).status().code(), StatusCode::invalid);
}

TEST(SimulatedDriver, RefusesInstancesThatTheDeviceDoesNotHave) {
  const auto driver = make_simulated_driver(SimulatedInstances{geometry_of("a100-80")});
  EXPECT_EQ(driver->grant({{1}, {42}}).status().code(), StatusCode::invalid);
  Claim none = claim(1, {3, 0});
  none.instance = MigInstance{3, 1};
  Claim larger = claim(1, {3, 0});
  larger.share = Share{57};
  for (const Claim& wrong : {none, larger})
    EXPECT_EQ(driver->grant(wrong).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant(claim(1, {3, 0})).ok()) << "refused claims take nothing";
}

TEST(SimulatedDriver, AnInstanceExistsUntilItsLastGpuletIsReleased) {
  const auto driver = make_simulated_driver(SimulatedInstances{geometry_of("a100-80"), 2});
  ASSERT_TRUE(driver->grant(claim(1, {4, 0})).ok());
  ASSERT_TRUE(driver->grant(claim(2, {4, 0})).ok());
  ASSERT_TRUE(driver->grant(claim(3, {3, 4})).ok());
  EXPECT_EQ(driver->grant(claim(4, {4, 0})).status().code(), StatusCode::unavailable);
  const auto remade = [&driver] { return driver->grant(claim(5, {2, 0})).status(); };
  EXPECT_EQ(remade().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(remade(), "gpulet 1"));
  driver->release({1});
  EXPECT_EQ(remade().code(), StatusCode::unavailable);
  driver->release({2});
  EXPECT_TRUE(remade().ok()) << "the 3g beside it stays";

  const auto strict =
      make_simulated_driver(SimulatedInstances{geometry_of("a100-80").without_3g_beside_4g()});
  ASSERT_TRUE(strict->grant(claim(1, {4, 0})).ok());
  EXPECT_EQ(strict->grant(claim(2, {3, 4})).status().code(), StatusCode::unavailable);
}

RC_GTEST_PROP(SimulatedDriver, GrantsExactlyTheLegalLayouts, ()) {
  const MigGeometry device = geometry_of(*rc::gen::elementOf(MigGeometry::names()));
  const auto driver = make_simulated_driver(SimulatedInstances{device});
  std::map<std::uint64_t, MigInstance> there;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const auto profile =
        *rc::gen::elementOf(std::vector(device.profiles().begin(), device.profiles().end()));
    const auto starts = profile.starts();
    const MigInstance wanted{profile.slices,
                             *rc::gen::elementOf(std::vector(starts.begin(), starts.end()))};
    MigLayout with{wanted};
    for (const auto& [other, instance] : there) with.push_back(instance);
    const bool granted = driver->grant(claim(id, wanted, device.name())).ok();
    RC_ASSERT(granted == device.legal(with));
    if (granted) there.emplace(id, wanted);
    if (!there.empty() && *rc::gen::arbitrary<bool>()) {
      driver->release({there.begin()->first});
      there.erase(there.begin());
    }
  }
}

}  // namespace

}  // namespace gpulet::partition
