// DeviceProcess with the simulated proxy program: several gpulets in one process.
#include "gpulet/backend/device_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/partition/driver.h"
#include "tests/net/loop.h"

namespace gpulet::backend {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience(20);
constexpr std::size_t kRequestBytes = 16;

serve::LoadModels models(int percent) {
  const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
  serve::LoadModels models{{{"echo", "", {tensor}, {tensor}, 4}}};
  models.environment = {{partition::kExpectedShareVariable, std::to_string(percent)}};
  return models;
}

serve::RunBatch batch(std::uint64_t id, Duration latency = {}) {
  serve::RunBatch run;
  run.id = {id};
  run.model = "echo";
  run.count = 1;
  run.start_within = std::chrono::seconds(60);
  run.simulated_latency = latency;
  return run;
}

// A gpulet's lane, and what was heard of it.
struct LaneHeard {
  std::unique_ptr<Proxy> proxy;
  std::optional<serve::ProxyReady> ready;
  std::vector<serve::BatchRan> ran;
  std::optional<Status> exit;
};

class DeviceProcessTest : public ::testing::Test {
 protected:
  void start(const std::string& program = GPULET_PROXY_SIMULATED) {
    auto started =
        DeviceProcess::start(io_.get_executor(), {program, false, {}}, [this](const Status& how) {
          for (const auto& lane : lanes_) EXPECT_FALSE(lane.exit) << "lanes tell after it";
          end_ = how;
        });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    process_ = std::move(started).value();
  }
  LaneHeard& add_lane() {
    auto& lane = lanes_.emplace_back();
    ProxyCallbacks callbacks;
    callbacks.on_ready = [&lane](serve::ProxyReady ready) { lane.ready = std::move(ready); };
    callbacks.on_ran = [&lane](serve::BatchRan ran, const Bytes&) {
      lane.ran.push_back(std::move(ran));
    };
    callbacks.on_exit = [&lane](Status reason) { lane.exit = std::move(reason); };
    auto added = process_->add_lane(std::move(callbacks));
    EXPECT_TRUE(added.ok()) << added.status().to_string();
    lane.proxy = std::move(added).value();
    return lane;
  }
  LaneHeard& add_serving_lane(int percent) {
    auto& lane = add_lane();
    EXPECT_TRUE(lane.proxy
                    ->load(models(percent), {.input_capacity = 4 * kRequestBytes,
                                             .output_capacity = 4 * kRequestBytes})
                    .ok());
    EXPECT_TRUE(run_until([&] { return lane.ready.has_value(); }));
    EXPECT_TRUE(lane.ready->status.ok()) << lane.ready->status.to_string();
    return lane;
  }
  static void run(LaneHeard& lane, const serve::RunBatch& batch) {
    auto slot = lane.proxy->take_slot(kRequestBytes);
    ASSERT_TRUE(slot);
    std::memset(slot->view().data(), 7, kRequestBytes);
    lane.proxy->run(batch, slot->freeze());
  }
  bool serves(LaneHeard& lane, std::uint64_t id) {
    run(lane, batch(id));
    return run_until([&] { return !lane.ran.empty() && lane.ran.back().id == BatchId{id}; }) &&
           lane.ran.back().status.ok();
  }
  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  net::asio::io_context io_;
  std::deque<LaneHeard> lanes_;
  std::optional<Status> end_;
  std::unique_ptr<DeviceProcess> process_;
};

TEST_F(DeviceProcessTest, ServesSeveralGpuletsEachOverItsOwnLane) {
  start();
  auto& first = add_serving_lane(20);
  auto& second = add_serving_lane(80);
  EXPECT_EQ(first.proxy->pid(), process_->pid());
  EXPECT_EQ(second.proxy->pid(), process_->pid());
  run(first, batch(1, std::chrono::minutes(5)));
  EXPECT_TRUE(serves(second, 1)) << "whatever the other one does";
  EXPECT_TRUE(first.ran.empty());
}

TEST_F(DeviceProcessTest, ALaneThatStopsFinishesWhatItHasAndLeavesTheProcessToOthers) {
  start();
  auto& first = add_serving_lane(20);
  auto& second = add_serving_lane(80);
  run(first, batch(1, milliseconds(20)));
  first.proxy->stop(kPatience);
  ASSERT_TRUE(run_until([&] { return first.exit.has_value(); }));
  EXPECT_TRUE(first.exit->ok()) << first.exit->to_string();
  ASSERT_EQ(first.ran.size(), 1U);
  EXPECT_TRUE(first.ran[0].status.ok());
  EXPECT_TRUE(serves(second, 1));
  second.proxy->kill({StatusCode::unavailable, "not needed"});
  ASSERT_TRUE(run_until([&] { return second.exit.has_value(); }));
  EXPECT_EQ(*second.exit, Status(StatusCode::unavailable, "not needed"));
  EXPECT_TRUE(serves(add_serving_lane(40), 1)) << "it stays when it has no gpulet";
  EXPECT_FALSE(end_);
}

TEST_F(DeviceProcessTest, ALaneThatNobodyWantsAnyMoreEndsAtOnceBeforeItHasLoaded) {
  start();
  auto& lane = add_lane();
  ASSERT_TRUE(lane.proxy->load(models(20), {.input_capacity = 16, .output_capacity = 16}).ok());
  lane.proxy->kill({StatusCode::cancelled, "not wanted"});
  EXPECT_FALSE(lane.exit) << "not within the call";
  ASSERT_TRUE(run_until([&] { return lane.exit.has_value(); }));
  EXPECT_EQ(lane.exit->code(), StatusCode::cancelled);
  EXPECT_TRUE(serves(add_serving_lane(40), 1));
}

TEST_F(DeviceProcessTest, ALaneThatDoesNotEndTakesTheProcessAlong) {
  start();
  auto& stuck = add_serving_lane(20);
  auto& other = add_serving_lane(80);
  run(stuck, batch(1, std::chrono::minutes(5)));
  stuck.proxy->stop(milliseconds(50));
  ASSERT_TRUE(run_until([&] { return stuck.exit && other.exit; }));
  ASSERT_TRUE(end_);
  EXPECT_EQ(end_->code(), StatusCode::timeout);
  EXPECT_EQ(*other.exit, *end_);
  EXPECT_FALSE(process_->takes_lanes());
  EXPECT_EQ(process_->add_lane({}).status().code(), StatusCode::unavailable);
}

TEST_F(DeviceProcessTest, ALaneThatIsKilledAndHangsTakesTheProcessAlong) {
  start();
  auto& stuck = add_serving_lane(20);
  auto& other = add_serving_lane(80);
  ::kill(process_->pid(), SIGSTOP);
  stuck.proxy->kill({StatusCode::timeout, "it hung over a batch"});
  ASSERT_TRUE(run_until([&] { return stuck.exit && other.exit; }));
  EXPECT_EQ(*stuck.exit, Status(StatusCode::timeout, "it hung over a batch"));
  EXPECT_NE(other.exit->message().find("takes it along"), std::string::npos)
      << other.exit->message();
}

TEST_F(DeviceProcessTest, TellsEachLaneHowTheProcessEnded) {
  start();
  auto& first = add_serving_lane(20);
  auto& second = add_lane();
  ::kill(process_->pid(), SIGKILL);
  ASSERT_TRUE(run_until([&] { return first.exit && second.exit; }));
  for (const auto* lane : {&first, &second}) {
    EXPECT_EQ(lane->exit->code(), StatusCode::unavailable);
    EXPECT_NE(lane->exit->message().find("signal 9"), std::string::npos) << lane->exit->message();
  }
}

TEST_F(DeviceProcessTest, LanesOfAProgramThatServesNoneEndWithIt) {
  start("/bin/false");
  auto& lane = add_lane();
  ASSERT_TRUE(run_until([&] { return lane.exit.has_value(); }));
  EXPECT_NE(lane.exit->message().find("exit code 1"), std::string::npos) << lane.exit->message();
}

TEST_F(DeviceProcessTest, MayBeDestroyedBeforeItsLanesAndTakesItsProcessWithIt) {
  start();
  auto& lane = add_serving_lane(20);
  const pid_t process = process_->pid();
  process_.reset();
  EXPECT_TRUE(::kill(process, 0) != 0 && errno == ESRCH);
  EXPECT_FALSE(end_) << "its owner knows";
  ASSERT_TRUE(run_until([&] { return lane.exit.has_value(); }));
  EXPECT_EQ(lane.exit->code(), StatusCode::cancelled);
}

TEST_F(DeviceProcessTest, LanesMayBeDestroyedAtAnyTime) {
  start();
  auto& first = add_serving_lane(20);
  auto& second = add_serving_lane(80);
  run(first, batch(1));
  first.proxy.reset();
  EXPECT_TRUE(serves(second, 1));
  second.proxy->stop(kPatience);
  second.proxy.reset();
  process_.reset();
  io_.restart();
  io_.run();
  EXPECT_FALSE(first.exit || second.exit) << "nobody is told";
}

}  // namespace
}  // namespace gpulet::backend
