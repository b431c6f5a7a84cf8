// A process that serves several gpulets, in threads of this one.
#include "proxy/lanes.h"

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

#include "gpulet/executor/shared_device.h"
#include "gpulet/partition/driver.h"
#include "tests/proxy/descriptors.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

using namespace std::chrono_literals;
using partition::DeviceHealth;

constexpr std::size_t kMemory = 4096;
constexpr std::uint32_t kSms = 132;

// What all lanes of a test share.
struct World {
  std::mutex mutex;
  std::vector<std::string> log;  // guarded by mutex

  void note(const std::string& what) {
    const std::lock_guard lock(mutex);
    log.push_back(what);
  }
  std::vector<std::string> noted() {
    const std::lock_guard lock(mutex);
    return log;
  }
};

class LaneExecutor final : public executor::Executor {
 public:
  LaneExecutor(World& world, Share share) : world_(world), share_(share) {}
  ~LaneExecutor() override { world_.note("end of " + std::to_string(share_.percent)); }
  LaneExecutor(const LaneExecutor&) = delete;
  LaneExecutor& operator=(const LaneExecutor&) = delete;

  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{true, kSms * static_cast<std::uint32_t>(share_.percent) / 100,
                                 kSms};
  }
  DeviceHealth health() const override { return DeviceHealth::lost; }
  Result<std::uint32_t> load(const executor::ModelToLoad&) override { return 0U; }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (batch.model == "fault") return Status(StatusCode::internal, "an illegal address");
    return batch.input.size();
  }

 private:
  World& world_;
  const Share share_;
};

class WorldsDevice final : public executor::SharedDevice {
 public:
  explicit WorldsDevice(World& world) : world_(world) {}
  Result<std::unique_ptr<executor::Executor>> add_lane(Share share) override {
    world_.note("lane of " + std::to_string(share.percent));
    return std::unique_ptr<executor::Executor>(std::make_unique<LaneExecutor>(world_, share));
  }

 private:
  World& world_;
};

serve::RunBatch batch(std::uint64_t id, const std::string& model = "echo") {
  serve::RunBatch run;
  run.id = BatchId{id};
  run.model = model;
  run.count = 1;
  run.input_bytes = 4;
  run.output_offset = 1024;
  run.output_capacity = 4;
  run.start_within = 1h;
  return run;
}

class LanesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    close_lanes();
    if (ended_.valid()) static_cast<void>(ended_.get());
    if (sockets_[1] >= 0) ::close(sockets_[1]);
    ::unsetenv(partition::kExpectedShareVariable);
    ::unsetenv("GPULET_TEST_LANE");
  }
  void start(std::size_t most_lanes = 48) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_.data()), 0);
    program_.make_shared_device = [this]() -> Result<std::unique_ptr<executor::SharedDevice>> {
      const char* const first = std::getenv("GPULET_TEST_LANE");
      world_.note("device under " + std::string(first == nullptr ? "nothing" : first));
      if (device_failure_.ok())
        return std::unique_ptr<executor::SharedDevice>(std::make_unique<WorldsDevice>(world_));
      return std::exchange(device_failure_, Status());
    };
    events_.device_lost = [this](const Status& why) { lost_.set_value(why); };
    ended_ = std::async(std::launch::async, [this, most_lanes] {
      return serve_lanes({sockets_[1], most_lanes}, program_, events_);
    });
  }
  void close_lanes() {
    if (sockets_[0] >= 0) ::close(sockets_[0]);
    sockets_[0] = -1;
  }
  // A lane that was told nothing yet.
  ProxyPeer& add_lane() {
    auto& peer = *peers_.emplace_back(std::make_unique<ProxyPeer>(kMemory));
    std::array<int, 2> files{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, files.data()), 0);
    EXPECT_TRUE(send_descriptors(sockets_[0], {peer.proxy_socket(), peer.memory_fd(), files[1]}));
    peer.close_proxy_socket();
    for (const int one : files) ::close(one);
    return peer;
  }
  static serve::LoadModels models(int percent) {
    serve::LoadModels models{.models = {{.name = "echo", .file = "", .inputs = {}, .outputs = {}}}};
    models.environment = {{partition::kExpectedShareVariable, std::to_string(percent)},
                          {"GPULET_TEST_LANE", std::to_string(percent)}};
    return models;
  }
  ProxyPeer& add_lane(int percent) {
    ProxyPeer& peer = add_lane();
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

  World world_;
  Status device_failure_;  // of the first attempt to make the device
  Program program_;
  LaneEvents events_;
  std::promise<Status> lost_;
  std::array<int, 2> sockets_{-1, -1};
  std::vector<std::unique_ptr<ProxyPeer>> peers_;
  std::future<Status> ended_;
};

