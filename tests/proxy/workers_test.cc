// A process that serves several gpulets, as threads of the test.
#include "proxy/workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/executor/executor.h"
#include "gpulet/partition/driver.h"
#include "tests/proxy/descriptors.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

using namespace std::chrono_literals;
using partition::DeviceHealth;

constexpr std::size_t kMemory = 4096;
constexpr std::uint32_t kSms = 132;

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;  // guarded by mutex

  void add(const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  }
  std::vector<std::string> copy() {
    const std::lock_guard lock(mutex);
    return lines;
  }
};

class LoggingExecutor final : public executor::Executor {
 public:
  LoggingExecutor(Log& log, Share share) : log_(log), share_(share) {}
  ~LoggingExecutor() override { log_.add("end of " + std::to_string(share_.percent)); }
  LoggingExecutor(const LoggingExecutor&) = delete;
  LoggingExecutor& operator=(const LoggingExecutor&) = delete;

  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{true, kSms * static_cast<std::uint32_t>(share_.percent) / 100,
                                 kSms};
  }
  DeviceHealth health() const override { return DeviceHealth::lost; }
  Result<std::uint32_t> load(const ModelToLoad&) override { return 0U; }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (batch.model == "fault") return Status(StatusCode::internal, "an illegal address");
    return batch.input.size();
  }

 private:
  Log& log_;
  const Share share_;
};

class LoggingDevice final : public executor::SharedDevice {
 public:
  explicit LoggingDevice(Log& log) : log_(log) {}
  Result<std::unique_ptr<executor::Executor>> add_executor(
      Share share, std::span<const std::string> models) override {
    EXPECT_EQ(std::vector(models.begin(), models.end()), std::vector<std::string>{"echo"});
    log_.add("executor of " + std::to_string(share.percent));
    return std::unique_ptr<executor::Executor>(std::make_unique<LoggingExecutor>(log_, share));
  }

 private:
  Log& log_;
};

RunBatch batch(std::uint64_t id, const std::string& model = "echo") {
  RunBatch run;
  run.id = BatchId{id};
  run.model = model;
  run.count = 1;
  run.input_bytes = 4;
  run.output_offset = 1024;
  run.output_capacity = 4;
  run.start_within = 1h;
  return run;
}

class WorkersTest : public ::testing::Test {
 protected:
  void TearDown() override {
    close_socket();
    if (ended_.valid()) static_cast<void>(ended_.get());
    if (sockets_[1] >= 0) ::close(sockets_[1]);
    ::unsetenv(partition::kExpectedShareVariable);
    ::unsetenv("GPULET_TEST_WORKER");
  }
  void start(std::size_t max_workers = 48) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_.data()), 0);
    program_.make_shared_device = [this]() -> Result<std::unique_ptr<executor::SharedDevice>> {
      const char* const first = std::getenv("GPULET_TEST_WORKER");
      log_.add("device under " + std::string(first == nullptr ? "nothing" : first));
      if (device_failure_.ok())
        return std::unique_ptr<executor::SharedDevice>(std::make_unique<LoggingDevice>(log_));
      return std::exchange(device_failure_, Status());
    };
    events_.device_lost = [this](const Status& why) { lost_.set_value(why); };
    ended_ = std::async(std::launch::async, [this, max_workers] {
      return serve_workers({sockets_[1], max_workers}, program_, events_);
    });
  }
  void close_socket() {
    if (sockets_[0] >= 0) ::close(sockets_[0]);
    sockets_[0] = -1;
  }
  // A worker that has received no command.
  ProxyPeer& add_worker() {
    auto& peer = *peers_.emplace_back(std::make_unique<ProxyPeer>(kMemory));
    std::array<int, 2> files{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, files.data()), 0);
    EXPECT_TRUE(send_descriptors(sockets_[0], {peer.proxy_socket(), peer.memory_fd(), files[1]}));
    peer.close_proxy_socket();
    for (const int one : files) ::close(one);
    return peer;
  }
  static LoadModels models(int percent) {
    LoadModels models{.models = {{.name = "echo", .file = "", .inputs = {}, .outputs = {}}}};
    models.environment = {{partition::kExpectedShareVariable, std::to_string(percent)},
                          {"GPULET_TEST_WORKER", std::to_string(percent)}};
    return models;
  }
  ProxyPeer& add_worker(int percent) {
    ProxyPeer& peer = add_worker();
    peer.load(models(percent));
    const auto ready = peer.receive_ready();
    EXPECT_TRUE(ready.status.ok()) << ready.status.to_string();
    EXPECT_EQ(ready.found.sms, kSms * static_cast<std::uint32_t>(percent) / 100);
    return peer;
  }
  static bool serves(ProxyPeer& peer, std::uint64_t id) {
    peer.send(batch(id));
    const auto ran = peer.receive_ran();
    return ran.status.ok() && ran.id == BatchId{id};
  }

  Log log_;
  Status device_failure_;  // result of the first attempt to make the device
  Program program_;
  WorkerEvents events_;
  std::promise<Status> lost_;
  std::array<int, 2> sockets_{-1, -1};
  std::vector<std::unique_ptr<ProxyPeer>> peers_;
  std::future<Status> ended_;
};

