#include <algorithm>
#include <cmath>

#include "gpulet/schedule/check.h"
#include "schedule/check_parts.h"
#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

constexpr int kCycleHalvings = 50;
// The planner estimates the mean times of the other models' batches. Near saturation a cycle grows
// much more than the batches in it.
constexpr double kOthersTolerance = 1.02;

// One model of a gpulet with random arrivals, as its profile and the plan describe it. The planner
// computes the same means in another way (duty_cycle.h); both read the table of headroom_table.h,
// which tests hold against simulated queues.
class RandomSlot {
 public:
  RandomSlot(const MeasuredAssignment& measured, Share size, const std::optional<double>& margin)
      : assignment_(measured.assignment), margin_(margin_of(margin, measured.latency)) {
    for (std::uint32_t n = 1; n <= measured.max_batch; ++n) {
      const std::optional<double> alone_ms = measured.latency.latency_ms(n, size);
      if (!alone_ms) break;
      // The plan states the slowdown of its largest batch only; the others are not faster than
      // alone.
      const double run_ms = n == assignment_.batch ? *alone_ms * assignment_.slowdown : *alone_ms;
      run_ms_.push_back(run_ms_.empty() ? run_ms : std::max(run_ms, run_ms_.back()));
    }
    cv_ = measured.latency.cv(assignment_.batch, size).value_or(0);
  }

  // Of its planned batch, or of the slowest smaller one: times that fall as a batch grows are
  // noise.
  [[nodiscard]] double own_ms() const {
    const double planned_ms = assignment_.latency_ms / margin_;
    return run_ms_.size() < assignment_.batch
               ? planned_ms
               : std::max(planned_ms, run_ms_[assignment_.batch - 1]);
  }

  // The mean time of a batch of those that arrive in a cycle.
  [[nodiscard]] double busy_ms(double cycle_ms) const {
    const double arrivals = assignment_.rate * cycle_ms / 1000;
    double probability = std::exp(-arrivals);
    double rest = 1 - probability;
    double mean_ms = 0;
    for (std::size_t n = 1; n < run_ms_.size(); ++n) {
      probability *= arrivals / static_cast<double>(n);
      rest -= probability;
      mean_ms += probability * run_ms_[n - 1];
    }
    return mean_ms + std::max(rest, 0.0) * run_ms_.back();
  }

  // The mean number of requests in a cycle that the batch holds if cycles do not vary. The planner
  // estimates how much they do, which only lowers it.
  // `turn_ms`: from one batch of its processes to the next.
  [[nodiscard]] double held(double turn_ms, double cycle_ms, bool alone) const {
    const double own = own_ms();
    const double overhead_ms = alone ? kOverheadAloneMs : kOverheadInTurnMs;
    const double wait_ms = assignment_.slo_ms - assignment_.latency_ms - overhead_ms;
    const double middle = assignment_.batch / 2.0;
    const auto low = static_cast<std::size_t>(std::max(1.0, std::floor(middle)));
    const auto high = static_cast<std::size_t>(std::max(1.0, std::ceil(middle)));
    const double half_ms = (run_ms_[low - 1] + run_ms_[high - 1]) / 2;
    const double held = requests_held({.batch = assignment_.batch,
                                       .wait = wait_ms / turn_ms,
                                       .half = 1 - std::max(0.0, own - half_ms) / cycle_ms,
                                       .deviation = cv_ * own / cycle_ms,
                                       .own_deviation = cv_ * own / cycle_ms});
    if (alone || !(wait_ms > 0)) return held;
    // No cycle is longer than a request may wait.
    const double in_longest = requests_held({.batch = assignment_.batch,
                                             .wait = 1,
                                             .half = 1,
                                             .deviation = cv_,
                                             .own_deviation = cv_ * own / wait_ms});
    return std::max(held, in_longest * cycle_ms / wait_ms);
  }

 private:
  const Assignment& assignment_;
  double margin_;
  std::vector<double> run_ms_;  // [n - 1]: mean time of a batch of n
  double cv_ = 0;
};

// The mean time of the batches of all slots in a cycle: a table where the slots are many.
class AllSlots {
 public:
  explicit AllSlots(const std::vector<RandomSlot>& slots) : slots_(slots) {
    if (slots.size() <= kFew) return;
    double cycle_ms = kShortestMs;
    for (std::size_t at = 0; at < kPoints; ++at, cycle_ms *= kRatio)
      points_.emplace_back(cycle_ms, sum_ms(cycle_ms));
  }

  [[nodiscard]] double busy_ms(double cycle_ms) const {
    if (points_.empty() || cycle_ms <= points_.front().first) return sum_ms(cycle_ms);
    const auto above = std::find_if(points_.begin(), points_.end(), [cycle_ms](const auto& point) {
      return point.first >= cycle_ms;
    });
    if (above == points_.end()) return points_.back().second;
    const auto below = above - 1;
    return std::lerp(below->second, above->second,
                     (cycle_ms - below->first) / (above->first - below->first));
  }

 private:
  static constexpr std::size_t kFew = 16;
  static constexpr std::size_t kPoints = 160;
  static constexpr double kShortestMs = 0.01;
  static constexpr double kRatio = 1.1;  // the longest is 38,000 s

  [[nodiscard]] double sum_ms(double cycle_ms) const {
    double sum_ms = 0;
    for (const RandomSlot& slot : slots_) sum_ms += slot.busy_ms(cycle_ms);
    return sum_ms;
  }

  const std::vector<RandomSlot>& slots_;
  std::vector<std::pair<double, double>> points_;  // cycle and time; empty: few slots
};

// The mean cycle of the slot: the shortest that holds its own full batch and the others' batches.
double mean_cycle_ms(const AllSlots& all, const RandomSlot& slot, double own_ms,
                     double whole_round_ms) {
  double low = own_ms;
  double high = std::max(low, whole_round_ms);
  for (int step = 0; step < kCycleHalvings; ++step) {
    const double middle = (low + high) / 2;
    const double others_ms = (all.busy_ms(middle) - slot.busy_ms(middle)) / kOthersTolerance;
    (own_ms + others_ms > middle ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::vector<OverfullBatch> overfull_batches(const std::vector<MeasuredAssignment>& assignments,
                                            Share size, const std::optional<double>& margin,
                                            std::uint32_t turns) {
  std::vector<RandomSlot> slots;
  slots.reserve(assignments.size());
  for (const MeasuredAssignment& one : assignments) slots.emplace_back(one, size, margin);
  const AllSlots all(slots);
  // Between two batches of a slot, every other slot runs at most one of its planned size.
  double whole_round_ms = 0;
  for (const RandomSlot& slot : slots) whole_round_ms += slot.own_ms();

  const bool alone = slots.size() == 1;
  std::vector<OverfullBatch> overfull;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const Assignment& assignment = assignments[at].assignment;
    const double own_ms = alone ? assignment.latency_ms : slots[at].own_ms();
    const double cycle_ms = mean_cycle_ms(all, slots[at], own_ms, whole_round_ms);
    const double arrivals = assignment.rate * cycle_ms / 1000;
    const double held = slots[at].held(cycle_ms / turns, cycle_ms, alone);
    // NaN must count as overfull.
    if (!(arrivals <= held * kArrivalsTolerance))
      overfull.push_back({at, cycle_ms, arrivals, held});
  }
  return overfull;
}

}  // namespace gpulet::schedule
