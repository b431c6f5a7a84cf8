#include "gpulet/backend/gpu_watch.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace gpulet::backend {

namespace {

constexpr std::chrono::seconds kLastPatience(1);  // for a look that is under way at the end

}  // namespace

using Findings = std::map<std::uint32_t, GpuWatch::Finding>;

// What asks NVML. Its thread keeps it alive, and outlives the watch where NVML hangs.
class GpuWatch::Worker {
 public:
  // `found` runs on the worker's thread, and never once leave() has returned.
  Worker(std::filesystem::path library, std::map<std::uint32_t, std::string> gpus,
         std::function<void(Findings)> found)
      : library_(std::move(library)), gpus_(std::move(gpus)), found_(std::move(found)) {}

  static void run(const std::shared_ptr<Worker>& worker) {
    std::unique_lock lock(worker->mutex_);
    while (!worker->leaving_) {
      if (!worker->busy_) {
        worker->changed_.wait(lock);
        continue;
      }
      lock.unlock();
      Findings findings = worker->look();
      lock.lock();
      worker->busy_ = false;
      worker->changed_.notify_all();
      if (!worker->leaving_) worker->found_(std::move(findings));
    }
  }

  // False while the look before has not come back.
  bool ask() {
    const std::lock_guard lock(mutex_);
    if (busy_) return false;
    busy_ = true;
    changed_.notify_all();
    return true;
  }
  // Whether its thread ends now; false: it hangs in a look.
  bool leave() {
    std::unique_lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, kLastPatience, [this] { return !busy_; });
  }

 private:
  Findings look() {
    Findings findings = ask_nvml();
    for (const auto& [device, found] : findings) {
      if (found.fault.ok()) continue;
      nvml_.reset();  // what was loaded before a GPU came or went may not know
      return ask_nvml();
    }
    return findings;
  }

  Findings ask_nvml() {
    Findings findings;
    if (!nvml_) nvml_.emplace(gpu::Nvml::load(library_));
    for (const auto& [device, uuid] : gpus_) {
      const Status answer = nvml_->ok() ? nvml_->value().memory(uuid).status() : nvml_->status();
      // Whatever else NVML says is no reason to stop serving.
      if (answer.ok() || answer.code() == StatusCode::unavailable ||
          answer.code() == StatusCode::not_found)
        findings[device] = {answer, answer.ok() ? nvml_->value().power(uuid) : gpu::GpuPower()};
    }
    if (!nvml_->ok()) nvml_.reset();
    return findings;
  }

  const std::filesystem::path library_;
  const std::map<std::uint32_t, std::string> gpus_;
  const std::function<void(Findings)> found_;
  std::optional<Result<gpu::Nvml>> nvml_;  // of the thread
  std::mutex mutex_;                       // guards what follows
  std::condition_variable changed_;
  bool busy_ = false;
  bool leaving_ = false;
};

GpuWatch::GpuWatch(const net::asio::any_io_executor& executor,
                   std::map<std::uint32_t, std::string> gpus, GpuWatchOptions options, Tell tell)
    : options_(std::move(options)), tell_(std::move(tell)), timer_(executor) {
  if (gpus.empty()) return;
  auto found = [this, executor, weak = std::weak_ptr(alive_)](Findings findings) {
    net::asio::post(executor, [this, weak, findings = std::move(findings)] {
      if (!weak.expired()) take(findings);
    });
  };
  worker_ = std::make_shared<Worker>(options_.nvml, std::move(gpus), std::move(found));
  thread_ = std::thread(&Worker::run, worker_);
  set_timer();
}

GpuWatch::~GpuWatch() {
  if (!thread_.joinable()) return;
  if (worker_->leave()) {
    thread_.join();
  } else {
    thread_.detach();  // NVML hangs; what the thread uses is its own
  }
}

void GpuWatch::set_timer() {
  timer_.set_after(options_.every, [this] {
    look();
    set_timer();
  });
}

void GpuWatch::look() {
  if (worker_->ask()) return;
  const bool told = hung_for_ >= options_.patience;
  hung_for_ += options_.every;
  if (!told && hung_for_ >= options_.patience)
    spdlog::warn("NVML has not answered for {:.0f} s: a GPU that is lost is not noticed",
                 to_seconds(hung_for_));
}

void GpuWatch::take(const std::map<std::uint32_t, Finding>& findings) {
  hung_for_ = {};
  for (const auto& [device, found] : findings) tell_(device, found);
}

}  // namespace gpulet::backend
