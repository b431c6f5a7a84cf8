// The relaxation behind `cover`: gpulet time may be divided in any fractions, and devices in any
// mixture. docs/cover.md has the mathematics. Deterministic; one thread at a time.
//
// Why it gives a bound. Let a gpulet run rounds of d ms, in which a model has batches of b. The
// model has the fraction t = L(b) / d of the gpulet's time, and all fractions add up to at most 1.
// With a total demand of r its rate x there obeys
//     x * d / 1000 <= b, x <= r, and d <= SLO - L(b)
// so x = t * x * d / L(b) is at most t times the smaller of 1000 * b / L(b) and
// r * (SLO - L(b)) / L(b). Thus x <= t * R(r), where R(r) is the highest such minimum over b:
// `max_rate`.
//
// With random arrivals, T is the longest cycle of the gpulet's slots, itself no longer than the
// round, and t the part of it that the model's batches take on average (mean_busy_ms). These parts
// add up to at most 1 as well: the slot with that cycle counts a full batch of its own. The cycle
// brings m = x * T / 1000 requests, at most what a batch of b holds and what arrives in
// SLO - L(b). So x / t = 1000 * m / mean_busy_ms(m) is at most R(r), its highest value over all m
// that some b allows.
//
// A model that has a gpulet to itself, with a number of processes that suits it, has t = 1 there.
// So R is the highest over those numbers as well. With k processes in turns, each serves x / k, and
// d <= k * (SLO - L(b)).
//
// A gpulet with k neighbours is at least as slow as k times the least excess over 1 that any batch
// of any model causes in any size that fits beside it (least_slowdowns.h). So each size has as many
// kinds of gpulets, here called lots, as it can have neighbours, each with its own R.
//
// Give each lot a price p, in devices, such that the lots that any one device may be divided into
// cost at most w together. Then serving x of the model costs at least x * min over lots of p /
// R(r), a device sells for at most w, and serving everything takes at least
//     (sum over models of r * min over lots of p / R(r)) / w
// devices. This holds for any prices, so it does not depend on how exactly the linear program was
// solved, which only has to find good ones. Memory is neglected: it only reduces what a device can
// serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/cover/highest_rate.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// A linear program that grows by columns: minimize cost * x subject to rows of the form
// sum >= bound, x >= 0. Hides the solver (CLP).
class LinearProgram {
 public:
  struct Entry {
    std::size_t row = 0;
    double factor = 0;
  };

  // One row for each bound.
  explicit LinearProgram(std::span<const double> at_least);
  ~LinearProgram();
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  // REQUIRES: cost >= 0.
  void add_column(double cost, std::span<const Entry> entries);

  // Starts from the previous solution, if any. Returns false where it finds none: the rows cannot
  // be met, or CLP gave up.
  bool solve();

  // Of the last successful solve: the cost of one more unit of each row's bound.
  [[nodiscard]] const std::vector<double>& prices() const { return prices_; }
  // Of the last successful solve: x, in the order in which the columns were added.
  [[nodiscard]] std::vector<double> parts() const;

 private:
  struct Solver;
  std::unique_ptr<Solver> solver_;
  std::vector<double> prices_;
};

class Relaxation {
 public:
  // `context` outlives the object. Prices are proportional to sizes at first.
  explicit Relaxation(const PlanContext& context);

  // R: the most that the whole time of a gpulet without neighbours could serve of a model with a
  // total demand of `rate`; 0 where it serves none.
  [[nodiscard]] double max_rate(std::size_t model, std::size_t device_class, std::size_t size,
                                double rate) const {
    return rates_[model * lots_.size() + first_lot_[device_class] + size].of(rate);
  }

  // Sets the prices that make the bound for these rates (parallel to the context's models) as high
  // as the linear program can.
  void price(std::span<const double> rates);

  // The least number of devices, at the prices, that serves this rate of the model; 0 for models
  // that no size serves.
  [[nodiscard]] double cost(std::size_t model, double rate) const;

  // The price of a gpulet: with neighbours where it can have some.
  [[nodiscard]] double price_of(std::size_t device_class, std::size_t size) const {
    return prices_of_sizes_[first_size_[device_class] + size];
  }
  // The highest price of up to `partitions` gpulets that fit into `percent` of a device.
  [[nodiscard]] double price_of_share(std::size_t device_class, std::uint32_t partitions,
                                      int percent) const;
  // Under MIG: the highest price of the rest that the layouts leave next to the taken number of
  // each size.
  [[nodiscard]] double price_beside(std::size_t device_class,
                                    std::span<const std::uint32_t> taken) const {
    return dearest_division(device_class, taken).price;
  }
  // The price of a device of the class above 1, because the class has too few devices.
  [[nodiscard]] double scarcity(std::size_t device_class) const { return scarcity_[device_class]; }

  // The least number of the cluster's devices, at the prices, that serves the rates. If the cluster
  // has fewer, no plan serves them all.
  [[nodiscard]] double bound(std::span<const double> rates) const;
  // The same if each type had unlimited devices.
  [[nodiscard]] double bound_without_limits(std::span<const double> rates) const;

 private:
  // A kind of gpulet: a size, and the number of its neighbours or, in the last kind of each size,
  // any greater one. Where gpulets do not slow each other down each size has one lot, for any
  // number. The lots of a class are ordered by neighbours, then by size; those without come first.
  struct Lot {
    std::uint32_t device_class = 0;
    std::uint32_t size = 0;
    std::uint32_t neighbours = 0;
  };

  // The highest price of up to a number of gpulets in up to a percentage of a device.
  struct SharePrices {
    std::uint32_t partitions = 0;
    std::vector<double> price;        // [partitions * 101 + percent]
    std::vector<std::uint32_t> last;  // the last size of the most expensive division, or kNone
  };
  static constexpr std::uint32_t kNone = ~0U;

  // The lots that a whole device is divided into.
  struct Division {
    double price = 0;
    std::vector<std::size_t> lots;
  };

  // A layout of a class under MIG, and the price of its rest.
  struct PricedDivision {
    const std::vector<std::uint32_t>* division = nullptr;
    double price = 0;
  };

  void list_lots();
  void list_rates();
  void lower_prices(std::span<const double> rates);

  void update_prices();
  // `price_of(size)` is the price of a gpulet.
  template <typename PriceOf>
  void price_shares(std::size_t device_class, const PriceOf& price_of, SharePrices* shares) const;
  // `division` is null where no layout contains the taken instances.
  [[nodiscard]] PricedDivision dearest_division(std::size_t device_class,
                                                std::span<const std::uint32_t> taken) const;
  // Of each number of neighbours, the most expensive division.
  [[nodiscard]] std::vector<Division> dearest_divisions(std::size_t device_class) const;
  // The highest price of a whole device.
  [[nodiscard]] double device_price(std::size_t device_class) const;
  [[nodiscard]] double cost_of_all(std::span<const double> rates) const;
  void normalize(std::span<const double> rates);

  const PlanContext* context_;
  std::vector<Lot> lots_;
  std::vector<std::size_t> first_lot_;   // of each class in lots_, and the end
  std::vector<std::size_t> first_size_;  // of each class in prices_of_sizes_
  std::vector<HighestRate> rates_;       // [model * lots + lot]
  std::vector<double> prices_;           // of lots
  std::vector<double> prices_of_sizes_;
  std::vector<std::vector<Division>> dearest_;  // of each class
  std::vector<double> scarcity_;
  std::vector<SharePrices> shares_;  // by prices_of_sizes_
};

}  // namespace gpulet::schedule
