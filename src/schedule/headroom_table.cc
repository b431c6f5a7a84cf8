#include "schedule/headroom_table.h"

#include <algorithm>
#include <cmath>
#include <span>
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

}  // namespace

double requests_held(const SlotShape& slot) {
  if (!(slot.wait >= kHeadroomWaits.front()) || slot.batch == 0) return 0;
  const Between batch = between(kHeadroomBatches, slot.batch);
  const Between wait = between(kHeadroomWaits, slot.wait);
  const Between half = between(kHeadroomHalves, slot.half);
  const Between deviation = between(kHeadroomDeviations, slot.deviation);
  const auto at_half = [&](std::size_t b, std::size_t w, std::size_t h) {
    const auto& values = kHeadroomValues[b][w][h];
    return std::lerp(values[deviation.below], values[deviation.above], deviation.part);
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
  // Three values with the cycle's mean and deviation.
  const double spread = std::sqrt(3) * slot.deviation;
  SlotQueue queue;
  queue.oldest = oldest;
  queue.longest_cycle = 1 + spread;
  queue.cycle = [&](std::size_t n, double, double, std::vector<TimePoint>& times) {
    const double mean = 1 - saved_by(n);
    times.push_back({std::max(0.0, mean - spread), 1.0 / 6});
    times.push_back({mean, 2.0 / 3});
    times.push_back({mean + spread, 1.0 / 6});
  };
  // A random part of an empty turn.
  constexpr std::size_t kParts = 4;
  std::array<TimePoint, kParts> idle;
  for (std::size_t part = 0; part < kParts; ++part) {
    idle.at(part) = {(1 - saved_by(0)) * (static_cast<double>(part) + 0.5) / kParts, 1.0 / kParts};
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
