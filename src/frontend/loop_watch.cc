#include "loop_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gpulet/net/clock.h"

namespace gpulet::frontend {
namespace {

constexpr Duration kBetweenWarnings = std::chrono::seconds(10);

std::int64_t second_of(Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

void PauseBook::record(Duration pause, std::string_view ran, Time now) {
  if (pause >= kLongPause) ++long_ones_;
  const std::int64_t number = second_of(now);
  Second& second = seconds_[static_cast<std::size_t>(number) % kSeconds];
  if (second.number != number) second = {number, {}, {}};
  if (pause <= second.longest) return;
  second.longest = pause;
  second.ran = ran;
}

LoopPauses PauseBook::look(Time now) const {
  LoopPauses pauses;
  pauses.long_ones = long_ones_;
  const std::int64_t first = second_of(now) - static_cast<std::int64_t>(kSeconds) + 1;
  for (const Second& second : seconds_) {
    if (second.number < first || second.longest <= pauses.longest) continue;
    pauses.longest = second.longest;
    pauses.longest_ran = second.ran;
  }
  return pauses;
}

void LoopWatch::start() {
  due_ = net::now() + kEvery;
  wait();
}

void LoopWatch::stop() { timer_.cancel(); }

LoopPauses LoopWatch::pauses() const { return book_.look(net::now()); }

void LoopWatch::wait() {
  timer_.set(due_, [this] {
    on_time(net::now());
    wait();
  });
}

void LoopWatch::on_time(Time now) {
  const Duration pause = std::max(now - due_, longest_scope_);
  const std::string_view ran = std::exchange(longest_ran_, {});
  // What was measured explains a pause when it took most of it.
  const bool explained = 2 * std::exchange(longest_scope_, {}) >= pause;
  book_.record(pause, explained ? ran : std::string_view(), now);
  if (pause >= kWarnAbove) warn(pause, explained ? ran : std::string_view(), now);
  due_ = now + kEvery;
}

void LoopWatch::warn(Duration pause, std::string_view ran, Time now) {
  if (now < quiet_until_) {
    ++unsaid_;
    return;
  }
  quiet_until_ = now + kBetweenWarnings;
  std::string text;
  if (!ran.empty()) text += ", most of it by " + std::string(ran);
  if (const std::uint64_t unsaid = std::exchange(unsaid_, 0); unsaid > 0)
    text += "; " + std::to_string(unsaid) + " more pauses were not logged";
  spdlog::warn("the event loop was held up for {:.0f} ms{}", to_ms(pause), text);
}

LoopWatch::Scope::~Scope() {
  const Duration took = net::now() - began_;
  if (took <= watch_.longest_scope_) return;
  watch_.longest_scope_ = took;
  watch_.longest_ran_ = what_;
}

}  // namespace gpulet::frontend
