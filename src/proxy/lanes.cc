#include "proxy/lanes.h"

#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/partition/driver.h"
#include "proxy/channel.h"
#include "proxy/descriptor.h"
#include "proxy/share_check.h"

namespace gpulet::proxy {
namespace {

constexpr std::size_t kDescriptorsOfALane = 3;

// As a lane's message has them.
ProxyOptions options_of(const std::vector<Descriptor>& descriptors) {
  return {.control_fd = descriptors[0].number(),
          .memory_fd = descriptors[1].number(),
          .files_fd = descriptors[2].number()};
}

// What the lanes have in common: made by the first that needs it.
class Device {
 public:
  explicit Device(const Program& program) : program_(program) {}

  // On the thread that will use it.
  Result<std::unique_ptr<executor::Executor>> add_lane(const serve::LoadModels& command) {
    const auto given = command.environment.find(partition::kExpectedShareVariable);
    if (given == command.environment.end()) {
      return Status(StatusCode::invalid, std::string("a lane needs its share: ") +
                                             partition::kExpectedShareVariable + " is not set");
    }
    const auto expected = parse_expected_share(given->second.c_str(), nullptr);
    if (!expected.ok()) return expected.status();
    const std::lock_guard lock(mutex_);
    if (shared_ == nullptr) {
      if (Status made = make(command); !made.ok()) return made;
    }
    return shared_->add_lane(*expected.value().share);
  }

 private:
  Status make(const serve::LoadModels& command) {
    if (program_.make_shared_device == nullptr)
      return {StatusCode::invalid, "this program serves one gpulet per process only"};
    // Other lanes' threads look at no variable before there is a device, and wait for it here.
    if (!std::exchange(has_environment_, true)) {
      for (const auto& [name, value] : command.environment) {
        ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      }
    }
    auto made = program_.make_shared_device();
    if (!made.ok()) return made.status();
    shared_ = std::move(made).value();
    return {};
  }

  const Program& program_;
  std::mutex mutex_;
  bool has_environment_ = false;                    // guarded by mutex_
  std::unique_ptr<executor::SharedDevice> shared_;  // guarded by mutex_
};

class Lane {
 public:
  Lane(std::vector<Descriptor> descriptors, Device& device, const LaneEvents& events)
      : descriptors_(std::move(descriptors)),
        thread_([this, &device, &events] { serve(device, events); }) {}
  ~Lane() {
    abandon();
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] bool ended() const { return ended_; }
  void abandon() {
    const std::lock_guard lock(mutex_);
    if (!descriptors_.empty()) ::shutdown(descriptors_.front().number(), SHUT_RDWR);
  }

 private:
  void serve(Device& device, const LaneEvents& events) {
    const Status served = obey(
        options_of(descriptors_),
        [&device](const serve::LoadModels& command) { return device.add_lane(command); },
        events.device_lost);
    if (!served.ok() && events.lane_failed != nullptr) events.lane_failed(served);
    {
      // The backend sees by this that the lane, and all that it had, is gone.
      const std::lock_guard lock(mutex_);
      descriptors_.clear();
    }
    ended_ = true;
  }

  std::mutex mutex_;
  // Guarded by mutex_, but for the lane's thread, which alone closes them.
  std::vector<Descriptor> descriptors_;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last: starts when the rest is there
};

void refuse(const std::vector<Descriptor>& descriptors, std::size_t most) {
  serve::ProxyReady full;
  full.status = {StatusCode::unavailable, "this process serves " + std::to_string(most) +
                                              " gpulets already, as many as it may"};
  static_cast<void>(write_message(options_of(descriptors).control_fd, full));
}

}  // namespace

Status serve_lanes(const LanesOptions& options, const Program& program, const LaneEvents& events) {
  if (program.prepare != nullptr) program.prepare();
  Device device(program);
  std::list<Lane> lanes;  // after the device, which outlives them
  for (;;) {
    auto received = receive_descriptors(options.lanes_fd, kDescriptorsOfALane, true);
    std::erase_if(lanes, [](const Lane& lane) { return lane.ended(); });
    if (!received.ok() || received.value().closed) {
      for (Lane& lane : lanes) lane.abandon();  // all at once: each is waited for below
      return received.status().within("the socket of the lanes");
    }
    auto& descriptors = received.value().descriptors;
    if (lanes.size() >= options.most_lanes) {
      refuse(descriptors, options.most_lanes);
    } else {
      lanes.emplace_back(std::move(descriptors), device, events);
    }
  }
}

}  // namespace gpulet::proxy
