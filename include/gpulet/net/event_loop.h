// A daemon's needs around its io_context: the clock, timers and signals. now()
// may be called on any thread; Alarm on the thread that runs the io_context.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// ---- signals
//
// The signals of a daemon. Belongs to the thread that runs the io_context.

// Reports SIGTERM and SIGINT (stop) and SIGHUP (reload). The first request to stop is the orderly
// one and the second asks for haste. Later ones are ignored, also after this object's destruction,
// so that a repeated request cannot kill a daemon that is shutting down. One per process.
class DaemonSignals {
 public:
  struct Callbacks {
    std::function<void(int signal)> stop;
    std::function<void()> hurry;
    std::function<void()> reload;
  };

  // A SIGHUP is ignored until wait() is called: it must not end a daemon that is starting.
  DaemonSignals() { std::signal(SIGHUP, SIG_IGN); }
  ~DaemonSignals() {
    set_.reset();  // restores the default action, which ends the process
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::signal(number, SIG_IGN);
  }
  DaemonSignals(const DaemonSignals&) = delete;
  DaemonSignals& operator=(const DaemonSignals&) = delete;

  // Calls back from the io_context, which does not run out of work before finish(). REQUIRES: it
  // outlives this object.
  void wait(asio::io_context& io, Callbacks callbacks) {
    callbacks_ = std::move(callbacks);
    set_.emplace(io, SIGTERM, SIGINT, SIGHUP);
    wait_for_next();
  }
  // Waits for no more: the io_context may run out of work. The signals are ignored.
  void finish() {
    finished_ = true;
    if (set_) set_->cancel();
  }

 private:
  void wait_for_next() {
    set_->async_wait([this](const boost::system::error_code& error, int signal) {
      if (error || finished_) return;
      wait_for_next();
      if (signal == SIGHUP) {
        if (stops_ == 0) callbacks_.reload();
      } else if (++stops_ == 1) {
        callbacks_.stop(signal);
      } else if (stops_ == 2) {
        callbacks_.hurry();
      }
    });
  }

  std::optional<asio::signal_set> set_;
  Callbacks callbacks_;
  int stops_ = 0;
  bool finished_ = false;
};

}  // namespace gpulet::net
