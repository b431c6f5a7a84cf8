#include "node/check_schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/backend/core_bench.h"

namespace gpulet::node::check_schedule_test {
namespace {

using namespace std::chrono_literals;

class CheckScheduleTest : public ::testing::Test {
 protected:
  static BackendCoreOptions options() {
    BackendCoreOptions options;
    options.devices = {device(0, "cpu_quota")};
    return options;
  }
  HostedGpulet& add(std::uint64_t id) {
    return gpulets_.add(HostedGpulet::create(create(id, {"a"}), now_).value());
  }
  // That restarts at that time.
  HostedGpulet& restarting(std::uint64_t id, Time at) {
    HostedGpulet& gpulet = add(id);
    gpulet.enter(GpuletPhase::starting, now_);
    gpulet.enter(GpuletPhase::restarting, now_);
    gpulet.restart_at = at;
    checks_.schedule(gpulet);
    return gpulet;
  }

  const BackendCoreOptions options_ = options();
  const Time now_{1h};
  FrontendLinks links_{5s};
  NodeDevices devices_{options_};
  HostedGpulets gpulets_{1};
  NodeFiles files_{devices_, gpulets_, links_};
  CheckSchedule checks_{options_, devices_, files_, gpulets_};
};

TEST_F(CheckScheduleTest, IsEmptyAtFirst) {
  EXPECT_EQ(checks_.next(), kNever);
  EXPECT_EQ(checks_.take_due(now_ + 24h), nullptr);
  checks_.drop_stale();
}

TEST_F(CheckScheduleTest, AProcessHasItsTimeToLoad) {
  HostedGpulet& gpulet = add(1);
  EXPECT_EQ(checks_.next_check(gpulet), kNever) << "it waits for its files";
  gpulet.enter(GpuletPhase::starting, now_);
  EXPECT_EQ(checks_.next_check(gpulet), now_ + checks_.load_bound_of(gpulet));
  EXPECT_GE(checks_.load_bound_of(gpulet), options_.load_timeout);
  gpulet.terminating = {StatusCode::timeout, "too slow"};
  EXPECT_EQ(checks_.next_check(gpulet), kNever) << "its end is to come";
}

TEST_F(CheckScheduleTest, AProcessHangsWithoutProgressInItsBatches) {
  HostedGpulet& gpulet = add(1);
  for (const auto phase : {GpuletPhase::starting, GpuletPhase::loading, GpuletPhase::ready})
    gpulet.enter(phase, now_);
  EXPECT_EQ(checks_.next_check(gpulet), kNever);
  gpulet.last_progress = now_;
  gpulet.held.push_back({{1}, {1}, "a", 1, 1ms, now_, now_});
  EXPECT_EQ(checks_.next_check(gpulet), now_ + options_.hang_timeout);
  gpulet.held.front().expected = 10s;
  EXPECT_EQ(checks_.next_check(gpulet), now_ + 50s);
}

TEST_F(CheckScheduleTest, NothingRestartsOnAFaultyDevice) {
  const HostedGpulet& gpulet = restarting(1, now_ + 1s);
  EXPECT_EQ(checks_.next_check(gpulet), now_ + 1s);
  DeviceHealthReported fault{0, {StatusCode::unavailable, "gone"}, {}};
  ASSERT_TRUE(devices_.report(fault));
  EXPECT_EQ(checks_.next_check(gpulet), kNever);
  checks_.drop_stale();
  EXPECT_EQ(checks_.next(), kNever);
}

TEST_F(CheckScheduleTest, AnEarlierCheckReplacesALaterOne) {
  HostedGpulet& gpulet = restarting(1, now_ + 9s);
  gpulet.restart_at = now_ + 1s;
  checks_.schedule(gpulet);
  EXPECT_EQ(checks_.next(), now_ + 1s);
  EXPECT_EQ(checks_.take_due(now_ + 1s), &gpulet);
  EXPECT_EQ(checks_.take_due(now_ + 24h), nullptr);
}

TEST_F(CheckScheduleTest, AStaleCheckIsPostponed) {
  HostedGpulet& gpulet = restarting(1, now_ + 1s);
  gpulet.restart_at = now_ + 9s;
  checks_.schedule(gpulet);
  EXPECT_EQ(checks_.next(), now_ + 1s);
  checks_.drop_stale();
  EXPECT_EQ(checks_.next(), now_ + 9s);
}

TEST_F(CheckScheduleTest, AGpuletThatIsGoneIsNotChecked) {
  HostedGpulet& gpulet = restarting(1, now_ + 1s);
  gpulet.enter(GpuletPhase::gone, now_);
  gpulets_.set_some_gone();
  gpulets_.erase_gone();
  EXPECT_EQ(checks_.take_due(now_ + 24h), nullptr);
}

// However often the times change: the next one is that of the earliest gpulet, and each is taken
// once, in its order.
RC_GTEST_FIXTURE_PROP(CheckScheduleTest, TakesEachAtItsTimeInOrder, ()) {
  const auto any_time = [this] { return now_ + std::chrono::seconds(*rc::gen::inRange(0, 50)); };
  std::vector<HostedGpulet*> all;
  for (std::uint64_t id = 1; id <= 5; ++id) all.push_back(&restarting(id, any_time()));
  for (int change = *rc::gen::inRange(0, 30); change > 0; --change) {
    HostedGpulet& gpulet = **rc::gen::elementOf(all);
    gpulet.restart_at = any_time();
    checks_.schedule(gpulet);
    if (*rc::gen::arbitrary<bool>()) checks_.drop_stale();
  }
  std::size_t taken = 0;
  Time last = now_;
  for (checks_.drop_stale(); checks_.next() != kNever; checks_.drop_stale()) {
    const Time due = checks_.next();
    RC_ASSERT(due >= last);
    last = due;
    HostedGpulet* const gpulet = checks_.take_due(due);
    RC_ASSERT(gpulet != nullptr);
    RC_ASSERT(gpulet->restart_at == due);
    ++taken;
  }
  RC_ASSERT(taken == all.size());
}

}  // namespace
}  // namespace gpulet::node::check_schedule_test
