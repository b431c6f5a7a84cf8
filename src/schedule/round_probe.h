// Tests of one change to a gpulet: a new slot, or more of one. A test remembers what earlier ones
// found: the least batch of each slot, from which it goes on because a higher rate hardly ever
// needs a smaller one, and the slot that failed last. So most tests look at few slots. What a test
// allows has a round (shortest_round), whose batches are no larger than those that the test found.
// Random arrivals only (duty_cycle.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/duty_cycle.h"
#include "schedule/random_cycle.h"

namespace gpulet::schedule {

// What is known of a gpulet from one change to the next. A value; one thread at a time.
class KnownRound {
 public:
  // REQUIRES: random arrivals, and a batch in every curve.
  explicit KnownRound(std::span<const BatchSlot> slots);

  // Whether it pays for a gpulet that is tested for the n-th time.
  [[nodiscard]] static bool pays(std::span<const BatchSlot> slots, std::uint32_t tests) {
    constexpr std::uint32_t kManyTests = 2;
    return !slots.empty() && slots.front().curve->random_arrivals &&
           (slots.size() > SlotSums::kFew || tests > kManyTests);
  }

  // The slot at that index was added. REQUIRES: `slots` are otherwise the known ones.
  void added(std::span<const BatchSlot> slots, std::size_t at);
  // The rate of the slot at that index rose from `rate_before`.
  void raised(std::span<const BatchSlot> slots, std::size_t at, double rate_before);

 private:
  friend class RoundProbe;

  // Room for further slots: the gpulet's round holds even with these sums, which exceed its own,
  // and with the batches that they need. So as long as the sums do not exceed them, only a new slot
  // is looked at.
  struct Room {
    SlotSums sums;
    double busy_ms = 0;
    double longest_ms = 0;
  };

  // What the last successful test found, for the case that its slot is added.
  struct Tried {
    BatchSlot slot;
    std::vector<std::uint32_t> least;  // empty: the room sufficed
    double busy_ms = 0;                // of the room with it
    double longest_ms = 0;
  };

  void adopt(std::span<const BatchSlot> slots, std::size_t at);
  void make_room(std::span<const BatchSlot> slots);

  std::optional<SlotSums> sums_;      // where the slots are many
  std::vector<std::uint32_t> least_;  // of each slot, the least batch at a lower rate
  std::size_t critical_ = 0;          // the slot that failed last
  std::optional<Room> room_;
  std::size_t next_room_ = 0;  // with so many slots, room is made
  std::optional<Tried> tried_;
};

// The longest round within the slot's SLO beside a batch of it.
[[nodiscard]] double longest_round_ms(std::span<const BatchSlot> slots, std::size_t at,
                                      std::uint32_t batch);

// The least batch of each slot if other slots joined that take no time; at most max_batch. Any that
// do join hardly ever make it smaller. REQUIRES: random arrivals, and a batch in every curve.
[[nodiscard]] std::vector<std::uint32_t> least_batches_in_turn(std::span<const BatchSlot> slots);

class RoundProbe {
 public:
  // Tests rates of the slot at index `at`. `known` is of the slots without that one or, where it
  // has been there before, with it at `rate_before`; null: nothing is known. All outlive the
  // object. REQUIRES: random arrivals.
  RoundProbe(std::span<BatchSlot> slots, std::size_t at, KnownRound* known = nullptr,
             std::optional<double> rate_before = std::nullopt);

  // Whether there is a round with that rate. Sets the slot's rate. REQUIRES: not below the rates
  // that held, nor below rate_before.
  [[nodiscard]] bool holds(double rate);

 private:
  // The index of a slot in the known ones.
  [[nodiscard]] std::size_t known_index(std::size_t at) const {
    return rate_before_ || at < at_ ? at : at - 1;
  }
  // Whether the known room suffices.
  [[nodiscard]] bool has_room(const SlotSums& sums);
  // The largest batch of the slot with which a round may hold, or the known one.
  [[nodiscard]] std::uint32_t most_batch(std::size_t at) const;
  // Finds the least batch of the slot and adds what it exceeds the known one by. Returns whether
  // the round may still hold.
  [[nodiscard]] bool settle(const SlotsInTurn& gpulet, std::size_t at);

  std::span<BatchSlot> slots_;
  std::size_t at_;
  KnownRound* known_;
  std::optional<double> rate_before_;
  bool servable_ = true;
  std::vector<std::uint32_t> least_;  // of the highest rate that held, or lower
  std::size_t critical_;
  // Of the current test:
  std::vector<std::uint32_t> batches_;
  double busy_ms_ = 0;     // of those batches, and the least ones of the others
  double longest_ms_ = 0;  // the longest round within all SLOs with those
};

// The highest rate up to `most` that the probe holds, to some 1/4,000 of `most`; 0 where it holds
// none above `least`.
[[nodiscard]] double highest_rate(RoundProbe& probe, double least, double most);

}  // namespace gpulet::schedule
