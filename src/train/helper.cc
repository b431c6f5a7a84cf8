#include "train/helper.h"

#include <utility>

namespace gpulet::train {

Helper::Helper(bool has_thread) {
  if (has_thread) thread_ = std::thread([this] { serve(); });
}

Helper::~Helper() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Helper::both(const std::function<void()>& own, const std::function<void()>& others) {
  if (!thread_.joinable()) {
    others();
    own();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &others;
  }
  changed_.notify_all();
  std::exception_ptr failure;
  try {
    own();
  } catch (...) {
    failure = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_ == nullptr; });
  if (failure == nullptr) failure = std::exchange(failure_, nullptr);
  lock.unlock();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void Helper::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || work_ != nullptr; });
    if (ending_) return;
    const std::function<void()>& work = *work_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gpulet::train
