#include "serve/adapt/reactions.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpulet/serve/values/problems.h"

namespace gpulet::serve {
namespace {

constexpr Duration kWindow = std::chrono::seconds(10);
constexpr std::size_t kLeastBlocking = 3;  // batches; fewer are outliers
constexpr Duration kFirstHold = std::chrono::minutes(5);
constexpr Duration kLongestHold = std::chrono::hours(1);

constexpr std::array<double, 4> kFactors = {1, 1.25, 1.5, 2};
constexpr Duration kBetweenSteps = std::chrono::seconds(10);
constexpr Duration kFirstCalm = std::chrono::minutes(1);
constexpr Duration kLongestCalm = std::chrono::minutes(10);
constexpr Duration kFutile = std::chrono::seconds(30);  // at the highest step
// A few seconds with some bad luck must not count: this many violations and ticks with some.
constexpr std::uint64_t kLeastViolations = 10;
constexpr double kMostViolated = 3 * kViolationTarget;

std::string milliseconds(Duration duration) {
  const double ms = to_ms(duration);
  return ms < 10 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms);
}

}  // namespace

// ---- disturbances

void Disturbances::blocked(const std::string& model, Duration executed, Duration predicted,
                           Duration blocked, Time now) {
  Model& known = models_[model];
  known.last = now;
  if (known.recent.empty() || executed > known.worst) {
    known.worst = executed;
    known.predicted = predicted;
  }
  known.recent.push_back({now, blocked});
}

Disturbances::Changes Disturbances::tick(Time now) {
  Changes changes;
  for (auto one = models_.begin(); one != models_.end();) {
    Model& model = one->second;
    while (!model.recent.empty() && model.recent.front().time < now - kWindow)
      model.recent.pop_front();
    Duration blocked{};
    for (const Batch& batch : model.recent) blocked += batch.blocked;
    const bool harmful = model.recent.size() >= kLeastBlocking &&
                         to_seconds(blocked) > kViolationTarget * to_seconds(kWindow);
    if (!model.disturbs && harmful) {
      model.disturbs = true;
      model.hold = std::clamp(2 * model.hold, kFirstHold, kLongestHold);
      changes.begin.push_back(one->first);
    } else if (model.disturbs && now - model.last >= model.hold) {
      model.disturbs = false;
      changes.end.push_back(one->first);
    }
    // A relapse is remembered for as long as the model was kept apart.
    const bool over = !model.disturbs && model.recent.empty() && now - model.last >= 2 * model.hold;
    one = over ? models_.erase(one) : std::next(one);
  }
  return changes;
}

bool Disturbances::disturbs(std::string_view model) const {
  const auto found = models_.find(model);
  return found != models_.end() && found->second.disturbs;
}

std::string Disturbances::why(std::string_view model) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.disturbs) return {};
  return fmt::format("some of its batches take {} instead of {}", milliseconds(found->second.worst),
                     milliseconds(found->second.predicted));
}

// ---- extra headroom

bool ExtraHeadroom::violates() const {
  Tick sum;
  std::size_t bad = 0;
  for (const Tick& one : ticks_) {
    sum.answered += one.answered;
    sum.violations += one.violations;
    bad += one.violations > 0 ? 1 : 0;
  }
  return count_ >= kTicks && 2 * bad > kTicks && sum.violations >= kLeastViolations &&
         static_cast<double>(sum.violations) > kMostViolated * static_cast<double>(sum.answered);
}

bool ExtraHeadroom::tick(const ModelCounters& counters, const std::function<bool()>& may_rise,
                         Time now) {
  // Errors are not due to a lack of capacity.
  const std::uint64_t violations = counters.late + counters.dropped;
  const std::uint64_t answered = counters.served + counters.dropped;
  ticks_[count_++ % kTicks] = {answered - std::min(answered, answered_),
                               violations - std::min(violations, violations_)};
  answered_ = answered;
  violations_ = violations;
  const bool violated = violates();
  if (violated) violated_ = now;
  if (violated && now >= not_before_ && now - changed_ >= kBetweenSteps && may_rise()) {
    if (steps_ + 1 < kFactors.size()) {
      // The evidence begins anew under the next plan.
      count_ = 0;
      ++steps_;
      changed_ = now;
      hold_ = std::clamp(2 * hold_, kFirstCalm, kLongestCalm);
      return true;
    }
    if (now - changed_ < kFutile) return false;
    steps_ = 0;
    changed_ = now;
    not_before_ = now + kLongestCalm;
    return false;
  }
  if (steps_ > 0 && now - std::max(changed_, violated_) >= hold_) {
    --steps_;
    changed_ = now;
  }
  return false;
}

double ExtraHeadroom::factor() const { return kFactors[steps_]; }

}  // namespace gpulet::serve