TEST_F(WorkersTest, ServesSeveralSharesInTheEnvironmentOfTheFirst) {
  start();
  ProxyPeer& small = add_worker(20);
  ProxyPeer& large = add_worker(80);
  EXPECT_TRUE(serves(small, 1));
  EXPECT_TRUE(serves(large, 1));
  EXPECT_TRUE(serves(small, 2));
  EXPECT_EQ(log_.copy(),
            (std::vector<std::string>{"device under 20", "executor of 20", "executor of 80"}));
  EXPECT_STREQ(std::getenv("GPULET_TEST_WORKER"), "20");
  close_socket();
  EXPECT_TRUE(ended_.get().ok());
}

TEST_F(WorkersTest, AWorkerThatStopsLeavesTheOthersAndTheDevice) {
  start();
  ProxyPeer& first = add_worker(20);
  ProxyPeer& second = add_worker(80);
  first.send(batch(1));
  first.send(StopProxy{});
  EXPECT_TRUE(first.receive_ran().status.ok());
  EXPECT_FALSE(first.receive()) << "its channel ends";
  EXPECT_EQ(log_.copy().back(), "end of 20") << "after its executor";
  second.close_channel();
  EXPECT_TRUE(serves(add_worker(40), 1));
  const auto log = log_.copy();
  EXPECT_EQ(std::count(log.begin(), log.end(), "device under 20"), 1);
}

TEST_F(WorkersTest, StopsItsWorkersWhenItsSocketCloses) {
  start();
  ProxyPeer& worker = add_worker(20);
  ProxyPeer& unloaded = add_worker();
  close_socket();
  EXPECT_TRUE(ended_.get().ok());
  EXPECT_FALSE(worker.receive());
  static_cast<void>(unloaded.receive());  // ProxyIdle
  EXPECT_FALSE(unloaded.receive());
}

TEST_F(WorkersTest, AWorkerNeedsAShare) {
  start();
  ProxyPeer& worker = add_worker();
  LoadModels without = models(20);
  without.environment.clear();
  worker.load(without);
  EXPECT_EQ(worker.receive_ready().status.code(), StatusCode::invalid);
  without.environment = {{partition::kExpectedShareVariable, "120"}};
  worker.load(without);
  EXPECT_EQ(worker.receive_ready().status.code(), StatusCode::invalid);
  worker.load(models(20));
  EXPECT_TRUE(worker.receive_ready().status.ok());
}

TEST_F(WorkersTest, MakesTheDeviceForALaterWorkerAfterAFailure) {
  device_failure_ = {StatusCode::unavailable, "no GPU is free"};
  start();
  ProxyPeer& first = add_worker();
  first.load(models(20));
  EXPECT_EQ(first.receive_ready().status, Status(StatusCode::unavailable, "no GPU is free"));
  EXPECT_TRUE(serves(add_worker(80), 1));
  EXPECT_EQ(log_.copy(),
            (std::vector<std::string>{"device under 20", "device under 20", "executor of 80"}));
}

TEST_F(WorkersTest, ReportsALostDeviceAfterTheAnswer) {
  start();
  ProxyPeer& worker = add_worker(20);
  worker.send(batch(1, "fault"));
  const auto ran = worker.receive_ran();
  EXPECT_EQ(ran.device, DeviceHealth::lost);
  EXPECT_EQ(lost_.get_future().get().code(), StatusCode::internal);
}

TEST_F(WorkersTest, RejectsWorkersBeyondItsMaximum) {
  start(1);
  ProxyPeer& first = add_worker(20);
  ProxyPeer& rejected = add_worker();
  EXPECT_EQ(rejected.receive_ready().status.code(), StatusCode::unavailable);
  EXPECT_FALSE(rejected.receive());
  first.send(StopProxy{});
  EXPECT_FALSE(first.receive());
  // Its channel closes a moment before its slot is free.
  for (bool added = false; !added;) {
    ProxyPeer& next = add_worker();
    added = std::holds_alternative<ProxyIdle>(next.receive().value());
    if (!added) continue;
    next.load(models(80));
    EXPECT_TRUE(next.receive_ready().status.ok());
  }
}

TEST_F(WorkersTest, EndsOnAMessageThatIsNotAWorker) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const auto& [text, count] : std::vector<std::pair<std::string, std::size_t>>{
           {"l", 0}, {"l", 1}, {"l", 2}, {"l", 4}, {"l", 8}, {"two", 3}}) {
    start();
    ASSERT_TRUE(send_descriptors(sockets_[0], std::vector<int>(count, file), text));
    const Status status = ended_.get();
    EXPECT_EQ(status.code(), StatusCode::malformed) << count;
    close_socket();
    ::close(std::exchange(sockets_[1], -1));
  }
  ::close(file);
}

TEST_F(WorkersTest, DescriptorsThatAreNotAChannelEndOnlyTheirWorker) {
  start();
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(send_descriptors(sockets_[0], {file, file, file}));
  ::close(file);
  EXPECT_TRUE(serves(add_worker(20), 1));
}

}  // namespace
}  // namespace gpulet::proxy
