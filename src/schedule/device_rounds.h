// The rounds of all gpulets of one device whose sizes and models are settled: which batches they
// run, beside each other, so that what is asked of them has a place. First the least batches that
// hold it; then, from there, each model's largest (batch_search.h).
//
// Beside the batches of its neighbours a gpulet's are slower, and slower ones have to be larger. So
// everyone begins with the smallest batch and takes what the others' batches ask for, until
// nobody's changes any more: batches only grow, and end at the rows' largest. No batches that hold
// the same rates are smaller. What a neighbour reckons with is the worst of all batches up to the
// one that is planned, rounded up to a measured one, so that a partial batch breaks no promise.
// Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/round.h"
#include "schedule/slowdown_tables.h"

namespace gpulet::schedule {

// A model of a gpulet, and what is asked of it.
struct PlacedTurn {
  std::uint32_t model = 0;  // index in Problem::models
  double wanted = 0;        // requests per second
};

struct PlacedGpulet {
  std::uint32_t device = 0;  // index in Problem::devices
  std::uint32_t device_class = 0;
  std::uint32_t size = 0;         // index in the class's sizes
  std::vector<PlacedTurn> turns;  // by model, none twice
};

class DeviceRounds {
 public:
  // A model's turn in its gpulet, as far as it is settled.
  struct Seat {
    std::uint32_t gpulet = 0;  // index in the gpulets given
    std::uint32_t batch = 0;
    double wanted = 0;
    Turn turn;  // its rate: 0 where the model has no turn
    ModelAtSize place;
    const Row* alone = nullptr;
    // Where gpulets slow each other down:
    std::span<const std::uint32_t> knots;
    std::size_t felt = 0;  // the knot up to which neighbours reckon with its batches
    Row beside;
    std::vector<double> latency_ms;  // of `beside`
    std::vector<double> slowdown;
  };

  // `gpulets` are all of one device, none without a turn; `problem` and `tables` outlive it.
  DeviceRounds(const Problem& problem, SlowdownTables& tables,
               std::span<const PlacedGpulet> gpulets);
  // Its seats' turns point into it.
  DeviceRounds(const DeviceRounds&) = delete;
  DeviceRounds& operator=(const DeviceRounds&) = delete;
  DeviceRounds(DeviceRounds&&) noexcept = default;
  DeviceRounds& operator=(DeviceRounds&&) noexcept = default;
  ~DeviceRounds() = default;

  // The least batches that hold what is wanted. Where they do not hold all, each model of a gpulet
  // in its turn gets the most that there is room for; whose SLO its neighbours leave no time, those
  // of the first gpulets first, has no turn.
  void settle();
  // Asks for another rate, from the next settle() on.
  void want(std::size_t seat, double rate) { seats_[seat].wanted = rate; }
  // Every batch in turn becomes the largest with which all rounds of the device hold, as long as
  // one grows, and at most kMostPasses times. REQUIRES: settled.
  void grow();
  static constexpr int kMostPasses = 4;

  // By gpulet, then model.
  [[nodiscard]] const std::vector<Seat>& seats() const { return seats_; }
  // The sum of the batches of a gpulet: its duty cycle.
  [[nodiscard]] double round_ms(std::size_t gpulet) const;

 private:
  void seat(const Problem& problem, std::uint32_t number, const PlacedGpulet& gpulet,
            const PlacedTurn& turn);
  void look_up_slowdowns(SlowdownTables& tables);
  [[nodiscard]] std::span<Seat> seats_of(std::size_t gpulet);
  [[nodiscard]] std::span<const Seat> seats_of(std::size_t gpulet) const;

  // The rows of a gpulet beside what the others are felt with.
  void refresh(std::size_t gpulet);
  void refresh(Seat& seat);
  void refresh_others(std::size_t gpulet);
  // Takes the least batches of a gpulet; whether a neighbour has to feel more of it.
  bool rise(std::size_t gpulet);
  [[nodiscard]] double hold_what_fits(std::size_t gpulet);
  [[nodiscard]] bool holds(std::size_t gpulet) const;

  bool grow(std::size_t seat);
  [[nodiscard]] std::uint32_t largest_within(const Seat& seat, std::uint32_t most) const;
  [[nodiscard]] bool others_bear(std::size_t seat, std::size_t knot);

  bool interferes_ = false;
  std::vector<Seat> seats_;
  std::vector<std::size_t> first_seat_;          // of every gpulet, and behind the last
  std::vector<const SlowdownTable*> slowdowns_;  // [own seat * seats + other seat]
  std::vector<Turn> turns_;                      // of the gpulet at hand
  std::vector<double> at_knots_;
};

}  // namespace gpulet::schedule
