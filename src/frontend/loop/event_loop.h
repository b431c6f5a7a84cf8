// What keeps the event loop responsive: LoopWatch measures its pauses, and BackgroundThread and
// CoreWorkers run work on other threads. All types here belong to the thread of the io_context
// unless they say otherwise. The io_context must have stopped before they are destroyed.
#pragma once

#include <array>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "frontend/loop/event_sink.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

struct LoopPauses {
  Duration longest{};               // longest pause of the last minute
  std::string_view longest_task{};  // the task that caused it; empty: unknown
  std::uint64_t long_pauses = 0;    // pauses of at least kLongPause since the start
};
inline constexpr Duration kLongPause = std::chrono::milliseconds(5);

// The pauses of the last minute, at a resolution of one second. Pure; one thread at a time.
class PauseHistory {
 public:
  // `task` must outlive this object.
  void record(Duration pause, std::string_view task, Time now);
  [[nodiscard]] LoopPauses summary(Time now) const;

 private:
  struct Second {
    std::int64_t number = -1;
    Duration longest{};
    std::string_view task{};
  };
  static constexpr std::size_t kSeconds = 60;
  std::array<Second, kSeconds> seconds_{};
  std::uint64_t long_pauses_ = 0;
};

// Measures for how long the event loop was blocked, in two ways: the lateness of a timer that is
// due every ten milliseconds, and the duration of the handlers that open a Scope. If both see the
// same pause, the longer figure counts.
class LoopWatch {
 public:
  explicit LoopWatch(net::asio::io_context& io) : timer_(io) {}

  // Starts to measure. Logs a warning for a pause above kWarnAbove, at most every ten seconds.
  void start();
  void stop();
  [[nodiscard]] LoopPauses pauses() const;

  // Measures a task from `began` to the end of the scope. `task` is a literal.
  class Scope {
   public:
    Scope(LoopWatch& watch, std::string_view task, Time began)
        : watch_(watch), task_(task), began_(began) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    LoopWatch& watch_;
    std::string_view task_;
    Time began_;
  };

 private:
  static constexpr Duration kInterval = std::chrono::milliseconds(10);
  static constexpr Duration kWarnAbove = std::chrono::milliseconds(100);

  void wait();
  void on_time(Time now);
  void warn(Duration pause, std::string_view task, Time now);

  net::Alarm timer_;
  Time due_{};
  // The longest scope since the last tick of the timer.
  Duration longest_scope_{};
  std::string_view longest_task_{};
  PauseHistory history_;
  Time quiet_until_{};
  std::uint64_t suppressed_ = 0;  // warnings
};

// One thread, at a lower priority than the event loop's, for work that would block the loop.
// Results are delivered on the io_context in the order of the calls.
class BackgroundThread {
 public:
  explicit BackgroundThread(net::asio::io_context& io);
  // Waits for the work in progress.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Calls work() on the thread, which also destroys it, then then(result) on the io_context.
  template <typename Work, typename Then>
  void run(Work work, Then then) {
    net::asio::post(*thread_, [this, work = std::move(work), then = std::move(then)]() mutable {
      net::asio::post(io_,
                      [made = work(), then = std::move(then)]() mutable { then(std::move(made)); });
    });
  }

  // A shared value that is destroyed on the thread: destroying the status of thousands of models
  // takes milliseconds. The value may outlive this object.
  template <typename Value>
  [[nodiscard]] std::shared_ptr<const Value> shared(Value value) {
    return {new Value(std::move(value)), [thread = std::weak_ptr(thread_)](const Value* held) {
              std::unique_ptr<const Value> last(held);
              if (const auto locked = thread.lock())
                net::asio::post(*locked, [last = std::move(last)] {});
            }};
  }

 private:
  using Thread = boost::asio::thread_pool;

  net::asio::io_context& io_;
  std::shared_ptr<Thread> thread_ = std::make_shared<Thread>(1);
};

// Runs planning and application steps on one thread each; delivers events on the io_context. The
// sink must outlive it.
class CoreWorkers {
 public:
  CoreWorkers(net::asio::io_context& io, std::shared_ptr<const schedule::Policy> policy,
              EventSink& events);
  ~CoreWorkers();
  CoreWorkers(const CoreWorkers&) = delete;
  CoreWorkers& operator=(const CoreWorkers&) = delete;

  void make_plan(serve::MakePlan effect);
  // The queue is bounded: a step beyond its capacity fails with overloaded.
  void run_step(serve::StepToRun step);

 private:
  net::asio::io_context& io_;
  std::shared_ptr<const schedule::Policy> policy_;
  EventSink& events_;
  std::size_t pending_steps_ = 0;
  boost::asio::thread_pool planner_{1};
  boost::asio::thread_pool steps_{1};
};

}  // namespace gpulet::frontend
