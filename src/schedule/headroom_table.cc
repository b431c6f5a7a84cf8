#include "schedule/headroom_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpulet/schedule/policy.h"
#include "schedule/age_chain.h"

namespace gpulet::schedule {
namespace {

// The two points around a value and its position between them.
struct Between {
  std::size_t below = 0;
  std::size_t above = 0;
  double part = 0;
};

template <typename Points>
Between between(const Points& points, double value) {
  if (!(value > points.front())) return {};
  if (value >= points.back()) return {points.size() - 1, points.size() - 1, 0};
  std::size_t above = 1;
  while (points[above] < value) ++above;
  const double low = points[above - 1];
  return {above - 1, above, (value - low) / (points[above] - low)};
}

// Own batches take this part of the cycle. It decides how much longer a request may wait for a
// smaller batch, which changes the result by less than 3 %.
constexpr double kOwnPart = 0.5;

// A time that varies by chance is log-normal; this spread gives it its shape.
constexpr double kShapeCv = 0.2;

// The time of an own batch beyond its mean, in deviations: P(time > deviations).
double longer_than(double deviations) {
  const double time = 1 + kShapeCv * deviations;
  if (time <= 0) return 1;
  const double variance = std::log1p(kShapeCv * kShapeCv);
  return std::erfc((std::log(time) + variance / 2) / std::sqrt(2 * variance)) / 2;
}

// Seven points of it, in deviations: those of Gauss and Hermite for the normal distribution.
std::array<TimePoint, 7> points_of_time() {
  std::array<TimePoint, 7> points{{{-3.7504397177, 0.00054826885597},
                                   {-2.3667594107, 0.030757123968},
                                   {-1.1544053947, 0.24012317861},
                                   {0, 0.45714285714},
                                   {1.1544053947, 0.24012317861},
                                   {2.3667594107, 0.030757123968},
                                   {3.7504397177, 0.00054826885597}}};
  const double deviation = std::sqrt(std::log1p(kShapeCv * kShapeCv));
  for (TimePoint& point : points)
    point.time = std::expm1(deviation * point.time - deviation * deviation / 2) / kShapeCv;
  return points;
}

}  // namespace

double requests_held(const SlotShape& slot) {
  if (!(slot.wait >= kHeadroomWaits.front()) || slot.batch == 0) return 0;
  const Between batch = between(kHeadroomBatches, slot.batch);
  const Between wait = between(kHeadroomWaits, slot.wait);
  const Between half = between(kHeadroomHalves, slot.half);
  const Between deviation = between(kHeadroomDeviations, slot.deviation);
  const Between own = between(kHeadroomDeviations, slot.own_deviation);
  const auto at_half = [&](std::size_t b, std::size_t w, std::size_t h) {
    const HeadroomOfDeviations& values = kHeadroomValues[b][w][h];
    const auto at_own = [&](std::size_t o) {
      return std::lerp(values[o][deviation.below], values[o][deviation.above], deviation.part);
    };
    const double below = at_own(own.below);
    return own.part == 0 ? below : std::lerp(below, at_own(own.above), own.part);
  };
  const auto at_wait = [&](std::size_t b, std::size_t w) {
    const double below = at_half(b, w, half.below);
    return half.part == 0 ? below : std::lerp(below, at_half(b, w, half.above), half.part);
  };
  const auto at_batch = [&](std::size_t b) {
    const double below = at_wait(b, wait.below);
    const double part =
        wait.part == 0 ? below : std::lerp(below, at_wait(b, wait.above), wait.part);
    return part * kHeadroomBatches[b];
  };
  double held = at_batch(batch.below);
  if (batch.part > 0) held = std::lerp(held, at_batch(batch.above), batch.part);
  if (slot.batch > kHeadroomBatches.back()) held *= slot.batch / double{kHeadroomBatches.back()};
  return held / kHeadroomUnit;
}

double solve_headroom(const SlotShape& slot, std::size_t cells) {
  const auto size = static_cast<double>(slot.batch);
  const auto saved_by = [&](std::size_t n) {
    return 2 * (1 - slot.half) * (1 - static_cast<double>(n) / size);
  };
  std::vector<double> oldest;
  for (std::uint32_t n = 1; n <= slot.batch; ++n)
    oldest.push_back(slot.wait + kOwnPart * saved_by(n));
  // Three values with the mean and the deviation of what the others add, and the own time.
  const double own = std::min(slot.own_deviation, slot.deviation);
  const double spread = std::sqrt(3 * (slot.deviation * slot.deviation - own * own));
  std::vector<TimePoint> noise{{-spread, 1.0 / 6}, {0, 2.0 / 3}, {spread, 1.0 / 6}};
  if (own > 0) {
    std::vector<TimePoint> both;
    for (const TimePoint& others : noise) {
      for (const TimePoint& time : points_of_time())
        both.push_back({others.time + own * time.time, others.probability * time.probability});
    }
    noise = std::move(both);
  }
  SlotQueue queue;
  queue.oldest = oldest;
  for (const TimePoint& one : noise)
    queue.longest_cycle = std::max(queue.longest_cycle, 1 + one.time);
  queue.cycle = [&](std::size_t n, double, double, std::vector<TimePoint>& times) {
    const double mean = 1 - saved_by(n);
    for (const TimePoint& one : noise)
      times.push_back({std::max(0.0, mean + one.time), one.probability});
  };
  if (slot.own_deviation > 0) {
    queue.late_in_batch = [&](std::size_t n, double age) {
      const double deviation = slot.own_deviation * (1 - saved_by(n));
      const auto late = [&](double of_age) {
        const double left = oldest[n - 1] - of_age;
        if (deviation > 0) return longer_than(left / deviation);
        return left < 0 ? 1.0 : 0.0;
      };
      // The other requests came after the oldest one, as far apart as they do on average.
      constexpr int kParts = 4;
      const double youngest = std::max(0.0, age - static_cast<double>(n) / queue.rate);
      double sum = late(age);
      for (int part = 0; n > 1 && part < kParts; ++part) {
        const double of_age = std::lerp(youngest, age, (part + 0.5) / kParts);
        sum += static_cast<double>(n - 1) / kParts * late(of_age);
      }
      return sum;
    };
  }
  // A random part of an empty turn.
  constexpr std::size_t kTurns = 4;
  std::array<TimePoint, kTurns> idle;
  for (std::size_t part = 0; part < kTurns; ++part) {
    idle.at(part) = {(1 - saved_by(0)) * (static_cast<double>(part) + 0.5) / kTurns, 1.0 / kTurns};
  }
  queue.idle = idle;
  double low = 0;
  double high = size;
  while (high - low > size / kHeadroomUnit) {
    queue.rate = (low + high) / 2;
    (solve_queue(queue, cells).late <= kMostLateByChance ? low : high) = queue.rate;
  }
  return low;
}

}  // namespace gpulet::schedule