TEST_F(LanesTest, ServesGpuletsOfDifferentSharesOnOneDeviceUnderTheFirstOnesEnvironment) {
  start();
  ProxyPeer& small = add_lane(20);
  ProxyPeer& large = add_lane(80);
  EXPECT_TRUE(serves(small, 1));
  EXPECT_TRUE(serves(large, 1));
  EXPECT_TRUE(serves(small, 2));
  EXPECT_EQ(world_.noted(),
            (std::vector<std::string>{"device under 20", "lane of 20", "lane of 80"}));
  EXPECT_STREQ(std::getenv("GPULET_TEST_LANE"), "20");
  close_lanes();
  EXPECT_TRUE(ended_.get().ok());
}

TEST_F(LanesTest, ALaneThatStopsLeavesTheOthersAndTheDevice) {
  start();
  ProxyPeer& first = add_lane(20);
  ProxyPeer& second = add_lane(80);
  first.send(batch(1));
  first.send(serve::StopProxy{});
  EXPECT_TRUE(first.receive_ran().status.ok());
  EXPECT_FALSE(first.receive()) << "its end is seen by its channel's";
  EXPECT_EQ(world_.noted().back(), "end of 20") << "and then its executor is gone";
  second.close_channel();
  EXPECT_TRUE(serves(add_lane(40), 1));
  const auto noted = world_.noted();
  EXPECT_EQ(std::count(noted.begin(), noted.end(), "device under 20"), 1);
}

TEST_F(LanesTest, AbandonsItsLanesAndEndsWhenItsSocketCloses) {
  start();
  ProxyPeer& lane = add_lane(20);
  ProxyPeer& untold = add_lane();
  close_lanes();
  EXPECT_TRUE(ended_.get().ok());
  EXPECT_FALSE(lane.receive());
  static_cast<void>(untold.receive());  // that it is idle
  EXPECT_FALSE(untold.receive());
}

TEST_F(LanesTest, ALaneNeedsAShare) {
  start();
  ProxyPeer& lane = add_lane();
  serve::LoadModels without = models(20);
  without.environment.clear();
  lane.load(without);
  EXPECT_EQ(lane.receive_ready().status.code(), StatusCode::invalid);
  without.environment = {{partition::kExpectedShareVariable, "120"}};
  lane.load(without);
  EXPECT_EQ(lane.receive_ready().status.code(), StatusCode::invalid);
  lane.load(models(20));
  EXPECT_TRUE(lane.receive_ready().status.ok());
}

TEST_F(LanesTest, MakesTheDeviceForALaterLaneWhereItCouldNotForTheFirst) {
  device_failure_ = {StatusCode::unavailable, "no GPU is free"};
  start();
  ProxyPeer& first = add_lane();
  first.load(models(20));
  EXPECT_EQ(first.receive_ready().status, Status(StatusCode::unavailable, "no GPU is free"));
  EXPECT_TRUE(serves(add_lane(80), 1));
  EXPECT_EQ(world_.noted(),
            (std::vector<std::string>{"device under 20", "device under 20", "lane of 80"}));
}

TEST_F(LanesTest, TellsThatTheDeviceIsLostAfterItHasAnswered) {
  start();
  ProxyPeer& lane = add_lane(20);
  lane.send(batch(1, "fault"));
  const auto ran = lane.receive_ran();
  EXPECT_EQ(ran.device, DeviceHealth::lost);
  EXPECT_EQ(lost_.get_future().get().code(), StatusCode::internal);
}

TEST_F(LanesTest, RefusesMoreLanesThanItMayHaveUntilOneHasEnded) {
  start(1);
  ProxyPeer& first = add_lane(20);
  ProxyPeer& refused = add_lane();
  EXPECT_EQ(refused.receive_ready().status.code(), StatusCode::unavailable);
  EXPECT_FALSE(refused.receive());
  first.send(serve::StopProxy{});
  EXPECT_FALSE(first.receive());
  // Its channel's end is seen a moment before its place is free.
  for (bool taken = false; !taken;) {
    ProxyPeer& next = add_lane();
    taken = std::holds_alternative<serve::ProxyIdle>(next.receive().value());
    if (!taken) continue;
    next.load(models(80));
    EXPECT_TRUE(next.receive_ready().status.ok());
  }
}

TEST_F(LanesTest, EndsWhereWhatComesIsNoLane) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const auto& [text, count] : std::vector<std::pair<std::string, std::size_t>>{
           {"l", 0}, {"l", 1}, {"l", 2}, {"l", 4}, {"l", 8}, {"two", 3}}) {
    start();
    ASSERT_TRUE(send_descriptors(sockets_[0], std::vector<int>(count, file), text));
    const Status status = ended_.get();
    EXPECT_EQ(status.code(), StatusCode::malformed) << count;
    EXPECT_NE(status.message().find("lanes"), std::string::npos) << status.to_string();
    close_lanes();
    ::close(std::exchange(sockets_[1], -1));
  }
  ::close(file);
}

TEST_F(LanesTest, DescriptorsThatAreNoChannelEndTheirLaneAlone) {
  start();
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(send_descriptors(sockets_[0], {file, file, file}));
  ::close(file);
  EXPECT_TRUE(serves(add_lane(20), 1));
}

}  // namespace
}  // namespace gpulet::proxy
