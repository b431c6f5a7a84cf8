// A second thread that does one piece of work at a time, while its owner does another. What is
// computed is the same with and without it. One owner; any work.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace gpulet::train {

class Helper {
 public:
  // With false there is no thread, and both pieces are done by the owner.
  explicit Helper(bool has_thread);
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // Returns when both are done; throws what one of them threw.
  void both(const std::function<void()>& own, const std::function<void()>& others);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace gpulet::train
