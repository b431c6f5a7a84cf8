#include "gpulet/partition/drivers/simulated.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

namespace gpulet::partition {
namespace {

MigGeometry geometry_of(std::string_view name) { return MigGeometry::of(name).value(); }

Claim claim(std::uint64_t gpulet, MigInstance instance, std::string_view of = "a100-80") {
  return {
      .gpulet = {gpulet}, .share = geometry_of(of).share_of(instance.slices), .instance = instance};
}

TEST(SimulatedDriver, GrantsAShareOnceAndNoInstanceWhereThereAreNone) {
  const auto driver = make_simulated_driver();
  EXPECT_EQ(driver->grant({{1}, {0}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant({{1}, {40}}).ok());
  EXPECT_EQ(driver->grant({{1}, {40}}).status().code(), StatusCode::internal);
  EXPECT_EQ(driver->grant(claim(2, {3, 0})).status().code(), StatusCode::invalid);
}

TEST(SimulatedDriver, RefusesInstancesThatTheDeviceDoesNotHave) {
  const auto driver = make_simulated_driver(SimulatedInstances{geometry_of("a100-80")});
  EXPECT_EQ(driver->grant({{1}, {42}}).status().message(),
            "a device of the geometry a100-80 has gpulets in instances only; name one");
  Claim none = claim(1, {3, 0});
  none.instance = MigInstance{3, 1};
  EXPECT_EQ(driver->grant(none).status().message(),
            "a device of the geometry a100-80 has no instance 3g@1");
  Claim larger = claim(1, {3, 0});
  larger.share = Share{57};
  EXPECT_EQ(driver->grant(larger).status().message(),
            "the instance 3g@0 is 42 % of its device, not 57 %");
  for (const Claim& wrong : {none, larger})
    EXPECT_EQ(driver->grant(wrong).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant(claim(1, {3, 0})).ok()) << "nothing was taken by what was refused";
}

TEST(SimulatedDriver, AnInstanceIsThereUntilItsLastGpuletHasGone) {
  const auto driver = make_simulated_driver(SimulatedInstances{geometry_of("a100-80"), 2});
  ASSERT_TRUE(driver->grant(claim(1, {4, 0})).ok());
  ASSERT_TRUE(driver->grant(claim(2, {4, 0})).ok());
  ASSERT_TRUE(driver->grant(claim(3, {3, 4})).ok());
  const Status third = driver->grant(claim(4, {4, 0})).status();
  EXPECT_EQ(third.code(), StatusCode::unavailable);
  EXPECT_EQ(third.message(), "the instance 4g@0 is in use by 2 gpulets, as many as it may have");
  const auto remade = [&driver] { return driver->grant(claim(5, {2, 0})).status(); };
  EXPECT_EQ(remade().code(), StatusCode::unavailable);
  EXPECT_EQ(remade().message(),
            "the instance 2g@0 cannot be made while 4g@0 is in use by gpulet 1");
  driver->release({1});
  EXPECT_EQ(remade().code(), StatusCode::unavailable);
  driver->release({2});
  EXPECT_TRUE(remade().ok()) << "the 3g beside it goes on";

  const auto strict =
      make_simulated_driver(SimulatedInstances{geometry_of("a100-80").without_3g_beside_4g()});
  ASSERT_TRUE(strict->grant(claim(1, {4, 0})).ok());
  EXPECT_EQ(strict->grant(claim(2, {3, 4})).status().code(), StatusCode::unavailable);
}

RC_GTEST_PROP(SimulatedDriver, what_it_grants_is_always_a_legal_layout, ()) {
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
