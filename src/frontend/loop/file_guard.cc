#include "frontend/loop/file_guard.h"

#include <fmt/format.h>

#include <condition_variable>
#include <system_error>

#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

// Shared with its thread, which may outlive the guard.
struct FileGuard::Worker {
  std::mutex mutex;
  std::condition_variable changed;
  Work work;  // empty: none to do
  bool done = false;
  bool stopped = false;  // the caller does not wait any more
  bool ends = false;     // the thread returns once it has nothing to do
  ReadProgress progress;

  static void serve(const std::shared_ptr<Worker>& self) {
    net::name_thread("file-guard");
    std::unique_lock lock(self->mutex);
    while (true) {
      self->changed.wait(lock, [&self] { return self->ends || (self->work && !self->done); });
      if (!self->work || self->done) return;
      const auto work = std::move(self->work);
      lock.unlock();
      work(self->progress);
      lock.lock();
      self->done = true;
      self->changed.notify_all();
    }
  }
};

FileGuard::~FileGuard() {
  if (worker_ == nullptr) return;
  {
    const std::lock_guard lock(worker_->mutex);
    worker_->ends = true;
    worker_->changed.notify_all();
  }
  thread_.join();
}

Status FileGuard::error_of(const std::filesystem::path& file) const {
  return {StatusCode::timeout,
          fmt::format("{}: reading it makes no progress for {:.0f} s; check the mount or the disk",
                      file.string(), to_seconds(patience_))};
}

bool FileGuard::hangs(const std::filesystem::path& file) {
  const auto found = hanging_.find(file);
  if (found == hanging_.end()) return false;
  const std::lock_guard lock(found->second->mutex);
  return !found->second->done;
}

void FileGuard::stop() {
  const std::lock_guard lock(stop_mutex_);
  stopped_ = true;
  if (running_ == nullptr) return;
  const std::lock_guard of_worker(running_->mutex);
  running_->stopped = true;
  running_->changed.notify_all();
}

Status FileGuard::run_work(const std::filesystem::path& file, Work work) {
  const Status cancelled(StatusCode::cancelled, file.string() + ": not read, because of the end");
  if (hangs(file)) return error_of(file);
  std::erase_if(hanging_, [](const auto& one) {
    const std::lock_guard lock(one.second->mutex);
    return one.second->done;
  });
  if (hanging_.size() >= kMostHanging) {
    return {StatusCode::timeout,
            fmt::format("{}: not read, because reading {} other files makes no progress",
                        file.string(), hanging_.size())};
  }
  if (worker_ == nullptr) {
    worker_ = std::make_shared<Worker>();
    try {
      thread_ = std::thread([worker = worker_] { Worker::serve(worker); });
    } catch (const std::system_error& error) {
      worker_.reset();
      return {StatusCode::unavailable,
              fmt::format("{}: no thread to read it: {}", file.string(), error.what())};
    }
  }
  Worker& worker = *worker_;
  {
    const std::lock_guard lock(stop_mutex_);
    if (stopped_) return cancelled;
    running_ = worker_;
  }
  std::unique_lock lock(worker.mutex);
  worker.done = false;
  worker.work = std::move(work);
  worker.changed.notify_all();
  std::uint64_t steps = worker.progress.steps();
  const auto ended = [&worker] { return worker.done || worker.stopped; };
  while (!worker.changed.wait_for(lock, patience_, ended)) {
    if (std::exchange(steps, worker.progress.steps()) == worker.progress.steps()) break;
  }
  if (worker.done) return {};
  worker.ends = true;  // its thread returns when the system lets the file go
  const bool stopped = worker.stopped;
  lock.unlock();
  hanging_.emplace(file, std::move(worker_));
  worker_.reset();
  thread_.detach();  // nobody can wait for it
  return stopped ? cancelled : error_of(file);
}

}  // namespace gpulet::frontend
