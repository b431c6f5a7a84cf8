// The relaxation behind `cover`: gpulet time may be handed out in any fractions, devices divided in
// any mixture. docs/cover.md has the mathematics. Deterministic; one thread at a time.
//
// Why it is a bound. Let a gpulet run rounds of d ms, in which a model has batches of b. It has the
// share t = L(b) / d of the gpulet's time, and all shares add up to at most 1. With a total demand
// of r and k = the whole rounds that a request may wait, its rate x there obeys
//     x * d / 1000 <= q(b, k)     (requests_held; b itself without headroom)
//     x <= r and d <= (SLO - L(b)) / k
// so x = t * x * d / L(b) is at most t times the smaller of 1000 * q(b, k) / L(b) and
// r * (SLO - L(b)) / k / L(b). Neighbours only lengthen L, so this holds beside any. Thus
// x <= t * R(r), where R(r) is the highest such minimum over b and k: `most_rate`. Give each size a
// price p, in devices, such that the sizes that any one device may be divided into cost at most w
// together. Then serving x of the model costs at least x * min over sizes of p / R(r), a device
// sells for at most w, and serving everything takes at least
//     (sum over models of r * min over sizes of p / R(r)) / w
// devices. That holds for any prices at all, so nothing depends on how exactly the linear program
// was solved, which is only asked for good ones. Memory and neighbours are left out: they only take
// room away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/problem.h"

namespace gpulet::schedule {

class Relaxation {
 public:
  // `problem` outlives it. Starts with prices proportional to sizes.
  explicit Relaxation(const Problem& problem);

  // R: the most that a whole gpulet's time could serve of a model of which no more than `rate` is
  // wanted; 0 where it serves none.
  [[nodiscard]] double most_rate(std::size_t model, std::size_t device_class, std::size_t size,
                                 double rate) const;

  // Prices that make the bound for these rates (beside the problem's models) as high as the linear
  // program can.
  void price(std::span<const double> rates);

  // Devices that serving this rate of the model takes at least, at the prices; 0 for models that
  // no size serves.
  [[nodiscard]] double cost(std::size_t model, double rate) const;

  // Of a gpulet.
  [[nodiscard]] double price_of(std::size_t device_class, std::size_t size) const {
    return prices_[first_[device_class] + size];
  }
  // The highest price of what `percent` of a device may be divided into, by at most so many more.
  [[nodiscard]] double price_of_share(std::size_t device_class, std::uint32_t partitions,
                                      int percent) const;
  // Of a class that is divided by MIG: of what its layouts leave beside so many of each size.
  [[nodiscard]] double price_beside(std::size_t device_class,
                                    std::span<const std::uint32_t> taken) const;
  // What a device of the class is worth above 1, because there are too few of it.
  [[nodiscard]] double scarcity(std::size_t device_class) const { return scarcity_[device_class]; }

  // Devices of the cluster that serving the rates takes at least, at the prices. More than there
  // are: no plan serves them all.
  [[nodiscard]] double bound(std::span<const double> rates) const;
  // The same where each type has devices without limit.
  [[nodiscard]] double bound_without_limits(std::span<const double> rates) const;

 private:
  // price_of_share for every percent and number of partitions of one class.
  struct Shares {
    std::uint32_t partitions = 0;
    std::vector<double> price;        // [partitions * 101 + percent]
    std::vector<std::uint32_t> last;  // the size taken there, or kNone
  };
  static constexpr std::uint32_t kNone = ~0U;

  // A layout of a class that MIG divides, and the price of what it leaves.
  struct Dearest {
    const std::vector<std::uint32_t>* division = nullptr;
    double price = 0;
  };

  void price_shares(std::size_t device_class);
  // Null where no layout holds what is taken.
  [[nodiscard]] Dearest dearest_division(std::size_t device_class,
                                         std::span<const std::uint32_t> taken) const;
  [[nodiscard]] double whole(std::size_t device_class) const;
  [[nodiscard]] std::vector<std::uint32_t> dearest_sizes(std::size_t device_class) const;
  [[nodiscard]] double cost_of_all(std::span<const double> rates) const;
  void normalize(std::span<const double> rates);

  // One of the pairs of factors that R is the best minimum of (see above).
  struct Factors {
    double by_batch = 0;  // 1000 * q(b, k) / L(b)
    double by_wait = 0;   // (SLO - L(b)) / k / L(b)
  };
  void add_factors(const Row& row, double slo_ms);

  const Problem* problem_;
  // For each model and size, from first_factors_[model * sizes of all classes + size] on: those
  // that none of the others beats in both, ascending by_batch.
  std::vector<Factors> factors_;
  std::vector<std::size_t> first_factors_;
  std::vector<std::size_t> first_;  // of each class in prices_
  std::vector<double> prices_;
  std::vector<double> scarcity_;
  std::vector<Shares> shares_;
};

}  // namespace gpulet::schedule
