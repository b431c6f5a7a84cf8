// The relaxation behind `cover`: gpulet time may be divided in any fractions, and devices in any
// mixture. docs/cover.md has the mathematics. Deterministic; one thread at a time.
//
// Why it gives a bound. Let a gpulet run rounds of d ms, in which a model has batches of b. The
// model has the fraction t = L(b) / d of the gpulet's time, and all fractions add up to at most 1.
// With a total demand of r its rate x there obeys
//     x * d / 1000 <= b, x <= r, and d <= SLO - L(b)
// so x = t * x * d / L(b) is at most t times the smaller of 1000 * b / L(b) and
// r * (SLO - L(b)) / L(b). With random arrivals the same holds for the mean batches in a slot's
// cycle (duty_cycle.h), which is no longer than the round. Neighbours only lengthen L, so this also
// holds next to any. Thus
// x <= t * R(r), where R(r) is the highest such minimum over b: `max_rate`. Give each size a
// price p, in devices, such that the sizes that any one device may be divided into cost at most w
// together. Then serving x of the model costs at least x * min over sizes of p / R(r), a device
// sells for at most w, and serving everything takes at least
//     (sum over models of r * min over sizes of p / R(r)) / w
// devices. This holds for any prices, so it does not depend on how exactly the linear program was
// solved, which only has to find good ones. Memory and neighbours are neglected: they only reduce
// what a device can serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

 private:
  struct Solver;
  std::unique_ptr<Solver> solver_;
  std::vector<double> prices_;
};

class Relaxation {
 public:
  // `context` outlives the object. Prices are proportional to sizes at first.
  explicit Relaxation(const PlanContext& context);

  // R: the most that a gpulet's whole time could serve of a model with a total demand of `rate`; 0
  // where it serves none.
  [[nodiscard]] double max_rate(std::size_t model, std::size_t device_class, std::size_t size,
                                double rate) const;

  // Sets the prices that make the bound for these rates (parallel to the context's models) as high
  // as the linear program can.
  void price(std::span<const double> rates);

  // The least number of devices, at the prices, that serves this rate of the model; 0 for models
  // that no size serves.
  [[nodiscard]] double cost(std::size_t model, double rate) const;

  // The price of a gpulet.
  [[nodiscard]] double price_of(std::size_t device_class, std::size_t size) const {
    return prices_[first_[device_class] + size];
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
  // price_of_share for every percent and number of partitions of one class.
  struct SharePrices {
    std::uint32_t partitions = 0;
    std::vector<double> price;        // [partitions * 101 + percent]
    std::vector<std::uint32_t> last;  // the last size of the most expensive division, or kNone
  };
  static constexpr std::uint32_t kNone = ~0U;

  // A layout of a class under MIG, and the price of its rest.
  struct PricedDivision {
    const std::vector<std::uint32_t>* division = nullptr;
    double price = 0;
  };

  void price_shares(std::size_t device_class);
  // `division` is null where no layout contains the taken instances.
  [[nodiscard]] PricedDivision dearest_division(std::size_t device_class,
                                                std::span<const std::uint32_t> taken) const;
  // The highest price of a whole device, and the sizes that it is divided into.
  [[nodiscard]] double device_price(std::size_t device_class) const;
  [[nodiscard]] std::vector<std::uint32_t> dearest_sizes(std::size_t device_class) const;
  [[nodiscard]] double cost_of_all(std::span<const double> rates) const;
  void normalize(std::span<const double> rates);

  // One of the pairs of factors whose best minimum is R (see above).
  struct Factors {
    double by_batch = 0;  // 1000 * q(b, k) / L(b)
    double by_wait = 0;   // (SLO - L(b)) / k / L(b)
  };
  void add_factors(const LatencyCurve& curve, double slo_ms);

  const PlanContext* context_;
  // For each model and size, from first_factors_[model * sizes of all classes + size] on: the pairs
  // that no other pair exceeds in both, ascending by_batch.
  std::vector<Factors> factors_;
  std::vector<std::size_t> first_factors_;
  std::vector<std::size_t> first_;  // of each class in prices_
  std::vector<double> prices_;
  std::vector<double> scarcity_;
  std::vector<SharePrices> shares_;
};

}  // namespace gpulet::schedule
