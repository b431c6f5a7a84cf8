// What one gpulet could hold of the rates that are left: the best choices of models and rates for
// it, by what they save elsewhere. One thread at a time.
//
// A rate that several gpulets share can be moved between them until all of them but one are full.
// So only such choices are looked at that take all that is left of some models and, of at most one
// more, as much as has room beside those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/cover/filled_device.h"
#include "schedule/cover/relaxation.h"
#include "schedule/problem.h"
#include "schedule/round.h"

namespace gpulet::schedule {

// What is left to serve, and what that costs at least (Relaxation::cost); both beside the problem's
// models.
struct Rest {
  std::vector<double> rates;
  std::vector<double> costs;
};

struct GpuletChoice {
  std::vector<Portion> portions;
  double value = 0;  // devices' worth of work that it takes off the rest
};

// Where the gpulet would be.
struct GpuletPlace {
  std::uint32_t device_class = 0;
  std::uint32_t size = 0;
  double free_mb = 0;                     // memory for its models; infinite where not limited
  std::span<const Neighbour> neighbours;  // that the device has already
};

class GpuletChooser {
 public:
  // Both outlive it.
  GpuletChooser(Problem& problem, const Relaxation& relaxation);

  // At most `count`, the most valuable first.
  [[nodiscard]] const std::vector<GpuletChoice>& best(const GpuletPlace& place, const Rest& rest,
                                                      std::size_t count);

  // The measure of work since the problem was made: turns in rounds that were tried, and rows
  // beside neighbours that were looked at, by whoever works on the problem.
  [[nodiscard]] std::uint64_t work() const { return work_ + problem_->rows_asked(); }

 private:
  // A model that the gpulet could take.
  struct Item {
    std::uint32_t model = 0;
    const Row* row = nullptr;
    double slo_ms = 0;
    double rate = 0;   // all that is left of it
    double cost = 0;   // of that
    double share = 0;  // of the gpulet's time that all of it takes at least
    double memory_mb = 0;
  };
  // The turns of a choice in the making: all of each of some items.
  struct Taken {
    double value = 0;
    double share = 0;
    double free_mb = 0;
  };

  void list_items(const GpuletPlace& place, const Rest& rest);
  void search_all(std::size_t first, const Taken& taken);
  void search_cycles(double free_mb);
  void fill_for(double duty_cycle_ms, double free_mb);
  void note_saturating(double free_mb);
  bool take(const Item& item, Taken* taken);
  // With as much of the item as has room beside the turns.
  void note_with_part(const Item& item, const Taken& taken);
  void note(double value, const Portion* part);
  [[nodiscard]] bool has_turn(std::uint32_t model) const;

  Problem* problem_;
  const Relaxation* relaxation_;
  std::uint64_t work_ = 0;  // turns
  // Of the question at hand.
  std::vector<Item> items_;  // those first whose work a share of the gpulet saves most of
  std::vector<Turn> turns_;
  std::vector<GpuletChoice> best_;
  std::vector<std::pair<double, std::uint32_t>> order_;
  std::size_t count_ = 0;
  std::uint64_t last_work_ = 0;  // where the search gives up
};

}  // namespace gpulet::schedule
