// A proxy whose executor has several batches in flight.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proxy/proxy.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMemory = 4096;
constexpr std::size_t kDepth = 2;

// Records the calls of a DeepExecutor and decides when its batches end. Any thread.
class BatchLog {
 public:
  // Lets batches end once this many have begun.
  void end_once_begun(std::size_t batches) {
    const std::lock_guard lock(mutex_);
    needed_ = batches;
    changed_.notify_all();
  }
  void begin(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    log_.push_back("begin " + std::to_string(number));
    ++begun_;
    max_ = std::max(max_, begun_ - ended_);
    changed_.notify_all();
  }
  void finish(std::uint32_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_ >= needed_; });
    log_.push_back("finish " + std::to_string(number));
    ++ended_;
  }
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    log_.push_back(what);
  }
  void wait_until_begun(std::size_t batches) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= batches; });
  }
  [[nodiscard]] std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  [[nodiscard]] std::size_t max_in_flight() const {
    const std::lock_guard lock(mutex_);
    return max_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> log_;
  std::size_t needed_ = 0;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  std::size_t max_ = 0;
};

class DeepBatch final : public executor::RunningBatch {
 public:
  DeepBatch(BatchLog& calls, const executor::BatchToRun& batch)
      : calls_(calls),
        number_(batch.count),
        fails_(batch.model == "fails to finish"),
        input_(batch.input),
        output_(batch.output) {}
  Result<std::size_t> finish() override {
    calls_.finish(number_);
    if (fails_) return Status(StatusCode::internal, "an illegal address");
    std::copy(input_.begin(), input_.end(), output_.begin());
    return input_.size();
  }

 private:
  BatchLog& calls_;
  const std::uint32_t number_;
  const bool fails_;
  const std::span<const std::byte> input_;
  const std::span<std::byte> output_;
};

// Uses the count of a batch as its number.
class DeepExecutor final : public executor::Executor {
 public:
  explicit DeepExecutor(BatchLog& calls) : calls_(calls) {}
  void use_memory(std::span<std::byte> memory) override {
    calls_.add("memory of " + std::to_string(memory.size()));
  }
  partition::DeviceHealth health() const override { return partition::DeviceHealth::lost; }
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    calls_.add("load");
    planned_ = model.planned_batches.size();
    return 0U;
  }
  partition::LoadStages load_stages() const override { return {.capture = 1ms * planned_}; }
  void serving() override { calls_.add("serving"); }
  std::optional<partition::ProcessCondition> condition() const override {
    return partition::ProcessCondition{.sms = 24, .shared_sms = 8, .sizes_to_capture = 2};
  }
  Result<std::size_t> run(const executor::BatchToRun&) override {
    return Status(StatusCode::internal, "run() is not expected");
  }
  std::size_t depth() const override { return kDepth; }
  Result<std::unique_ptr<executor::RunningBatch>> begin(
      const executor::BatchToRun& batch) override {
    if (batch.model == "fails to begin") return Status(StatusCode::not_found, "no such model");
    calls_.begin(batch.count);
    return std::unique_ptr<executor::RunningBatch>(std::make_unique<DeepBatch>(calls_, batch));
  }

 private:
  BatchLog& calls_;
  std::size_t planned_ = 0;
};

RunBatch batch(std::uint32_t number, const std::string& model = "echo") {
  RunBatch run;
  run.id = BatchId{number};
  run.model = model;
  run.count = number;
  run.input_offset = 16ULL * number;
  run.input_bytes = 4;
  run.output_offset = kMemory / 2 + 16ULL * number;
  run.output_capacity = 4;
  run.start_within = 1h;
  return run;
}

class InflightBatchesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ended_ = std::async(std::launch::async, [this] {
      Program program;
      program.make_executor = [this] { return std::make_unique<DeepExecutor>(calls_); };
      Status status = proxy::serve({peer_.proxy_socket(), peer_.memory_fd()}, program);
      ::shutdown(peer_.proxy_socket(), SHUT_RDWR);  // as the end of a process would
      return status;
    });
    ModelToLoad model{
        .name = "echo", .file = "nowhere.pt", .inputs = {}, .outputs = {}, .max_batch = 8};
    model.planned_batches = {2, 3, 5};
    ModelToLoad other = model;
    other.name = "other";
    peer_.load({.models = {model, other}});
    ready_ = peer_.receive_ready();
    ASSERT_TRUE(ready_.status.ok());
  }
  Status stop() {
    peer_.send(StopProxy{});
    return ended_.get();
  }

  BatchLog calls_;
  ProxyReady ready_;
  ProxyPeer peer_{kMemory};
  std::future<Status> ended_;
};

