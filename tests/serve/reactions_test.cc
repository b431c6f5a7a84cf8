#include "serve/adapt/reactions.h"

#include <gtest/gtest.h>

#include "tests/support/names.h"

namespace gpulet::serve::reactions_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kStart{seconds(100)};

// The model blocks others for 250 ms, `count` times a second apart. Returns the time after.
Time block(Disturbances& disturbances, int count, Time from) {
  for (int i = 0; i < count; ++i)
    disturbances.blocked("a", milliseconds(300), milliseconds(1), milliseconds(250),
                         from + seconds(i));
  return from + seconds(count);
}

TEST(Disturbances, AreFoundByRepetition) {
  Disturbances disturbances;
  Time now = block(disturbances, 2, kStart);
  EXPECT_TRUE(disturbances.tick(now).begin.empty()) << "outliers";
  EXPECT_EQ(disturbances.why("a"), "");
  now = block(disturbances, 1, now);
  EXPECT_EQ(disturbances.tick(now).begin, std::vector<std::string>{"a"});
  EXPECT_TRUE(disturbances.disturbs("a"));
  EXPECT_FALSE(disturbances.disturbs("b"));
  EXPECT_TRUE(support::names(disturbances.why("a"), "300 ms", "1.0 ms"));
  EXPECT_TRUE(disturbances.tick(now).begin.empty()) << "said once";
}

TEST(Disturbances, RareOnesAndShortOnesDoNotCount) {
  Disturbances disturbances;
  for (int i = 0; i < 100; ++i) {
    const Time now = kStart + i * seconds(8);
    disturbances.blocked("a", milliseconds(300), milliseconds(1), milliseconds(250), now);
    disturbances.blocked("b", milliseconds(3), milliseconds(1), milliseconds(1), now);
    EXPECT_TRUE(disturbances.tick(now).begin.empty());
  }
}

TEST(Disturbances, EndAfterAWhileThatDoublesWithRelapses) {
  Disturbances disturbances;
  Time now = block(disturbances, 3, kStart);
  ASSERT_EQ(disturbances.tick(now).begin.size(), 1U);
  EXPECT_TRUE(disturbances.tick(now + minutes(4)).end.empty());
  EXPECT_EQ(disturbances.tick(now + minutes(5)).end, std::vector<std::string>{"a"});
  now = block(disturbances, 3, now + minutes(6));
  ASSERT_EQ(disturbances.tick(now).begin.size(), 1U);
  EXPECT_TRUE(disturbances.tick(now + minutes(9)).end.empty());
  EXPECT_EQ(disturbances.tick(now + minutes(10)).end.size(), 1U);
  disturbances.tick(now + minutes(40));
  now = block(disturbances, 3, now + minutes(41));
  ASSERT_EQ(disturbances.tick(now).begin.size(), 1U);
  EXPECT_EQ(disturbances.tick(now + minutes(5)).end.size(), 1U) << "forgotten";
}

// Counters of a model with 100 requests per second, at two ticks per second.
struct Model {
  ExtraHeadroom headroom;
  ModelCounters counters;
  Time now = kStart;
  int rises = 0;

  void run(double for_s, double violated, bool may_rise = true) {
    for (const Time end = now + from_seconds(for_s); now < end; now += milliseconds(500)) {
      counters.served += 50;
      counters.late += static_cast<std::uint64_t>(50 * violated);
      rises += headroom.tick(
                   counters, [may_rise] { return may_rise; }, now)
                   ? 1
                   : 0;
    }
  }
};

TEST(ExtraHeadroom, RisesStepByStepAndIsBounded) {
  Model model;
  model.run(60, 0);
  EXPECT_EQ(model.headroom.factor(), 1);
  model.run(20, 0.2, false);
  EXPECT_EQ(model.headroom.factor(), 1) << "something else explains it";
  model.run(6, 0.2);
  EXPECT_EQ(model.headroom.factor(), 1.25);
  model.run(9, 0);
  EXPECT_EQ(model.headroom.factor(), 1.25);
  EXPECT_EQ(model.rises, 1);
  model.run(25, 0.2);
  EXPECT_EQ(model.headroom.factor(), 2);
}

TEST(ExtraHeadroom, FallsAgainSlowly) {
  Model model;
  model.run(16, 0.2);
  ASSERT_EQ(model.headroom.factor(), 1.5);
  model.run(100, 0);
  EXPECT_EQ(model.headroom.factor(), 1.5);
  model.run(60, 0);
  EXPECT_EQ(model.headroom.factor(), 1.25);
  model.run(600, 0);
  EXPECT_EQ(model.headroom.factor(), 1);
}

TEST(ExtraHeadroom, IsGivenUpWhereItDoesNotHelp) {
  Model model;
  model.run(300, 0.2);
  EXPECT_EQ(model.headroom.factor(), 1);
  EXPECT_EQ(model.rises, 3);
  model.run(600, 0.2);
  EXPECT_GT(model.rises, 3) << "tried again after a while";
}

TEST(ExtraHeadroom, AFewLateRequestsDoNotCount) {
  Model model;
  model.run(600, 0.02);
  EXPECT_EQ(model.rises, 0);
}

}  // namespace
}  // namespace gpulet::serve::reactions_test
