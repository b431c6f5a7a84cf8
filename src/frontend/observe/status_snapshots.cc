#include "frontend/observe/status_snapshots.h"

#include <ctime>

#include "frontend/loop/wall_clock.h"

namespace gpulet::frontend {

namespace {

constexpr int kReuseFactor = 50;  // a snapshot is reused for 50 times its cost
constexpr Duration kMaxReuse = std::chrono::seconds(1);

// CPU time of this thread: other threads on the same core do not count.
Duration cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

StatusSnapshots::StatusSnapshots(net::asio::io_context& io, Source& source,
                                 BackgroundThread& background, LoopWatch& watch)
    : io_(io), source_(source), background_(background), watch_(watch), timer_(io) {}

void StatusSnapshots::get(OnSnapshot done, std::uint64_t newer_than) {
  const bool valid = last_ != nullptr && net::now() < valid_until_;
  if (valid && last_->number > newer_than) {
    net::asio::post(io_, [done = std::move(done), snapshot = last_] { done(snapshot); });
    return;
  }
  waiting_.push_back(std::move(done));
  if (taken_ || scheduled_) return;
  if (!valid) return begin();
  scheduled_ = true;
  timer_.set(valid_until_, [this] {
    scheduled_ = false;
    if (!taken_) begin();
  });
}

void StatusSnapshots::begin() {
  taken_.emplace(net::now());
  cost_ = {};
  net::asio::post(io_, [this] { step(); });
}

void StatusSnapshots::step() {
  const Time began = net::now();
  const LoopWatch::Scope scope(watch_, "a status snapshot", began);
  const Time until = began + kLongestStep;
  const Duration before = cpu_time();
  bool complete = false;
  while (!complete && net::now() < until) complete = source_.take(*taken_, kParts);
  cost_ += cpu_time() - before;
  if (complete) return finish();
  net::asio::post(io_, [this] { step(); });
}

void StatusSnapshots::finish() {
  TimedStatus made;
  made.status = std::move(*taken_).finish();
  taken_.reset();
  made.wall = wall_clock();
  made.context = source_.context(made.wall);
  made.number = ++number_;
  last_ = background_.shared(std::move(made));
  valid_until_ = net::now() + std::min(kReuseFactor * cost_, kMaxReuse);
  hand_out();
}

void StatusSnapshots::hand_out() {
  for (const OnSnapshot& done : std::exchange(waiting_, {})) done(last_);
}

}  // namespace gpulet::frontend
