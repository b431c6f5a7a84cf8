// The cycles of a gpulet's slots under random arrivals (docs/scheduling.md, "Random arrivals"): the
// mean time that batches take, what the slots of a gpulet are to each other, and the least batch
// that holds a slot's rate. Where a gpulet has many slots, sums over them are tabulated. Used by
// duty_cycle.cc and round_probe.h. Pure; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "schedule/duty_cycle.h"

namespace gpulet::schedule {

// The mean time of a batch, without the margin.
[[nodiscard]] inline double mean_ms(const LatencyCurve& curve, std::uint32_t batch) {
  return curve.latency_ms[batch - 1] / curve.margin;
}

[[nodiscard]] inline double rate_per_ms(const BatchSlot& slot) {
  return slot.rate / slot.curve->processes / 1000;
}

// The mean time of a slot's batches in cycles that bring a number of requests on average. A cycle
// without arrivals has no batch.
struct Busy {
  double ms = 0;
  double per_arrival = 0;  // its derivative
};
[[nodiscard]] Busy busy_of(const LatencyCurve& curve, double arrivals);

// What the batches of another slot make of a cycle, beyond their mean time. The cycle, with each of
// these, increases with the arrivals, so that a lower rate hardly ever needs a larger batch.
struct Spread {
  double variance = 0;             // of the cycle
  double variance_with_batch = 0;  // of the cycles that have a batch
  double pause_ms = 0;             // how much a cycle with a batch is longer than the mean one
  double with_batch = 0;           // the part of the cycles that have one
};

// The sums over the slots of a gpulet as functions of a cycle: linear between the points of a table
// that covers all cycles within the SLOs.
class SlotSums {
 public:
  // A gpulet with more slots needs the table; with fewer, asking each slot takes less time.
  static constexpr std::size_t kFew = 12;

  SlotSums() = default;
  explicit SlotSums(std::span<const BatchSlot> slots);

  [[nodiscard]] bool covers(const BatchSlot& slot) const;
  // REQUIRES: covers(slot). Sums that were changed carry rounding; they are never too low by it.
  void add(const BatchSlot& slot);
  // `slot` is the one of that curve at another rate. The pause becomes the longer of both, and the
  // part with a batch the larger.
  void change(const BatchSlot& slot, double rate_before);

  // Every sum times the factor.
  [[nodiscard]] SlotSums times(double factor) const;
  // Whether no sum is above that of the other ones, which cover the same cycles.
  [[nodiscard]] bool at_most(const SlotSums& others) const;

  struct At {
    double busy_ms = 0;
    double per_ms = 0;  // its derivative by the cycle
    Spread spread;      // the longest pause and the largest part of the nearest points
  };
  [[nodiscard]] At at(double cycle_ms) const {
    const std::size_t below = std::clamp(key_of(cycle_ms), first_, last_) - first_;
    const double low_ms = cycle_of(first_ + below);
    const double high_ms = cycle_of(first_ + below + 1);
    const double part = std::clamp((cycle_ms - low_ms) / (high_ms - low_ms), 0.0, 1.0);
    const Point& low = points_[below];
    const Point& high = points_[below + 1];
    return {std::lerp(low.busy_ms, high.busy_ms, part) * rounding_,
            (high.busy_ms - low.busy_ms) / (high_ms - low_ms),
            {std::max(0.0, std::lerp(low.spread.variance, high.spread.variance, part)),
             std::max(0.0, std::lerp(low.spread.variance_with_batch,
                                     high.spread.variance_with_batch, part)),
             std::max(low.spread.pause_ms, high.spread.pause_ms),
             std::max(low.spread.with_batch, high.spread.with_batch)}};
  }

 private:
  struct Point {
    double busy_ms = 0;
    Spread spread;
  };

  // The points are at 16 equal steps in each octave: the first bits of a positive number.
  static constexpr int kShift = 48;
  static std::size_t key_of(double cycle_ms) {
    return static_cast<std::size_t>(std::bit_cast<std::uint64_t>(cycle_ms) >> kShift);
  }
  static double cycle_of(std::size_t key) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(key) << kShift);
  }
  void add(const BatchSlot& slot, double rate, double sign);

  std::size_t first_ = 0;  // key of the first point
  std::size_t last_ = 0;   // of the last but one
  double rounding_ = 1;
  std::vector<Point> points_;
};

// The slots of a gpulet as one of them sees the others.
class SlotsInTurn {
 public:
  // Both outlive the object. `sums` are those of the slots; without, they are computed where the
  // slots are many. `background` is the part of every cycle that still other slots take.
  explicit SlotsInTurn(std::span<const BatchSlot> slots, const SlotSums* sums = nullptr,
                       double background = 0)
      : slots_(slots), sums_(sums), background_(background) {
    if (sums_ == nullptr && slots.size() > SlotSums::kFew) sums_ = &own_sums_.emplace(slots);
  }
  SlotsInTurn(const SlotsInTurn&) = delete;
  SlotsInTurn& operator=(const SlotsInTurn&) = delete;

  [[nodiscard]] std::span<const BatchSlot> slots() const { return slots_; }
  [[nodiscard]] bool is_alone() const { return slots_.size() == 1 && background_ == 0; }

  // The mean time of the other slots' batches in a cycle, and its derivative by the cycle.
  [[nodiscard]] Busy others(std::size_t at, double cycle_ms) const;
  // The sums of the others' variances, the longest pause by one of them, and the largest part.
  [[nodiscard]] Spread spread_of_others(std::size_t at, double cycle_ms) const;

 private:
  std::span<const BatchSlot> slots_;
  const SlotSums* sums_;  // null: few slots
  double background_;
  std::optional<SlotSums> own_sums_;
};

// What a batch of the slot adds to its cycle: its mean time or, where it gathers requests until the
// next duty cycle (batching::decide), the planned one.
[[nodiscard]] double own_ms_of(const SlotsInTurn& gpulet, std::size_t at, std::uint32_t batch);

// The least cycle that holds its own batch and what it brings the others; above `longest_ms` where
// the least one is. Where the others take nearly all of the time, it may miss some of that.
[[nodiscard]] double cycle_ms_of(const SlotsInTurn& gpulet, std::size_t at, double own_ms,
                                 double longest_ms);

// The mean number of requests in a cycle that a batch of the slot holds.
[[nodiscard]] double held_in_cycle(const SlotsInTurn& gpulet, std::size_t at, std::uint32_t batch,
                                   double cycle_ms);

// The smallest batch, from `least` up to `most` and max_batch, that holds the slot's rate and its
// deviations; above both where none does.
inline constexpr std::uint32_t kAnyBatch = std::numeric_limits<std::uint32_t>::max();
[[nodiscard]] std::uint32_t least_batch(const SlotsInTurn& gpulet, std::size_t at,
                                        double deviations, std::uint32_t least = 1,
                                        std::uint32_t most = kAnyBatch);

}  // namespace gpulet::schedule
