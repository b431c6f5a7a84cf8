// A proxy whose executor has several batches under way.
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

#include "gpulet/proxy/proxy.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMemory = 4096;
constexpr std::size_t kDepth = 2;

// What a DeepExecutor did, and when its batches may end. The test's thread and the proxy's two may
// all call it.
class Depths {
 public:
  // Batches end once so many have begun.
  void end_once_begun(std::size_t batches) {
    const std::lock_guard lock(mutex_);
    needed_ = batches;
    changed_.notify_all();
  }
  void begin(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    log_.push_back("begin " + std::to_string(number));
    ++begun_;
    most_ = std::max(most_, begun_ - ended_);
    changed_.notify_all();
  }
  void finish(std::uint32_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_ >= needed_; });
    log_.push_back("finish " + std::to_string(number));
    ++ended_;
  }
  void note(const std::string& what) {
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
  [[nodiscard]] std::size_t most_under_way() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> log_;
  std::size_t needed_ = 0;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  std::size_t most_ = 0;
};

class DeepBatch final : public executor::RunningBatch {
 public:
  DeepBatch(Depths& depths, const executor::BatchToRun& batch)
      : depths_(depths),
        number_(batch.count),
        fails_(batch.model == "fails to finish"),
        input_(batch.input),
        output_(batch.output) {}
  Result<std::size_t> finish() override {
    depths_.finish(number_);
    if (fails_) return Status(StatusCode::internal, "an illegal address");
    std::copy(input_.begin(), input_.end(), output_.begin());
    return input_.size();
  }

 private:
  Depths& depths_;
  const std::uint32_t number_;
  const bool fails_;
  const std::span<const std::byte> input_;
  const std::span<std::byte> output_;
};

// The count of a batch is its number here.
class DeepExecutor final : public executor::Executor {
 public:
  explicit DeepExecutor(Depths& depths) : depths_(depths) {}
  void use_memory(std::span<std::byte> memory) override {
    depths_.note("memory of " + std::to_string(memory.size()));
  }
  partition::DeviceHealth health() const override { return partition::DeviceHealth::lost; }
  Result<std::uint32_t> load(const executor::ModelToLoad&) override {
    depths_.note("load");
    return 0U;
  }
  Result<std::size_t> run(const executor::BatchToRun&) override {
    return Status(StatusCode::internal, "asked to run one at a time");
  }
  std::size_t depth() const override { return kDepth; }
  Result<std::unique_ptr<executor::RunningBatch>> begin(
      const executor::BatchToRun& batch) override {
    if (batch.model == "fails to begin") return Status(StatusCode::not_found, "no such model");
    depths_.begin(batch.count);
    return std::unique_ptr<executor::RunningBatch>(std::make_unique<DeepBatch>(depths_, batch));
  }

 private:
  Depths& depths_;
};

serve::RunBatch batch(std::uint32_t number, const std::string& model = "echo") {
  serve::RunBatch run;
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

class PipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ended_ = std::async(std::launch::async, [this] {
      Program program;
      program.make_executor = [this] { return std::make_unique<DeepExecutor>(depths_); };
      Status status = proxy::serve({peer_.proxy_socket(), peer_.memory_fd()}, program);
      ::shutdown(peer_.proxy_socket(), SHUT_RDWR);  // as the process's end would
      return status;
    });
    peer_.load({.models = {{.name = "echo", .file = "nowhere.pt", .inputs = {}, .outputs = {}}}});
    ASSERT_TRUE(peer_.receive_ready().status.ok());
  }
  Status stop() {
    peer_.send(serve::StopProxy{});
    return ended_.get();
  }

  Depths depths_;
  ProxyPeer peer_{kMemory};
  std::future<Status> ended_;
};

TEST_F(PipelineTest, BeginsABatchBeforeTheOneBeforeItHasEndedAndAnswersInOrder) {
  depths_.end_once_begun(2);  // the first does not end before the second has begun
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
  EXPECT_LE(executed, std::chrono::steady_clock::now() - sent) << "no moment counts twice";
  EXPECT_EQ(depths_.most_under_way(), kDepth);
  EXPECT_TRUE(stop().ok());
}

TEST_F(PipelineTest, TellsTheExecutorOfItsMemoryBeforeItLoads) {
  ASSERT_GE(depths_.log().size(), 2U);
  EXPECT_EQ(depths_.log()[0], "memory of " + std::to_string(kMemory));
  EXPECT_EQ(depths_.log()[1], "load");
  EXPECT_TRUE(stop().ok());
}

TEST_F(PipelineTest, AnswersInTurnWhatFailsToBeginOrToFinishOrComesTooLate) {
  depths_.end_once_begun(2);
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

TEST_F(PipelineTest, FinishesWhatIsUnderWayBeforeItStops) {
  depths_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  peer_.send(serve::StopProxy{});
  depths_.wait_until_begun(2);
  depths_.end_once_begun(0);
  EXPECT_EQ(peer_.receive_ran().id, BatchId{1});
  EXPECT_EQ(peer_.receive_ran().id, BatchId{2});
  EXPECT_TRUE(ended_.get().ok());
}

TEST_F(PipelineTest, LoadsWhenNothingIsUnderWay) {
  depths_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  peer_.load({});
  depths_.wait_until_begun(2);
  depths_.end_once_begun(0);
  EXPECT_EQ(peer_.receive_ran().id, BatchId{1});
  EXPECT_EQ(peer_.receive_ran().id, BatchId{2});
  EXPECT_EQ(peer_.receive_ready().status.code(), StatusCode::invalid) << "it is a gpulet's already";
  EXPECT_TRUE(stop().ok());
}

TEST_F(PipelineTest, EndsAfterWhatIsUnderWayWhenItsPeerIsGone) {
  depths_.end_once_begun(3);
  peer_.send(batch(1));
  peer_.send(batch(2));
  depths_.wait_until_begun(2);
  peer_.close_channel();
  depths_.end_once_begun(0);
  const Status status = ended_.get();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::unavailable) << status.to_string();
  const auto log = depths_.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), "finish 2"), 1);
}

}  // namespace
}  // namespace gpulet::proxy
