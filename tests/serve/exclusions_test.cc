#include "gpulet/serve/exclusions.h"

#include <gtest/gtest.h>

namespace gpulet::serve {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const Status kFull(StatusCode::unavailable, "no space left on device");
const schedule::DeviceKey kFirst{"n0", 0};
const schedule::DeviceKey kSecond{"n0", 1};
const schedule::DeviceKey kOther{"n1", 0};

class ExclusionsTest : public ::testing::Test {
 protected:
  // A gpulet that was made after everything before it fails.
  void fail(const schedule::DeviceKey& device, FailureCause cause) {
    const GpuletId gpulet{next_++};
    exclusions_.failed(device, gpulet, cause, kFull, GpuletId{next_}, now_);
  }
  // Ends the pause in force on the device and returns how long it was.
  Duration wait_for(const schedule::DeviceKey& device) {
    const Duration pause = exclusions_.of(device)->until - now_;
    now_ += pause;
    EXPECT_EQ(exclusions_.expire(now_).size(), 1U);
    EXPECT_TRUE(exclusions_.allows(device));
    return pause;
  }

  Exclusions exclusions_{ExclusionOptions{}};
  Time now_{seconds(100)};
  std::uint64_t next_ = 1;
};

TEST_F(ExclusionsTest, ANodesFailureExcludesAllItsDevicesAndNoOtherNode) {
  fail(kFirst, FailureCause::node_disk);
  EXPECT_FALSE(exclusions_.allows(kFirst));
  EXPECT_FALSE(exclusions_.allows(kSecond));
  EXPECT_TRUE(exclusions_.allows(kOther));
  ASSERT_EQ(exclusions_.in_force().size(), 1U);
  const Exclusion told = exclusions_.in_force()[0];
  EXPECT_EQ(told.node, "n0");
  EXPECT_FALSE(told.device.has_value());
  EXPECT_EQ(told.cause, FailureCause::node_disk);
  EXPECT_EQ(told.error, kFull);
  EXPECT_EQ(told.until, now_ + seconds(5));
}

TEST_F(ExclusionsTest, ADevicesFailureExcludesItAlone) {
  fail(kFirst, FailureCause::device);
  EXPECT_FALSE(exclusions_.allows(kFirst));
  EXPECT_TRUE(exclusions_.allows(kSecond));
  ASSERT_EQ(exclusions_.in_force().size(), 1U);
  EXPECT_EQ(exclusions_.in_force()[0].device, 0U);
}

TEST_F(ExclusionsTest, ThePauseDoublesUpToTheLongestAndASuccessEndsIt) {
  Duration expected = seconds(5);
  for (int failures = 1; failures <= 9; ++failures) {
    fail(kFirst, FailureCause::node_spawn);
    EXPECT_EQ(wait_for(kFirst), expected) << failures;
    expected = std::min<Duration>(2 * expected, minutes(5));
  }
  exclusions_.ready(kFirst, GpuletId{next_++});
  fail(kFirst, FailureCause::node_spawn);
  EXPECT_EQ(wait_for(kFirst), seconds(5));
}

TEST_F(ExclusionsTest, GpuletsOfBeforeTheFailureNeitherCountAgainNorProveAnything) {
  const GpuletId early{next_++};
  const GpuletId late{next_++};
  fail(kFirst, FailureCause::node_disk);
  exclusions_.failed(kFirst, early, FailureCause::node_disk, kFull, GpuletId{next_}, now_);
  EXPECT_EQ(exclusions_.in_force()[0].failures, 1U);
  exclusions_.ready(kSecond, late);
  EXPECT_FALSE(exclusions_.allows(kFirst));
  wait_for(kFirst);
  exclusions_.ready(kSecond, late);
  fail(kFirst, FailureCause::node_disk);
  EXPECT_EQ(wait_for(kFirst), seconds(10));
}

TEST_F(ExclusionsTest, ALongQuietTimeForgetsOldFailures) {
  fail(kFirst, FailureCause::node_disk);
  fail(kFirst, FailureCause::node_disk);
  wait_for(kFirst);
  now_ += minutes(20);
  exclusions_.expire(now_);
  fail(kFirst, FailureCause::node_disk);
  EXPECT_EQ(wait_for(kFirst), seconds(5));
}

TEST_F(ExclusionsTest, AModelThatIsToBlameAbsolvesTheDeviceButNotTheMachine) {
  fail(kFirst, FailureCause::model_crash);
  fail(kSecond, FailureCause::device);
  exclusions_.absolve("n0");
  EXPECT_TRUE(exclusions_.allows(kFirst));
  EXPECT_FALSE(exclusions_.allows(kSecond));
}

TEST_F(ExclusionsTest, ABackendThatKeepsLeavingIsExcludedAndOneThatStaysIsNot) {
  for (int stay = 1; stay <= 3; ++stay) {
    EXPECT_TRUE(exclusions_.allows(kFirst));
    exclusions_.joined("n0", true, now_);
    now_ += seconds(1);
    exclusions_.left("n0", {StatusCode::malformed, "models: 1500 are over the limit"}, now_);
  }
  exclusions_.joined("n0", true, now_);
  ASSERT_FALSE(exclusions_.allows(kFirst)) << "joining again does not help by itself";
  EXPECT_NE(exclusions_.of(kFirst)->error.message().find("1500"), std::string::npos);

  for (int stay = 1; stay <= 5; ++stay) {
    exclusions_.joined("n1", true, now_);
    now_ += minutes(1);
    exclusions_.left("n1", {StatusCode::unavailable, "reset"}, now_);
  }
  EXPECT_TRUE(exclusions_.allows(kOther));
}

TEST_F(ExclusionsTest, ABackendThatStartsAnewIsTriedAtOnce) {
  exclusions_.joined("n0", true, now_);
  fail(kFirst, FailureCause::node_disk);
  now_ += minutes(1);
  exclusions_.left("n0", {StatusCode::cancelled, "stopped"}, now_);
  exclusions_.joined("n0", false, now_);
  EXPECT_FALSE(exclusions_.allows(kFirst)) << "the same process, connected again";
  exclusions_.joined("n0", true, now_);
  EXPECT_TRUE(exclusions_.allows(kFirst));
}

}  // namespace
}  // namespace gpulet::serve
