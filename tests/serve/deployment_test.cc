#include "serve/deploy/deployment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::serve {
namespace {

using std::chrono::seconds;

constexpr Duration kPatience = seconds(3);
constexpr Time kBegin(seconds(100));

// A rollout of new gpulets, 1 and on.
class RolloutTest : public ::testing::Test {
 protected:
  static Rollout rollout_of(std::size_t gpulets) {
    schedule::Plan plan;
    schedule::Steps steps;
    for (std::size_t i = 0; i < gpulets; ++i) {
      schedule::PlannedGpulet& planned = plan.gpulets.emplace_back();
      planned.assignments.push_back({"m" + std::to_string(i)});
      steps.create.push_back(i);
    }
    std::uint64_t last = 0;
    Rollout rollout(
        std::move(plan), std::move(steps), {}, [&last] { return GpuletId{++last}; }, kBegin,
        kPatience);
    while (rollout.has_to_create()) (void)rollout.take_to_create();
    return rollout;
  }
};

TEST_F(RolloutTest, IsCompleteWhenAllAreReadyOrTheTimeIsUp) {
  Rollout rollout = rollout_of(2);
  rollout.ready({1});
  EXPECT_FALSE(rollout.complete(kBegin + kPatience - Duration(1)));
  EXPECT_TRUE(rollout.complete(kBegin + kPatience));
  rollout.ready({2});
  EXPECT_TRUE(rollout.complete(kBegin));
}

TEST_F(RolloutTest, WaitsLongerForThoseThatWillBeReady) {
  Rollout rollout = rollout_of(2);
  const Time until = kBegin + seconds(18);
  rollout.wait_longer({1}, until);
  EXPECT_EQ(rollout.deadline(), until);
  EXPECT_FALSE(rollout.complete(kBegin + seconds(12)));
  rollout.ready({1});
  EXPECT_TRUE(rollout.complete(kBegin + seconds(12))) << "the time of the other is up";
  EXPECT_TRUE(rollout.awaits({2}));
}

TEST_F(RolloutTest, DoesNotWaitForOneThatIsLost) {
  Rollout rollout = rollout_of(2);
  rollout.wait_longer({1}, kBegin + seconds(18));
  rollout.lost({1});
  EXPECT_EQ(rollout.deadline(), kBegin + kPatience);
}

class PatienceTest : public ::testing::Test {
 protected:
  [[nodiscard]] Duration patience() { return deployment_.gpulets().patience(kPatience); }

  BackendRegistry backends_;
  Deployment deployment_{backends_, 1};
};

TEST_F(PatienceTest, IsSomewhatLongerThanGpuletsTook) {
  EXPECT_EQ(patience(), kPatience);
  deployment_.gpulets().started_within(seconds(1));
  EXPECT_EQ(patience(), kPatience);
  deployment_.gpulets().started_within(seconds(12));
  EXPECT_EQ(patience(), seconds(18));
  deployment_.gpulets().started_within(seconds(60));
  EXPECT_EQ(patience(), seconds(20)) << "a bound";
}

TEST_F(PatienceTest, ForgetsASlowStart) {
  deployment_.gpulets().started_within(seconds(60));
  for (int i = 0; i < 30; ++i) deployment_.gpulets().started_within(seconds(1));
  EXPECT_EQ(patience(), kPatience);
}

}  // namespace
}  // namespace gpulet::serve
