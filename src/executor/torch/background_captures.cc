#include "executor/torch/background_captures.h"

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

namespace gpulet::executor {
namespace {

// A busy gpulet gets its other sizes within about ten times this. Each delays its batches by the
// tens of milliseconds that planning takes on the CPU, and by one batch on the device.
constexpr Duration kLongestWait = std::chrono::seconds(1);

Time now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

BackgroundCaptures::BackgroundCaptures(std::weak_ptr<Preparer> preparer, Make make)
    : preparer_(std::move(preparer)), make_(std::move(make)), gaps_(kLongestWait) {}

void BackgroundCaptures::add(const ModelPointer& model, std::span<const std::uint32_t> sizes) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t size : sizes) tasks_.push_back({model, size});
  post_if_due();
}

void BackgroundCaptures::start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  post_if_due();
}

void BackgroundCaptures::drop(const TorchModel& model) {
  std::erase_if(tasks_, [&model](const Task& task) { return task.model.get() == &model; });
}

void BackgroundCaptures::erase(const TorchModel& model) {
  const std::lock_guard lock(mutex_);
  drop(model);
  std::erase_if(captured_, [&model](const Captured& one) { return one.model.get() == &model; });
  if (running_ == &model) running_ = nullptr;
}

void BackgroundCaptures::close() {
  const std::lock_guard lock(mutex_);
  started_ = false;
  tasks_.clear();
  captured_.clear();
  running_ = nullptr;
}

void BackgroundCaptures::batch_begun() {
  const std::lock_guard lock(mutex_);
  gaps_.batch_begun();
  post_if_due();
}

void BackgroundCaptures::batch_ended() {
  const std::lock_guard lock(mutex_);
  gaps_.batch_ended();
  post_if_due();
}

std::vector<BackgroundCaptures::Captured> BackgroundCaptures::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(captured_, {});
}

std::size_t BackgroundCaptures::pending() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size() + (running_ == nullptr ? 0 : 1);
}

void BackgroundCaptures::post_if_due() {
  if (!started_ || tasks_.empty()) return;
  const auto preparer = preparer_.lock();
  if (preparer == nullptr || !gaps_.start(now())) return;
  preparer->post_later([self = shared_from_this()] { self->capture_next(); });
}

void BackgroundCaptures::capture_next() {
  Task task;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty()) return gaps_.capture_ended(now());
    task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = task.model.get();
  }
  std::optional<CapturedBatch> batch;
  try {
    batch = make_(*task.model, task.size);
  } catch (const std::exception&) {
    // The model runs this size without a graph, or as a larger one.
  }
  const std::lock_guard lock(mutex_);
  const bool wanted = std::exchange(running_, nullptr) != nullptr;
  if (!batch) {
    drop(*task.model);
  } else if (wanted) {
    captured_.push_back({std::move(task.model), task.size, std::move(*batch)});
  }
  gaps_.capture_ended(now());
  post_if_due();
}

}  // namespace gpulet::executor
