// A daemon's needs around its io_context: the clock and timers (signals.h has the signals). now()
// may be called on any thread; Alarm on the thread that runs the io_context.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"

namespace gpulet::net {

// The daemons' clock: the machine's steady clock as engine time.
[[nodiscard]] inline Time now() {
  return Time(std::chrono::steady_clock::now().time_since_epoch());
}

// A timer whose callback never runs after cancel(), another set() or its destruction. Asio's timer
// does not guarantee that: once it has expired, cancel() does not stop the queued handler.
class Alarm {
 public:
  explicit Alarm(const asio::any_io_executor& executor) : timer_(executor) {}
  explicit Alarm(asio::io_context& io) : timer_(io) {}
  ~Alarm() { ++*current_; }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  [[nodiscard]] asio::any_io_executor get_executor() { return timer_.get_executor(); }
  // Calls ring() at `when`. Replaces an earlier set().
  template <typename Ring>
  void set(Time when, Ring ring) {
    timer_.expires_at(std::chrono::steady_clock::time_point(when.time_since_epoch()));
    timer_.async_wait([current = current_, set = ++*current_,
                       ring = std::move(ring)](const boost::system::error_code& error) mutable {
      if (!error && *current == set) ring();
    });
  }
  template <typename Ring>
  void set_after(Duration delay, Ring ring) {
    set(now() + delay, std::move(ring));
  }
  void cancel() {
    ++*current_;
    timer_.cancel();
  }

 private:
  asio::steady_timer timer_;
  // Number of the latest set(), shared with the handlers: older handlers do nothing.
  std::shared_ptr<std::uint64_t> current_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace gpulet::net
