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
  std::vector<double> cycle;
  std::vector<double> oldest;
  for (std::uint32_t n = 0; n <= slot.batch; ++n) {
    const double saved = 2 * (1 - slot.half) * (1 - n / size);
    cycle.push_back(1 - saved);
    if (n > 0) oldest.push_back(slot.wait + kOwnPart * saved);
  }
  double low = 0;
  double high = size;
  while (high - low > size / kHeadroomUnit) {
    const double middle = (low + high) / 2;
    const double late = late_fraction({middle, cycle, slot.deviation, oldest}, cells);
    (late <= kMostLateByChance ? low : high) = middle;
  }
  return low;
}

}  // namespace gpulet::schedule
