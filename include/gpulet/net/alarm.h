// Alarm: a timer that is silent once it was cancelled, set anew or destroyed.
//
// An Asio timer is not. If it has expired and its handler is queued, cancel() has no effect: the
// handler runs without an error, although its owner may have stopped or been destroyed.
//
// One thread: the one that runs the io_context.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/clock.h"

namespace gpulet::net {

class Alarm {
 public:
  explicit Alarm(const asio::any_io_executor& executor) : timer_(executor) {}
  explicit Alarm(asio::io_context& io) : timer_(io) {}
  ~Alarm() { ++*current_; }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  [[nodiscard]] asio::any_io_executor get_executor() { return timer_.get_executor(); }
  // Calls ring() at that time, and not what was set before.
  template <typename Ring>
  void set(Time when, Ring ring) {
    timer_.expires_at(std::chrono::steady_clock::time_point(when.time_since_epoch()));
    timer_.async_wait([current = current_, set = ++*current_,
                       ring = std::move(ring)](const boost::system::error_code& error) mutable {
      if (!error && *current == set) ring();
    });
  }
  template <typename Ring>
  void set_after(Duration pause, Ring ring) {
    set(now() + pause, std::move(ring));
  }
  void cancel() {
    ++*current_;
    timer_.cancel();
  }

 private:
  asio::steady_timer timer_;
  // Number of the last set(), shared with the handlers: a handler of an earlier one does nothing.
  std::shared_ptr<std::uint64_t> current_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace gpulet::net
