// A daemon's needs around its io_context: the clock, timers, names of threads, signals and threads
// for connections. now() and name_thread() may be called on any thread; Alarm on the thread that
// runs the io_context.
#pragma once

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// ---- threads

// Names the calling thread for `top -H`, debuggers and benches, which add up the processor time of
// threads by their names. The kernel keeps 15 characters. Not for the main thread: its name is that
// of the program.
inline void name_thread(const std::string& name) {
  constexpr std::size_t kLongest = 15;
  (void)::pthread_setname_np(::pthread_self(), name.substr(0, kLongest).c_str());
}

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

// ---- I/O threads

// Threads that run connections, each with an io_context of its own. They are named "io-0", "io-1",
// ... A connection belongs to one of them from its start to its end. Handlers must not throw.
//
// An io_context may be posted to on any thread; all other functions belong to the thread that made
// this object.
class IoThreads {
 public:
  // Starts that many threads; 0: none.
  explicit IoThreads(std::size_t count);
  // Halts the threads and waits for them. Handlers that have not run are destroyed without being
  // called. REQUIRES: nothing on this thread blocks one of them.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  [[nodiscard]] std::size_t size() const { return threads_.size(); }
  // REQUIRES: thread < size(). Valid until this object is destroyed.
  [[nodiscard]] asio::io_context& io(std::size_t thread) const;

  // Lets each thread end with the last work of its io_context. `done` is then called once: on the
  // thread that ends last, or within this call where all have ended. REQUIRES: called at most once.
  void finish(std::function<void()> done);
  // Has each thread end after the handler that it runs. Does not wait.
  void halt();
  // Halts the threads and waits for them.
  void join();

 private:
  class Thread;
  struct Ending;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::shared_ptr<Ending> ending_;
};

}  // namespace gpulet::net