TEST_F(InflightBatchesTest, OverlapsBatchesAndAnswersInOrder) {
  calls_.end_once_begun(2);  // the first does not end before the second has begun
  const auto sent = std::chrono::steady_clock::now();
  for (std::uint32_t number = 1; number <= 4; ++number) {
    peer_.write(16ULL * number, "in " + std::to_string(number));
    peer_.send(batch(number));
  }
  Duration executed{};
  for (std::uint32_t number = 1; number <= 4; ++number) {
    const auto ran = peer_.receive_ran();
    EXPECT_EQ(ran.id, BatchId{number});
    EXPECT_TRUE(ran.status.ok()) << ran.status.to_string();
    EXPECT_EQ(peer_.read(kMemory / 2 + 16ULL * number, 4), "in " + std::to_string(number));
    executed += ran.executed;
  }
  EXPECT_LE(executed, std::chrono::steady_clock::now() - sent) << "execution times do not overlap";
  EXPECT_EQ(calls_.max_in_flight(), kDepth);
  EXPECT_TRUE(stop().ok());
}

TEST_F(InflightBatchesTest, AnnouncesTheMemoryBeforeLoading) {
  EXPECT_EQ(calls_.log(), (std::vector<std::string>{"memory of " + std::to_string(kMemory), "load",
                                                    "load", "serving"}));
  EXPECT_TRUE(stop().ok());
}

TEST_F(InflightBatchesTest, TellsHowLoadingWentAndItsConditionAfterEachBatch) {
  EXPECT_EQ(ready_.load_stages, (partition::LoadStages{.capture = 6ms})) << "of both models";
  const partition::ProcessCondition condition{.sms = 24, .shared_sms = 8, .sizes_to_capture = 2};
  EXPECT_EQ(ready_.condition, condition);
  calls_.end_once_begun(1);
  peer_.send(batch(1));
  EXPECT_EQ(peer_.receive_ran().condition, condition);
  EXPECT_TRUE(stop().ok());
}

TEST_F(InflightBatchesTest, AnswersFailedAndLateBatchesInOrder) {
  calls_.end_once_begun(2);
  auto late = batch(4);
  late.start_within = {};
  auto beyond = batch(5);
  beyond.input_offset = kMemory;
  for (const auto& one : {batch(1), batch(2, "fails to finish"), batch(3, "fails to begin"), late,
                          beyond, batch(6)}) {
    peer_.send(one);
  }
  EXPECT_TRUE(peer_.receive_ran().status.ok());
  const auto unfinished = peer_.receive_ran();
  EXPECT_EQ(unfinished.id, BatchId{2});
  EXPECT_EQ(unfinished.status, Status(StatusCode::internal, "batch 2: an illegal address"));
  EXPECT_EQ(unfinished.device, partition::DeviceHealth::lost);
  const auto unbegun = peer_.receive_ran();
  EXPECT_EQ(unbegun.id, BatchId{3});
  EXPECT_EQ(unbegun.status, Status(StatusCode::not_found, "batch 3: no such model"));
  EXPECT_EQ(unbegun.device, partition::DeviceHealth::lost);
  EXPECT_EQ(peer_.receive_ran().status.code(), StatusCode::too_late);
  EXPECT_EQ(peer_.receive_ran().status.code(), StatusCode::invalid);
  EXPECT_TRUE(peer_.receive_ran().status.ok());
  EXPECT_TRUE(stop().ok());
}

TEST_F(InflightBatchesTest, FinishesBatchesInFlightBeforeItStops) {
  calls_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  peer_.send(StopProxy{});
  calls_.wait_until_begun(2);
  calls_.end_once_begun(0);
  EXPECT_EQ(peer_.receive_ran().id, BatchId{1});
  EXPECT_EQ(peer_.receive_ran().id, BatchId{2});
  EXPECT_TRUE(ended_.get().ok());
}

TEST_F(InflightBatchesTest, LoadsAfterTheBatchesInFlight) {
  calls_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  peer_.load({});
  calls_.wait_until_begun(2);
  calls_.end_once_begun(0);
  EXPECT_EQ(peer_.receive_ran().id, BatchId{1});
  EXPECT_EQ(peer_.receive_ran().id, BatchId{2});
  EXPECT_EQ(peer_.receive_ready().status.code(), StatusCode::invalid)
      << "it already serves a gpulet";
  EXPECT_TRUE(stop().ok());
}

TEST_F(InflightBatchesTest, FinishesBatchesInFlightWhenItsPeerIsGone) {
  calls_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  calls_.wait_until_begun(2);
  peer_.close_channel();
  calls_.end_once_begun(0);
  const Status status = ended_.get();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::unavailable) << status.to_string();
  const auto log = calls_.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), "finish 2"), 1);
}

}  // namespace
}  // namespace gpulet::proxy
