#include "frontend/observe/status_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontend/observe/status_snapshots.h"
#include "gpulet/net/event_loop.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"

namespace gpulet::frontend {
namespace {

// Blocks the thread, using CPU time.
void compute_for(Duration length) {
  const Time until = net::now() + length;
  while (net::now() < until) {
  }
}

class StatusSnapshotsTest : public ::testing::Test, private StatusSnapshots::Source {
 protected:
  net::testing::Loop loop_;
  std::size_t steps_ = 1;  // of a snapshot
  Duration step_{};
  std::size_t steps_left_ = 0;
  int begun_ = 0;
  LoopWatch watch_{loop_.context()};
  BackgroundThread background_{loop_.context()};
  StatusSnapshots snapshots_{loop_.context(), *this, background_, watch_};

 private:
  bool take(serve::StatusInSteps& /*taken*/, std::size_t /*parts*/) override {
    if (steps_left_ == 0) {
      steps_left_ = steps_;
      ++begun_;
    }
    compute_for(step_);
    return --steps_left_ == 0;
  }
  [[nodiscard]] StatusContext context(const observe::WallClock& wall) const override {
    StatusContext context;
    context.now = wall.engine;
    return context;
  }
};

TEST_F(StatusSnapshotsTest, RunsOtherHandlersBetweenSteps) {
  steps_ = 20;
  step_ = std::chrono::microseconds(300);
  bool taken = false;
  snapshots_.get([&](const StatusSnapshot&) { taken = true; });
  int others = 0;
  std::function<void()> again = [&] {
    if (taken) return;
    ++others;
    net::asio::post(loop_.executor(), again);
  };
  net::asio::post(loop_.executor(), again);
  ASSERT_TRUE(loop_.run_until([&] { return taken; }));
  EXPECT_GE(others, 5);
  EXPECT_EQ(begun_, 1);
}

TEST_F(StatusSnapshotsTest, RequestsDuringAndRightAfterASnapshotShareIt) {
  steps_ = 4;
  step_ = std::chrono::milliseconds(5);  // so that it is valid for a second
  std::vector<StatusSnapshot> got;
  const auto keep = [&](const StatusSnapshot& snapshot) { got.push_back(snapshot); };
  bool within = true;
  snapshots_.get([&](const StatusSnapshot& snapshot) {
    EXPECT_FALSE(within);
    keep(snapshot);
  });
  within = false;
  loop_.run_ready();
  snapshots_.get(keep);
  ASSERT_TRUE(loop_.run_until([&] { return got.size() == 2; }));
  snapshots_.get(keep);
  ASSERT_TRUE(loop_.run_until([&] { return got.size() == 3; }));
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], got[2]);
}

TEST_F(StatusSnapshotsTest, ARequestCanWaitForANewerSnapshot) {
  step_ = std::chrono::milliseconds(2);
  std::vector<std::uint64_t> numbers;
  const auto keep = [&](const StatusSnapshot& snapshot) { numbers.push_back(snapshot->number); };
  snapshots_.get(keep);
  ASSERT_TRUE(loop_.run_until([&] { return numbers.size() == 1; }));
  snapshots_.get(keep, numbers[0]);
  snapshots_.get(keep);
  ASSERT_TRUE(loop_.run_until([&] { return numbers.size() == 3; }));
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 1, 2})) << "the second request did not wait";
}

class StatusDocumentTest : public StatusSnapshotsTest {
 protected:
  using Document = StatusDocument<std::string>;
  Document document_{loop_.context(), snapshots_, background_, [this](const TimedStatus& timed) {
                       ++made_;
                       thread_ = std::this_thread::get_id();
                       return std::to_string(timed.number);
                     }};
  std::atomic<int> made_ = 0;
  std::thread::id thread_;
};

TEST_F(StatusDocumentTest, IsMadeOnceForAllRequestsOnAnotherThread) {
  step_ = std::chrono::milliseconds(5);
  constexpr std::size_t kRequests = 100;
  std::vector<std::shared_ptr<const std::string>> got;
  for (std::size_t i = 0; i < kRequests; ++i)
    document_.get([&](const Document::Made& made) { got.push_back(made.document); });
  ASSERT_TRUE(loop_.run_until([&] { return got.size() == kRequests; }));
  document_.get([&](const Document::Made& made) { got.push_back(made.document); });
  ASSERT_TRUE(loop_.run_until([&] { return got.size() == kRequests + 1; }));
  EXPECT_EQ(made_, 1);
  EXPECT_NE(thread_, std::this_thread::get_id());
  for (const auto& one : got) EXPECT_EQ(one, got[0]);
}

TEST_F(StatusDocumentTest, ARequestCanWaitForANewerDocument) {
  step_ = std::chrono::milliseconds(2);
  std::vector<std::uint64_t> numbers;
  std::function<void(const Document::Made&)> again = [&](const Document::Made& made) {
    numbers.push_back(made.number);
    if (numbers.size() < 3) document_.get(again, made.number);
  };
  document_.get(again);
  ASSERT_TRUE(loop_.run_until([&] { return numbers.size() == 3; }));
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 2, 3}));
}

serve::ModelStatus model(const std::string& name, ModelState state) {
  serve::ModelStatus made;
  made.name = name;
  made.state = state;
  return made;
}

TEST(StartupReporterTest, WaitsForABackendThenForThePlanThenForLoadingModels) {
  serve::FrontendStatus status;
  status.models = {model("a", ModelState::loading), model("b", ModelState::unavailable)};
  const std::string backend = startup_wait_reason(status);
  EXPECT_NE(backend, "");
  status.backends[BackendId{1}];  // connected, but has not sent Hello
  EXPECT_EQ(startup_wait_reason(status), backend);
  status.backends[BackendId{1}].node = "n0";
  const std::string plan = startup_wait_reason(status);
  EXPECT_NE(plan, "");
  EXPECT_NE(plan, backend);
  status.epoch = Epoch{1};
  const std::string models = startup_wait_reason(status);
  EXPECT_NE(models, "");
  EXPECT_NE(models, plan);
  status.models[0].state = ModelState::ready;
  EXPECT_EQ(startup_wait_reason(status), "") << "an unavailable model is not waited for";
}

TEST(StartupReporterTest, NamesLoadingAndUnavailableModels) {
  serve::FrontendStatus status;
  status.backends[BackendId{1}].node = "n0";
  status.epoch = Epoch{1};
  status.models = {model("a", ModelState::loading), model("b", ModelState::unavailable)};
  status.models[1].reason = "no profile";
  EXPECT_TRUE(support::names(startup_wait_reason(status), "a"));
  EXPECT_TRUE(support::names(serving_summary(status), "b", status.models[1].reason));
}

}  // namespace
}  // namespace gpulet::frontend
