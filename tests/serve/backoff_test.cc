#include "serve/deploy/backoff.h"

#include <gtest/gtest.h>

#include <string>

namespace gpulet::serve::backoff_test {
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

TEST_F(ExclusionsTest, ANodeFailureExcludesAllDevicesOfTheNode) {
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

TEST_F(ExclusionsTest, ADeviceFailureExcludesTheDeviceOnly) {
  fail(kFirst, FailureCause::device);
  EXPECT_FALSE(exclusions_.allows(kFirst));
  EXPECT_TRUE(exclusions_.allows(kSecond));
  ASSERT_EQ(exclusions_.in_force().size(), 1U);
  EXPECT_EQ(exclusions_.in_force()[0].device, 0U);
}

TEST_F(ExclusionsTest, ThePauseDoublesUntilASuccess) {
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

TEST_F(ExclusionsTest, GpuletsFromBeforeTheFailureDoNotCount) {
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

TEST_F(ExclusionsTest, OldFailuresAreForgotten) {
  fail(kFirst, FailureCause::node_disk);
  fail(kFirst, FailureCause::node_disk);
  wait_for(kFirst);
  now_ += minutes(20);
  exclusions_.expire(now_);
  fail(kFirst, FailureCause::node_disk);
  EXPECT_EQ(wait_for(kFirst), seconds(5));
}

TEST_F(ExclusionsTest, AFaultyModelAbsolvesTheDeviceButNotTheMachine) {
  fail(kFirst, FailureCause::model_crash);
  fail(kSecond, FailureCause::device);
  exclusions_.absolve("n0");
  EXPECT_TRUE(exclusions_.allows(kFirst));
  EXPECT_FALSE(exclusions_.allows(kSecond));
}

TEST_F(ExclusionsTest, ABackendWithShortConnectionsIsExcluded) {
  for (int stay = 1; stay <= 3; ++stay) {
    EXPECT_TRUE(exclusions_.allows(kFirst));
    exclusions_.joined("n0", true, now_);
    now_ += seconds(1);
    exclusions_.left("n0", {StatusCode::malformed, "models: 1500 are over the limit"}, now_);
  }
  exclusions_.joined("n0", true, now_);
  ASSERT_FALSE(exclusions_.allows(kFirst)) << "joining again does not help by itself";
  EXPECT_EQ(exclusions_.of(kFirst)->error.code(), StatusCode::malformed);

  for (int stay = 1; stay <= 5; ++stay) {
    exclusions_.joined("n1", true, now_);
    now_ += minutes(1);
    exclusions_.left("n1", {StatusCode::unavailable, "reset"}, now_);
  }
  EXPECT_TRUE(exclusions_.allows(kOther));
}

TEST_F(ExclusionsTest, ShortConnectionsOfTheNodesThatJoinedFirstAreForgottenFirst) {
  const auto stay_shortly = [this](const std::string& node) {
    exclusions_.joined(node, true, now_);
    now_ += seconds(1);
    exclusions_.left(node, {StatusCode::unavailable, "reset"}, now_);
  };
  const auto others_join = [this](const std::string& name) {
    for (int i = 0; i < 2500; ++i) exclusions_.joined(name + std::to_string(i), true, now_);
  };
  stay_shortly("n0");
  stay_shortly("n0");
  others_join("early");
  stay_shortly("n1");
  stay_shortly("n1");
  others_join("late");
  stay_shortly("n0");
  EXPECT_TRUE(exclusions_.allows(kFirst)) << "it joined before 5000 others";
  stay_shortly("n1");
  EXPECT_FALSE(exclusions_.allows(kOther)) << "it joined before 2500 others";
}

TEST_F(ExclusionsTest, AFreshBackendIsTriedAtOnce) {
  exclusions_.joined("n0", true, now_);
  fail(kFirst, FailureCause::node_disk);
  now_ += minutes(1);
  exclusions_.left("n0", {StatusCode::cancelled, "stopped"}, now_);
  exclusions_.joined("n0", false, now_);
  EXPECT_FALSE(exclusions_.allows(kFirst)) << "the same process, connected again";
  exclusions_.joined("n0", true, now_);
  EXPECT_TRUE(exclusions_.allows(kFirst));
}

constexpr Time at_s(int s) { return Time(seconds(1000 + s)); }

QuarantineOptions three_in_a_minute() {
  QuarantineOptions options;
  options.crashes = 3;
  options.window = seconds(60);
  options.first = seconds(10);
  options.longest = seconds(35);
  options.relapse_within = seconds(30);
  options.suspect_for = seconds(100);
  return options;
}

class QuarantineTest : public ::testing::Test {
 protected:
  bool crash(int s) { return quarantine_.crashed("a", "ended by signal 11", at_s(s)); }
  Quarantine quarantine_{three_in_a_minute()};
};

TEST_F(QuarantineTest, BeginsAfterEnoughCrashesInTheWindow) {
  EXPECT_FALSE(quarantine_.suspects("a"));
  EXPECT_FALSE(crash(0));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_FALSE(crash(10));
  EXPECT_FALSE(crash(61)) << "the first was more than a minute ago";
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_TRUE(quarantine_.why("a", at_s(61)).empty());
  EXPECT_TRUE(crash(62));
  EXPECT_TRUE(quarantine_.holds("a"));
  EXPECT_FALSE(quarantine_.why("a", at_s(63)).empty());
  EXPECT_FALSE(quarantine_.holds("b"));
  EXPECT_EQ(quarantine_.crashes("b"), 0U);
}

TEST_F(QuarantineTest, EndsByItselfAndARelapseIsLonger) {
  EXPECT_FALSE(crash(0));
  EXPECT_FALSE(crash(1));
  EXPECT_TRUE(crash(2));
  EXPECT_EQ(quarantine_.left("a", at_s(2)), seconds(10));
  EXPECT_FALSE(crash(3)) << "a batch that was in flight";
  EXPECT_TRUE(quarantine_.tick(at_s(11)).empty());
  EXPECT_EQ(quarantine_.tick(at_s(12)), std::vector<std::string>{"a"});
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_TRUE(crash(20)) << "one crash is enough so soon";
  EXPECT_EQ(quarantine_.left("a", at_s(20)), seconds(20));
  EXPECT_EQ(quarantine_.tick(at_s(40)).size(), 1U);
  EXPECT_TRUE(crash(41));
  EXPECT_EQ(quarantine_.left("a", at_s(41)), seconds(35)) << "no longer than the longest";
  EXPECT_EQ(quarantine_.tick(at_s(76)).size(), 1U);
  EXPECT_FALSE(crash(107)) << "it ran well for longer than that";
  EXPECT_EQ(quarantine_.crashes("a"), 7U);
}

TEST_F(QuarantineTest, SuspicionExpires) {
  quarantine_.suspect("a", at_s(0));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_EQ(quarantine_.crashes("a"), 0U) << "it may have been another's doing";
  EXPECT_TRUE(quarantine_.tick(at_s(99)).empty());
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_TRUE(quarantine_.tick(at_s(100)).empty());
  EXPECT_FALSE(quarantine_.suspects("a"));
}

TEST_F(QuarantineTest, AModelThatOnlyHungMayShareUntilItCrashes) {
  quarantine_.hung("a", at_s(0));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_TRUE(quarantine_.may_share("a"));
  EXPECT_FALSE(crash(1));
  EXPECT_FALSE(quarantine_.may_share("a"));
  quarantine_.tick(at_s(101));
  quarantine_.hung("a", at_s(102));
  EXPECT_TRUE(quarantine_.may_share("a"));
}

TEST_F(QuarantineTest, EndsOnRelease) {
  EXPECT_FALSE(quarantine_.release("a"));
  EXPECT_FALSE(crash(0));
  EXPECT_FALSE(crash(1));
  EXPECT_TRUE(crash(2));
  EXPECT_TRUE(quarantine_.release("a"));
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_FALSE(quarantine_.suspects("a"));
  EXPECT_TRUE(quarantine_.tick(at_s(20)).empty());
  EXPECT_FALSE(crash(21)) << "it begins anew";
  EXPECT_EQ(quarantine_.crashes("a"), 4U) << "the counter goes on";
  quarantine_.forget("a");
  EXPECT_EQ(quarantine_.crashes("a"), 0U);
}

}  // namespace
}  // namespace gpulet::serve::backoff_test
