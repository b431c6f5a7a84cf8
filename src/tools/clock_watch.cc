#include "tools/clock_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);

struct Range {
  std::uint32_t lowest;
  std::uint32_t highest;

  void include(std::uint32_t value) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(lowest) +
           (highest > lowest ? "-" + std::to_string(highest) : std::string());
  }
};

}  // namespace

class ClockWatch::Impl {
 public:
  explicit Impl(std::string uuid)
      : uuid_(std::move(uuid)), nvml_(gpu::Nvml::load()), thread_([this] { run(); }) {}
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void look(bool looking) {
    {
      const std::lock_guard lock(mutex_);
      // However short it was: what has just run has not let the clocks fall yet.
      if (looking_ && !looking) look_once();
      looking_ = looking;
    }
    changed_.notify_all();
  }

  [[nodiscard]] profile::Provenance seen() const {
    const std::lock_guard lock(mutex_);
    if (!sm_mhz_) return {};
    return {{"sm_clock_mhz", sm_mhz_->text()}, {"memory_clock_mhz", memory_mhz_->text()}};
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return looking_ || leaving_; });
      if (leaving_) return;
      look_once();
      changed_.wait_for(lock, kLookEvery, [this] { return !looking_ || leaving_; });
    }
  }

  // REQUIRES: the mutex is held.
  void look_once() {
    if (!nvml_.ok()) return;
    const auto clocks = nvml_.value().clocks(uuid_);
    if (!clocks.ok()) return;
    const auto [sm_mhz, memory_mhz] = clocks.value();
    if (!sm_mhz_) {
      sm_mhz_ = Range{sm_mhz, sm_mhz};
      memory_mhz_ = Range{memory_mhz, memory_mhz};
    }
    sm_mhz_->include(sm_mhz);
    memory_mhz_->include(memory_mhz);
  }

  const std::string uuid_;
  mutable std::mutex mutex_;  // guards all that follows but the thread
  const Result<gpu::Nvml> nvml_;
  std::condition_variable changed_;
  bool looking_ = false;
  bool leaving_ = false;
  std::optional<Range> sm_mhz_;
  std::optional<Range> memory_mhz_;  // there where the other is
  std::thread thread_;               // last: it uses the members above
};

ClockWatch::ClockWatch(std::string gpu_uuid) : impl_(std::make_unique<Impl>(std::move(gpu_uuid))) {}
ClockWatch::~ClockWatch() = default;
profile::Provenance ClockWatch::seen() const { return impl_->seen(); }

ClockWatch::Looking::Looking(ClockWatch* watch) : watch_(watch) {
  if (watch_ != nullptr) watch_->impl_->look(true);
}
ClockWatch::Looking::~Looking() {
  if (watch_ != nullptr) watch_->impl_->look(false);
}

}  // namespace gpulet::tools
