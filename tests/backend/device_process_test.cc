// DeviceProcess with the simulated proxy program: several gpulets in one process.
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

#include "gpulet/backend/proxy_process.h"
#include "gpulet/partition/driver.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"

namespace gpulet::backend {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience(20);
constexpr std::size_t kRequestBytes = 16;

LoadModels models(int percent) {
  const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
  LoadModels models{{{"echo", "", {tensor}, {tensor}, 4}}};
  models.environment = {{partition::kExpectedShareVariable, std::to_string(percent)}};
  return models;
}

RunBatch batch(std::uint64_t id, Duration latency = {}) {
  RunBatch run;
  run.id = {id};
  run.model = "echo";
  run.count = 1;
  run.start_within = std::chrono::seconds(60);
  run.simulated_latency = latency;
  return run;
}

// A gpulet's worker and its callbacks so far.
struct WorkerLog {
  std::unique_ptr<Proxy> proxy;
  std::optional<ProxyReady> ready;
  std::vector<BatchRan> ran;
  std::optional<Status> exit;
};

class DeviceProcessTest : public ::testing::Test {
 protected:
  void start(const std::string& program = GPULET_PROXY_SIMULATED) {
    auto started =
        DeviceProcess::start(io_.get_executor(), {program, false, {}}, [this](const Status& how) {
          for (const auto& worker : workers_)
            EXPECT_FALSE(worker.exit) << "workers report after the process";
          end_ = how;
        });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    process_ = std::move(started).value();
  }
  WorkerLog& add_worker() {
    auto& worker = workers_.emplace_back();
    ProxyCallbacks callbacks;
    callbacks.on_ready = [&worker](ProxyReady ready) { worker.ready = std::move(ready); };
    callbacks.on_ran = [&worker](BatchRan ran, const Bytes&) {
      worker.ran.push_back(std::move(ran));
    };
    callbacks.on_exit = [&worker](Status reason) { worker.exit = std::move(reason); };
    auto added = process_->add_worker(std::move(callbacks));
    EXPECT_TRUE(added.ok()) << added.status().to_string();
    worker.proxy = std::move(added).value();
    return worker;
  }
  WorkerLog& add_serving_worker(int percent) {
    auto& worker = add_worker();
    EXPECT_TRUE(worker.proxy
                    ->load(models(percent), {.input_capacity = 4 * kRequestBytes,
                                             .output_capacity = 4 * kRequestBytes})
                    .ok());
    EXPECT_TRUE(run_until([&] { return worker.ready.has_value(); }));
    EXPECT_TRUE(worker.ready->status.ok()) << worker.ready->status.to_string();
    return worker;
  }
  static void run(WorkerLog& worker, const RunBatch& batch) {
    auto slot = worker.proxy->take_slot(kRequestBytes);
    ASSERT_TRUE(slot);
    std::memset(slot->view().data(), 7, kRequestBytes);
    worker.proxy->run(batch, slot->freeze());
  }
  bool serves(WorkerLog& worker, std::uint64_t id) {
    run(worker, batch(id));
    return run_until([&] { return !worker.ran.empty() && worker.ran.back().id == BatchId{id}; }) &&
           worker.ran.back().status.ok();
  }
  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  net::asio::io_context io_;
  std::deque<WorkerLog> workers_;
  std::optional<Status> end_;
  std::unique_ptr<DeviceProcess> process_;
};

TEST_F(DeviceProcessTest, ServesSeveralGpuletsEachWithAWorker) {
  start();
  auto& first = add_serving_worker(20);
  auto& second = add_serving_worker(80);
  EXPECT_EQ(first.proxy->pid(), process_->pid());
  EXPECT_EQ(second.proxy->pid(), process_->pid());
  run(first, batch(1, std::chrono::minutes(5)));
  EXPECT_TRUE(serves(second, 1)) << "independent of the other one";
  EXPECT_TRUE(first.ran.empty());
}

TEST_F(DeviceProcessTest, AWorkerThatStopsFinishesItsBatchesAndLeavesTheProcess) {
  start();
  auto& first = add_serving_worker(20);
  auto& second = add_serving_worker(80);
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
  EXPECT_TRUE(serves(add_serving_worker(40), 1)) << "the process stays without a gpulet";
  EXPECT_FALSE(end_);
}

TEST_F(DeviceProcessTest, AWorkerThatIsKilledBeforeItHasLoadedEndsAtOnce) {
  start();
  auto& worker = add_worker();
  ASSERT_TRUE(worker.proxy->load(models(20), {.input_capacity = 16, .output_capacity = 16}).ok());
  worker.proxy->kill({StatusCode::cancelled, "not needed"});
  EXPECT_FALSE(worker.exit) << "not within the call";
  ASSERT_TRUE(run_until([&] { return worker.exit.has_value(); }));
  EXPECT_EQ(worker.exit->code(), StatusCode::cancelled);
  EXPECT_TRUE(serves(add_serving_worker(40), 1));
}

TEST_F(DeviceProcessTest, AWorkerThatDoesNotStopEndsTheProcess) {
  start();
  auto& stuck = add_serving_worker(20);
  auto& other = add_serving_worker(80);
  run(stuck, batch(1, std::chrono::minutes(5)));
  stuck.proxy->stop(milliseconds(50));
  ASSERT_TRUE(run_until([&] { return stuck.exit && other.exit; }));
  ASSERT_TRUE(end_);
  EXPECT_EQ(end_->code(), StatusCode::timeout);
  EXPECT_EQ(*other.exit, *end_);
  EXPECT_FALSE(process_->accepts_workers());
  EXPECT_EQ(process_->add_worker({}).status().code(), StatusCode::unavailable);
}

TEST_F(DeviceProcessTest, AWorkerThatIsKilledAndHangsEndsTheProcess) {
  start();
  auto& stuck = add_serving_worker(20);
  auto& other = add_serving_worker(80);
  ::kill(process_->pid(), SIGSTOP);
  stuck.proxy->kill({StatusCode::timeout, "it hung over a batch"});
  ASSERT_TRUE(run_until([&] { return stuck.exit && other.exit; }));
  EXPECT_EQ(*stuck.exit, Status(StatusCode::timeout, "it hung over a batch"));
  EXPECT_EQ(other.exit->code(), StatusCode::timeout);
}

TEST_F(DeviceProcessTest, ReportsTheEndOfTheProcessToEachWorker) {
  start();
  auto& first = add_serving_worker(20);
  auto& second = add_worker();
  ::kill(process_->pid(), SIGKILL);
  ASSERT_TRUE(run_until([&] { return first.exit && second.exit; }));
  for (const auto* worker : {&first, &second}) {
    EXPECT_EQ(worker->exit->code(), StatusCode::unavailable);
    EXPECT_TRUE(support::names(*worker->exit, "signal 9"));
  }
}

TEST_F(DeviceProcessTest, WorkersOfAProgramThatExitsEndWithIt) {
  start("/bin/false");
  auto& worker = add_worker();
  ASSERT_TRUE(run_until([&] { return worker.exit.has_value(); }));
  EXPECT_TRUE(support::names(*worker.exit, "exit code 1"));
}

TEST_F(DeviceProcessTest, MayBeDestroyedBeforeItsWorkersAndEndsItsProcess) {
  start();
  auto& worker = add_serving_worker(20);
  const pid_t process = process_->pid();
  process_.reset();
  EXPECT_TRUE(::kill(process, 0) != 0 && errno == ESRCH);
  EXPECT_FALSE(end_) << "the owner destroyed it";
  ASSERT_TRUE(run_until([&] { return worker.exit.has_value(); }));
  EXPECT_EQ(worker.exit->code(), StatusCode::cancelled);
}

TEST_F(DeviceProcessTest, WorkersMayBeDestroyedAtAnyTime) {
  start();
  auto& first = add_serving_worker(20);
  auto& second = add_serving_worker(80);
  run(first, batch(1));
  first.proxy.reset();
  EXPECT_TRUE(serves(second, 1));
  second.proxy->stop(kPatience);
  second.proxy.reset();
  process_.reset();
  io_.restart();
  io_.run();
  EXPECT_FALSE(first.exit || second.exit) << "no callback after destruction";
}

}  // namespace
}  // namespace gpulet::backend
