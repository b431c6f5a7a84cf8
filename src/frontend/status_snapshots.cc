#include "status_snapshots.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "gpulet/net/clock.h"

namespace gpulet::frontend {
namespace {

constexpr int kShareOfLoop = 50;  // snapshots cost one part in so many of the loop's time
constexpr Duration kLongestGood = std::chrono::seconds(1);

// What this thread has computed: others' work on the same core does not count.
Duration computed() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

StatusSnapshots::StatusSnapshots(net::asio::io_context& io, Source source, Background& background,
                                 LoopWatch& watch)
    : io_(io), source_(std::move(source)), background_(background), watch_(watch), timer_(io) {}

void StatusSnapshots::get(OnSnapshot done, std::uint64_t newer_than) {
  const bool good = last_ != nullptr && net::now() < good_until_;
  if (good && last_->number > newer_than) {
    net::asio::post(io_, [done = std::move(done), snapshot = last_] { done(snapshot); });
    return;
  }
  waiting_.push_back(std::move(done));
  if (taken_ || waits_) return;
  if (!good) return begin();
  waits_ = true;
  timer_.set(good_until_, [this] {
    waits_ = false;
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
  const Duration before = computed();
  bool whole = false;
  while (!whole && net::now() < until) whole = source_.take(*taken_, kParts);
  cost_ += computed() - before;
  if (whole) return finish();
  net::asio::post(io_, [this] { step(); });
}

void StatusSnapshots::finish() {
  TimedStatus made;
  made.status = std::move(*taken_).finish();
  taken_.reset();
  made.wall = source_.wall_clock();
  made.moment = source_.moment(made.wall);
  made.number = ++number_;
  last_ = background_.shared(std::move(made));
  good_until_ = net::now() + std::min(kShareOfLoop * cost_, kLongestGood);
  hand_out();
}

void StatusSnapshots::hand_out() {
  for (const OnSnapshot& done : std::exchange(waiting_, {})) done(last_);
}

}  // namespace gpulet::frontend
