// How many requests a batch can hold on average so that few of them are late by chance: the chain
// of ages (age_chain.h), solved in advance for model slots in general (docs/scheduling.md, "Random
// arrivals"). Constant; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpulet::schedule {

// A model slot in units of its cycle: the mean time from the start of a full batch to the start of
// the slot's next batch.
struct SlotShape {
  std::uint32_t batch = 1;   // largest batch
  double wait = 0;           // how long the oldest request of a full batch may wait, in cycles
  double half = 1;           // the cycle of a half-full batch, in cycles
  double deviation = 0;      // standard deviation of the cycle, in cycles
  double own_deviation = 0;  // of the slot's own full batch, which is part of the cycle
};

// The highest mean number of arrivals in a cycle with which at most kMostLateByChance of the
// requests are late: dropped, or served by a batch that takes too long. Never decreases with the
// batch or the wait, never increases with `half` or a deviation. 0 where the slot may wait less
// than kHeadroomWaits.front(). Linear between the points of the table; beyond its last points those
// apply.
[[nodiscard]] double requests_held(const SlotShape& slot);

// What a request's SLO loses besides its waiting and its batch: the dispatcher's allowance, and the
// message to the backend, which only a slot with others hides behind their batches.
inline constexpr double kOverheadInTurnMs = 0.8;
inline constexpr double kOverheadAloneMs = 0.6;
// The points of the table.
inline constexpr std::array<std::uint32_t, 12> kHeadroomBatches{1,  2,  3,  4,  6,  8,
                                                                12, 16, 24, 32, 48, 64};
inline constexpr std::array<double, 16> kHeadroomWaits{0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75,
                                                       2,   2.5, 3,   4, 5,   7,    10,  20};
inline constexpr std::array<double, 4> kHeadroomHalves{0.5, 0.7, 0.9, 1};
inline constexpr std::array<double, 4> kHeadroomDeviations{0, 0.1, 0.25, 0.45};  // both

// The mean as a fraction of the batch, in units of 1/kHeadroomUnit, by batch, wait, half, own
// deviation and deviation. Generated: bench_headroom_table.
inline constexpr double kHeadroomUnit = 10000;
using HeadroomOfDeviations =
    std::array<std::array<std::uint16_t, kHeadroomDeviations.size()>, kHeadroomDeviations.size()>;
using HeadroomValues = std::array<
    std::array<std::array<HeadroomOfDeviations, kHeadroomHalves.size()>, kHeadroomWaits.size()>,
    kHeadroomBatches.size()>;
extern const HeadroomValues kHeadroomValues;

// The entry of the table as the chain gives it, with that many cells.
[[nodiscard]] double solve_headroom(const SlotShape& slot, std::size_t cells);

}  // namespace gpulet::schedule
