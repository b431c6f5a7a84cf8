// Tests whether a gpulet still has a round after one change: a new slot, or a higher rate of a
// slot. A test starts from the results of earlier ones: the least batch of each slot, because a
// higher rate hardly ever needs a smaller batch, and the slot that failed last, which it tests
// first. So most tests look at few slots. If a test succeeds, shortest_round() finds a round, whose
// batches are no larger than those of the test. Random arrivals only (duty_cycle.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/duty_cycle.h"
#include "schedule/random_cycle.h"

namespace gpulet::schedule {

// The results of the tests of one gpulet, kept from one change to the next. A value; one thread at
// a time.
class KnownRound {
 public:
  // REQUIRES: random arrivals, and a batch in every curve.
  explicit KnownRound(std::span<const BatchSlot> slots);

  // Whether keeping results saves time for a gpulet that is tested for the `tests`-th time.
  [[nodiscard]] static bool pays(std::span<const BatchSlot> slots, std::uint32_t tests) {
    constexpr std::uint32_t kManyTests = 2;
    return !slots.empty() && slots.front().curve->random_arrivals &&
           (slots.size() > SlotSums::kFew || tests > kManyTests);
  }

  // The slot at index `at` was added. REQUIRES: `slots` are otherwise those of the last call.
  void added(std::span<const BatchSlot> slots, std::size_t at);
  // The rate of the slot at index `at` rose from `rate_before`. REQUIRES: as for added().
  void raised(std::span<const BatchSlot> slots, std::size_t at, double rate_before);

 private:
  friend class RoundProbe;

  // Room for further slots: a round exists even with these sums, which exceed the gpulet's own, and
  // with the batches that they need. As long as the gpulet's sums stay below them, a test looks at
  // the changed slot only.
  struct Room {
    SlotSums sums;
    double busy_ms = 0;     // the sum of the batches
    double longest_ms = 0;  // the longest round within all SLOs
  };

  // The result of the last successful test, which is adopted if its slot is added next.
  struct Tried {
    BatchSlot slot;
    std::vector<std::uint32_t> least;  // empty: the room sufficed
    double busy_ms = 0;                // as Room::busy_ms, with the slot
    double longest_ms = 0;             // as Room::longest_ms, with the slot
  };

  void adopt(std::span<const BatchSlot> slots, std::size_t at);
  void make_room(std::span<const BatchSlot> slots);

  std::optional<SlotSums> sums_;      // empty: few slots
  std::vector<std::uint32_t> least_;  // by slot: the least batch at its rate or a lower one
  std::size_t critical_ = 0;          // the slot that failed last
  std::optional<Room> room_;
  std::size_t next_room_ = 0;  // the number of slots from which on room is made again
  std::optional<Tried> tried_;
};

// The longest round that leaves time for such a batch within the slot's SLO.
[[nodiscard]] double longest_round_ms(std::span<const BatchSlot> slots, std::size_t at,
                                      std::uint32_t batch);

// The least batch of each slot beside further slots that take no time; at most max_batch. Slots
// that join hardly ever make it smaller. REQUIRES: random arrivals, and a batch in every curve.
[[nodiscard]] std::vector<std::uint32_t> least_batches_in_turn(std::span<const BatchSlot> slots);

// Tests rates of one slot. One thread.
class RoundProbe {
 public:
  // Tests the slot at index `at`. `rate_before`: the rate that it has in `known`; empty: it is not
  // one of the slots in `known`. `known` null: no earlier results. `slots` and `known` outlive the
  // object. REQUIRES: random arrivals.
  RoundProbe(std::span<BatchSlot> slots, std::size_t at, KnownRound* known = nullptr,
             std::optional<double> rate_before = std::nullopt);

  // Sets the slot's rate, and returns whether there is a round with it. REQUIRES: `rate` is not
  // below `rate_before`, nor below a rate for which this returned true.
  [[nodiscard]] bool holds(double rate);

 private:
  // The index in `known` of the slot at index `at`.
  [[nodiscard]] std::size_t known_index(std::size_t at) const {
    return rate_before_ || at < at_ ? at : at - 1;
  }
  // Whether the room in `known` suffices. Then that is the result of the test.
  [[nodiscard]] bool has_room(const SlotSums& sums);
  // The largest batch of the slot with which a round may exist; the current one if none is larger.
  [[nodiscard]] std::uint32_t most_batch(std::size_t at) const;
  // Finds the least batch of the slot, and raises the current one to it. Returns whether a round
  // may still exist.
  [[nodiscard]] bool settle(const SlotsInTurn& gpulet, std::size_t at);

  std::span<BatchSlot> slots_;
  std::size_t at_;
  KnownRound* known_;
  std::optional<double> rate_before_;
  bool servable_ = true;
  std::vector<std::uint32_t> least_;  // the batches for the highest rate that held, or smaller ones
  std::size_t critical_;              // as in KnownRound
  // Of the current test:
  std::vector<std::uint32_t> batches_;
  double busy_ms_ = 0;     // the sum of these batches
  double longest_ms_ = 0;  // the longest round that these batches leave within all SLOs
};

// The highest rate up to `most` that the probe holds, to within `most` / 4096. 0 where `most` is
// not above `least`, or the probe does not hold the larger of `least` and `most` / 4096.
[[nodiscard]] double highest_rate(RoundProbe& probe, double least, double most);

}  // namespace gpulet::schedule
