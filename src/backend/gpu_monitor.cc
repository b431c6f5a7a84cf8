#include "backend/gpu_monitor.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::backend {
namespace {

constexpr std::chrono::seconds kShutdownTimeout(1);  // for a poll in progress

using Samples = std::map<std::uint32_t, GpuMonitor::Sample>;

}  // namespace

// Calls NVML. Its thread keeps it alive, and outlives the monitor if NVML hangs.
class GpuMonitor::Poller {
 public:
  // `on_samples` runs on the poller's thread, and never after stop() has returned.
  Poller(std::filesystem::path library, std::map<std::uint32_t, std::string> gpus,
         std::function<void(Samples)> on_samples)
      : library_(std::move(library)), gpus_(std::move(gpus)), on_samples_(std::move(on_samples)) {}

  static void run(const std::shared_ptr<Poller>& poller) {
    std::unique_lock lock(poller->mutex_);
    while (!poller->stopping_) {
      if (!poller->busy_) {
        poller->changed_.wait(lock);
        continue;
      }
      lock.unlock();
      Samples samples = poller->poll();
      lock.lock();
      poller->busy_ = false;
      poller->changed_.notify_all();
      if (!poller->stopping_) poller->on_samples_(std::move(samples));
    }
  }

  // Requests a poll. False if the previous one is still in progress.
  bool request() {
    const std::lock_guard lock(mutex_);
    if (busy_) return false;
    busy_ = true;
    changed_.notify_all();
    return true;
  }
  // Returns whether the thread ends; false: it hangs in a poll.
  bool stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, kShutdownTimeout, [this] { return !busy_; });
  }

 private:
  Samples poll() {
    Samples samples = query_nvml();
    for (const auto& [device, sample] : samples) {
      if (sample.fault.ok()) continue;
      nvml_.reset();  // an instance from before a GPU came or went may have stale data
      return query_nvml();
    }
    return samples;
  }

  Samples query_nvml() {
    Samples samples;
    if (!nvml_) nvml_.emplace(gpu::Nvml::load(library_));
    for (const auto& [device, uuid] : gpus_) {
      const Status status = nvml_->ok() ? nvml_->value().memory(uuid).status() : nvml_->status();
      // Other errors of NVML do not stop the device from serving.
      if (status.ok() || status.code() == StatusCode::unavailable ||
          status.code() == StatusCode::not_found)
        samples[device] = {status, status.ok() ? nvml_->value().power(uuid) : gpu::GpuPower()};
    }
    if (!nvml_->ok()) nvml_.reset();
    return samples;
  }

  const std::filesystem::path library_;
  const std::map<std::uint32_t, std::string> gpus_;
  const std::function<void(Samples)> on_samples_;
  std::optional<Result<gpu::Nvml>> nvml_;  // used by the thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;      // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
};

GpuMonitor::GpuMonitor(const net::asio::any_io_executor& executor,
                       std::map<std::uint32_t, std::string> gpus, GpuMonitorOptions options,
                       OnSample on_sample)
    : options_(std::move(options)), on_sample_(std::move(on_sample)), timer_(executor) {
  if (gpus.empty()) return;
  auto on_samples = [this, executor, watch = alive_.watch()](Samples samples) {
    net::asio::post(executor, [this, watch, samples = std::move(samples)] {
      if (watch.alive()) report(samples);
    });
  };
  poller_ = std::make_shared<Poller>(options_.nvml, std::move(gpus), std::move(on_samples));
  thread_ = std::thread([poller = poller_] {
    net::name_thread("gpu-monitor");
    Poller::run(poller);
  });
  set_timer();
}

GpuMonitor::~GpuMonitor() {
  if (!thread_.joinable()) return;
  if (poller_->stop()) {
    thread_.join();
  } else {
    thread_.detach();  // NVML hangs; the thread uses only its own poller
  }
}

void GpuMonitor::set_timer() {
  timer_.set_after(options_.interval, [this] {
    poll();
    set_timer();
  });
}

void GpuMonitor::poll() {
  if (poller_->request()) return;
  const bool warned = hung_for_ >= options_.warn_after;
  hung_for_ += options_.interval;
  if (!warned && hung_for_ >= options_.warn_after)
    spdlog::warn("NVML has not answered for {:.0f} s: lost GPUs are not detected",
                 to_seconds(hung_for_));
}

void GpuMonitor::report(const std::map<std::uint32_t, Sample>& samples) {
  hung_for_ = {};
  for (const auto& [device, sample] : samples) on_sample_(device, sample);
}

}  // namespace gpulet::backend
