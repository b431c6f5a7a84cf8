#include "frontend/loop/event_loop.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "gpulet/serve/plans/planning.h"

namespace gpulet::frontend {

// ---- PauseHistory and LoopWatch

namespace {

constexpr Duration kWarningInterval = std::chrono::seconds(10);

std::int64_t second_of(Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

void PauseHistory::record(Duration pause, std::string_view task, Time now) {
  if (pause >= kLongPause) ++long_pauses_;
  const std::int64_t number = second_of(now);
  Second& second = seconds_[static_cast<std::size_t>(number) % kSeconds];
  if (second.number != number) second = {number, {}, {}};
  if (pause <= second.longest) return;
  second.longest = pause;
  second.task = task;
}

LoopPauses PauseHistory::summary(Time now) const {
  LoopPauses pauses;
  pauses.long_pauses = long_pauses_;
  const std::int64_t first = second_of(now) - static_cast<std::int64_t>(kSeconds) + 1;
  for (const Second& second : seconds_) {
    if (second.number < first || second.longest <= pauses.longest) continue;
    pauses.longest = second.longest;
    pauses.longest_task = second.task;
  }
  return pauses;
}

void LoopWatch::start() {
  due_ = net::now() + kInterval;
  wait();
}

void LoopWatch::stop() { timer_.cancel(); }

LoopPauses LoopWatch::pauses() const { return history_.summary(net::now()); }

void LoopWatch::wait() {
  timer_.set(due_, [this] {
    on_time(net::now());
    wait();
  });
}

void LoopWatch::on_time(Time now) {
  const Duration pause = std::max(now - due_, longest_scope_);
  const std::string_view task = std::exchange(longest_task_, {});
  // A task explains the pause if it took most of it.
  const bool explained = 2 * std::exchange(longest_scope_, {}) >= pause;
  history_.record(pause, explained ? task : std::string_view(), now);
  if (pause >= kWarnAbove) warn(pause, explained ? task : std::string_view(), now);
  due_ = now + kInterval;
}

void LoopWatch::warn(Duration pause, std::string_view task, Time now) {
  if (now < quiet_until_) {
    ++suppressed_;
    return;
  }
  quiet_until_ = now + kWarningInterval;
  std::string text;
  if (!task.empty()) text += ", mostly by " + std::string(task);
  if (const std::uint64_t count = std::exchange(suppressed_, 0); count > 0)
    text += "; " + std::to_string(count) + " more pauses were not logged";
  spdlog::warn("the event loop was blocked for {:.0f} ms{}", to_ms(pause), text);
}

LoopWatch::Scope::~Scope() {
  const Duration took = net::now() - began_;
  if (took <= watch_.longest_scope_) return;
  watch_.longest_scope_ = took;
  watch_.longest_task_ = task_;
}

// ---- BackgroundThread

constexpr int kNiceness = 10;

BackgroundThread::BackgroundThread(net::asio::io_context& io) : io_(io) {
  net::asio::post(*thread_, [] {
    net::name_thread("background");
    // On Linux this affects the calling thread only. A failure does not matter.
    [[maybe_unused]] const int ignored =
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
  });
}

BackgroundThread::~BackgroundThread() {
  thread_->stop();
  thread_->join();
}

// ---- CoreWorkers

// A step takes up to a millisecond, and one that waits for more than a second is of no use.
constexpr std::size_t kMaxPendingSteps = 1024;

CoreWorkers::CoreWorkers(net::asio::io_context& io, std::shared_ptr<const schedule::Policy> policy,
                         EventSink& events)
    : io_(io), policy_(std::move(policy)), events_(events) {
  net::asio::post(planner_, [] { net::name_thread("planner"); });
  net::asio::post(steps_, [] { net::name_thread("app-steps"); });
}

CoreWorkers::~CoreWorkers() {
  planner_.join();
  steps_.join();
}

void CoreWorkers::make_plan(serve::MakePlan effect) {
  net::asio::post(planner_, [this, effect = std::move(effect)] {
    serve::PlanMade made = serve::make_plan(effect, *policy_);
    net::asio::post(io_,
                    [this, made = std::move(made)]() mutable { events_.deliver(std::move(made)); });
  });
}

void CoreWorkers::run_step(serve::StepToRun step) {
  if (pending_steps_ >= kMaxPendingSteps) {
    const Status full(StatusCode::overloaded,
                      std::to_string(kMaxPendingSteps) + " application steps are pending");
    net::asio::post(io_, [this, id = step.id, full] {
      events_.deliver(serve::StepCompleted{id, full});
    });
    return;
  }
  ++pending_steps_;
  net::asio::post(steps_, [this, step = std::move(step)] {
    serve::StepCompleted done{step.id, serve::run_step(step.step, step.inputs)};
    net::asio::post(io_, [this, done = std::move(done)]() mutable {
      --pending_steps_;
      events_.deliver(std::move(done));
    });
  });
}

}  // namespace gpulet::frontend
