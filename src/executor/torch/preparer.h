// Preparer: a thread that loads models, or captures graphs, for all executors of a process. cuDNN's
// plans belong to a thread, and making those of one batch size takes tens of milliseconds. The
// plans of this thread serve every executor that comes later, which then only captures.
//
// Any thread. The destructor runs the tasks that were posted before, except those for later.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <type_traits>
#include <utility>

namespace gpulet::executor {

class Preparer {
 public:
  Preparer() : thread_([this] { run(); }) {}
  ~Preparer() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  // Runs the task after those posted before. Its result, or what it throws, is in the future.
  // REQUIRES: the task does not hold the last reference to this object.
  template <typename Task>
  [[nodiscard]] auto post(Task task) {
    const auto packaged =
        std::make_shared<std::packaged_task<std::invoke_result_t<Task>()>>(std::move(task));
    auto result = packaged->get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace([packaged] { (*packaged)(); });
    }
    changed_.notify_one();
    return result;
  }

  // Runs the task once there is none that was posted by post(). It must not throw.
  void post_later(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      later_.push(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty() || !later_.empty(); });
      if (tasks_.empty() && ending_) return;
      auto& next = tasks_.empty() ? later_ : tasks_;
      std::function<void()> task = std::move(next.front());
      next.pop();
      lock.unlock();
      task();
      task = nullptr;  // what it holds may use this object
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> tasks_;  // guarded by mutex_
  std::queue<std::function<void()>> later_;  // guarded by mutex_
  bool ending_ = false;                      // guarded by mutex_
  std::thread thread_;                       // last: it uses the others
};

}  // namespace gpulet::executor
