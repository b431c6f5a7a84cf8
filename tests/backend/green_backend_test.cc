// A backend with a GPU that is divided by green contexts: one process serves all gpulets.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>

#include "tests/backend/gpu_backend.h"
#include "tests/support/names.h"

namespace gpulet::backend {
namespace {

using support::has_line;

class GreenBackendTest : public GpuBackendTest {
 protected:
  void start() { GpuBackendTest::start("green"); }
  void start_two() { GpuBackendTest::start_two("green", 50, 50); }
  bool both_ready(std::uint64_t one, std::uint64_t other) {
    return run_until([&] { return is(one, GpuletState::ready) && is(other, GpuletState::ready); });
  }
  // Both became ready twice: before and after.
  bool both_came_back() {
    return run_until([this] {
      const auto reports = frontend_->heard<GpuletReport>();
      return std::count_if(reports.begin(), reports.end(), [](const auto& report) {
               return report.state == GpuletState::ready;
             }) == 4;
    });
  }
  bool all_ok(std::size_t batches) {
    if (!run_until([&] { return results().size() >= batches; })) return false;
    const auto all = results();
    return std::all_of(all.begin(), all.end(),
                       [](const auto& result) { return result.second == StatusCode::ok; });
  }
};

TEST_F(GreenBackendTest, GpuletsAreWorkersOfOneProcessWithTheirOwnSms) {
  start_two();
  EXPECT_EQ(frontend_->heard<Hello>().at(0).devices.at(0).traits.change,
            partition::ChangeOfSize::in_place);
  EXPECT_EQ(daemon_->proxies().size(), 1U);
  EXPECT_EQ(last_report(1)->found, (partition::FoundShare{true, 64, 132}));
  EXPECT_EQ(last_report(2)->found, (partition::FoundShare{true, 64, 132}));
  EXPECT_TRUE(has_line(environment_of(daemon_->proxies()[0]), "CUDA_VISIBLE_DEVICES=" + kUuid));
}

// A change of plan: new gpulets start while the old ones serve, then the old ones are retired.
TEST_F(GreenBackendTest, OtherSharesNeedNoProcessAndLoseNoBatch) {
  start_two();
  const auto before = daemon_->proxies();
  std::uint64_t batch = 0;
  const auto send_to = [&](std::uint64_t one, std::uint64_t other) {
    send_batch(++batch, one);
    send_batch(++batch, other);
  };
  send_to(1, 2);
  ask(3, 20);
  ask(4, 80);
  send_to(1, 2);
  ASSERT_TRUE(both_ready(3, 4));
  send_to(1, 2);
  send_to(3, 4);
  frontend_->say(RetireGpulet{{1}});
  frontend_->say(RetireGpulet{{2}});
  send_to(3, 4);
  EXPECT_TRUE(all_ok(batch));
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::gone) && is(2, GpuletState::gone); }));
  EXPECT_EQ(last_report(3)->found, (partition::FoundShare{true, 24, 132}));
  EXPECT_EQ(last_report(4)->found, (partition::FoundShare{true, 104, 132}));
  EXPECT_EQ(daemon_->proxies(), before) << "no new process";
  EXPECT_EQ(mps_.recorded("loaded"), "echo\n") << "once";
  send_to(3, 4);
  EXPECT_TRUE(all_ok(batch));
}

TEST_F(GreenBackendTest, AGpuletTellsWhatItSharesWithTheOneThatItReplaces) {
  start();
  ask(1, 50);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready); }));
  ask(2, 80);
  ASSERT_TRUE(run_until([this] { return is(2, GpuletState::ready); }));
  EXPECT_EQ(last_report(2)->condition.sms, 104U);
  EXPECT_EQ(last_report(2)->condition.shared_sms, 40U) << "eight of sixteen blocks were free";
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::gone); }));
  send_batch(1, 2);
  EXPECT_TRUE(run_until([this] { return last_report(2)->condition.shared_sms == 0; }));
  EXPECT_TRUE(all_ok(1));
}

TEST_F(GreenBackendTest, TheProcessStaysAfterItsLastGpulet) {
  start();
  ask(1, 50);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready); }));
  const auto before = daemon_->proxies();
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::gone); }));
  ask(2, 100);
  ASSERT_TRUE(run_until([this] { return is(2, GpuletState::ready); }));
  EXPECT_EQ(daemon_->proxies(), before);
  EXPECT_EQ(mps_.recorded("loaded"), "echo\n");
  EXPECT_EQ(last_report(2)->found.sms, 132U);
}

TEST_F(GreenBackendTest, AllGpuletsRestartWhenTheProcessIsKilled) {
  start_two();
  const auto before = daemon_->proxies();
  ::kill(before.at(0), SIGSTOP);
  send_batch(1, 1);
  send_batch(2, 2);
  ::kill(before.at(0), SIGKILL);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(1), StatusCode::unavailable) << "so that it runs elsewhere";
  ASSERT_TRUE(both_came_back());
  send_batch(3, 1);
  send_batch(4, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 4; }));
  EXPECT_EQ(results().at(3), StatusCode::ok);
  ASSERT_EQ(daemon_->proxies().size(), 1U);
  EXPECT_NE(daemon_->proxies(), before);
}

TEST_F(GreenBackendTest, AFaultOfTheGpuEndsTheProcessAndAllRestart) {
  start_two();
  const auto before = daemon_->proxies();
  mps_.set("fault");
  send_batch(1, 1);
  ASSERT_TRUE(run_until([this] { return results().size() == 1; }));
  EXPECT_EQ(results().at(1), StatusCode::unavailable);
  ASSERT_TRUE(run_until([&] { return ::kill(before.at(0), 0) != 0; })) << "it ends by itself";
  mps_.clear("fault");
  ASSERT_TRUE(both_came_back());
  send_batch(2, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(2), StatusCode::ok);
}

TEST_F(GreenBackendTest, ALoadingGpuletIsRetiredWithoutTheOthers) {
  start();
  ask(1, 50);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready); }));
  const auto before = daemon_->proxies();
  mps_.set("slow");
  ask(2, 50);
  ASSERT_TRUE(run_until([this] { return is(2, GpuletState::preparing); }));
  frontend_->say(RetireGpulet{{2}});
  ASSERT_TRUE(run_until([this] { return is(2, GpuletState::gone); }));
  send_batch(1, 1);
  EXPECT_TRUE(all_ok(1));
  mps_.clear("slow");
  EXPECT_EQ(daemon_->proxies(), before);
}

}  // namespace
}  // namespace gpulet::backend
