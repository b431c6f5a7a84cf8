#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::net {

// Calls `done` once each thread has ended and finish() was called.
struct IoThreads::Ending {
  std::atomic<std::size_t> missing;  // of these ends and this call
  std::function<void()> done;        // set by finish()

  void one_less() {
    if (missing.fetch_sub(1) == 1) std::exchange(done, nullptr)();
  }
};

class IoThreads::Thread {
 public:
  Thread(std::size_t number, std::shared_ptr<Ending> ending)
      : work_(io_.get_executor()), runner_([this, number, ending = std::move(ending)] {
          name_thread("io-" + std::to_string(number));
          io_.run();
          ending->one_less();
        }) {}

  [[nodiscard]] asio::io_context& io() { return io_; }
  void finish() { work_.reset(); }
  void halt() { io_.stop(); }
  void join() {
    if (runner_.joinable()) runner_.join();
  }

 private:
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread runner_;
};

IoThreads::IoThreads(std::size_t count) : ending_(std::make_shared<Ending>()) {
  ending_->missing = count + 1;
  threads_.reserve(count);
  for (std::size_t number = 0; number < count; ++number)
    threads_.push_back(std::make_unique<Thread>(number, ending_));
}

IoThreads::~IoThreads() { join(); }

asio::io_context& IoThreads::io(std::size_t thread) const { return threads_[thread]->io(); }

void IoThreads::finish(std::function<void()> done) {
  ending_->done = std::move(done);
  for (const auto& thread : threads_) thread->finish();
  ending_->one_less();
}

void IoThreads::halt() {
  for (const auto& thread : threads_) thread->halt();
}

void IoThreads::join() {
  halt();
  for (const auto& thread : threads_) thread->join();
}

}  // namespace gpulet::net
