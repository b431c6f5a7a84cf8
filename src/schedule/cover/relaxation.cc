#include "schedule/cover/relaxation.h"

#include <ClpSimplex.hpp>
#include <CoinError.hpp>
#include <algorithm>
#include <iterator>
#include <limits>

namespace gpulet::schedule {

struct LinearProgram::Solver {
  ClpSimplex simplex;
  // Columns since the last solve. CLP adds many at once far faster.
  std::vector<double> costs;
  std::vector<CoinBigIndex> starts{0};
  std::vector<int> rows;
  std::vector<double> factors;
  bool solved = false;

  void hand_over() {
    simplex.addColumns(static_cast<int>(costs.size()), nullptr, nullptr, costs.data(),
                       starts.data(), rows.data(), factors.data());
    costs.clear();
    starts.assign(1, 0);
    rows.clear();
    factors.clear();
  }
};

LinearProgram::LinearProgram(std::span<const double> at_least)
    : solver_(std::make_unique<Solver>()) {
  ClpSimplex& simplex = solver_->simplex;
  simplex.setLogLevel(0);
  const auto rows = static_cast<int>(at_least.size());
  simplex.resize(rows, 0);
  for (int row = 0; row < rows; ++row) {
    simplex.setRowBounds(row, at_least[static_cast<std::size_t>(row)], COIN_DBL_MAX);
  }
}

LinearProgram::~LinearProgram() = default;

void LinearProgram::add_column(double cost, std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    solver_->rows.push_back(static_cast<int>(entry.row));
    solver_->factors.push_back(entry.factor);
  }
  solver_->starts.push_back(static_cast<CoinBigIndex>(solver_->rows.size()));
  solver_->costs.push_back(cost);
}

bool LinearProgram::solve() try {
  ClpSimplex& simplex = solver_->simplex;
  solver_->hand_over();
  // Without a basis the dual is feasible, since no cost is negative; after new columns the primal
  // is.
  if (solver_->solved) {
    simplex.primal(1);
  } else {
    simplex.dual();
  }
  solver_->solved = simplex.isProvenOptimal();
  if (!solver_->solved) return false;
  const double* const prices = simplex.getRowPrice();
  prices_.assign(prices, prices + simplex.getNumRows());
  for (double& price : prices_) price = std::max(0.0, price);
  return true;
} catch (const CoinError&) {
  solver_->solved = false;
  return false;
}

namespace {

constexpr std::size_t kPercents = 101;
// The cost of a device beyond those of its class, so that the linear program always has a solution.
constexpr double kCostOfExtraDevice = 10;
// Rounds of new divisions, each of which fixes the prices of several sizes.
constexpr int kMaxRounds = 64;
constexpr double kWorthAdding = 1e-7;

}  // namespace

Relaxation::Relaxation(const PlanContext& context) : context_(&context) {
  for (const DeviceClass& device_class : context.classes()) {
    first_.push_back(prices_.size());
    for (const int percent : device_class.sizes) prices_.push_back(percent / 100.0);
    scarcity_.push_back(0);
    SharePrices& shares = shares_.emplace_back();
    const int smallest = std::max(1, device_class.sizes.front());
    shares.partitions = std::min(device_class.example->max_partitions,
                                 static_cast<std::uint32_t>(kWholeDevice.percent / smallest));
    shares.price.resize((shares.partitions + 1) * kPercents);
    shares.last.resize(shares.price.size());
  }
  for (std::size_t model = 0; model < context.models().size(); ++model) {
    for (std::size_t index = 0; index < first_.size(); ++index) {
      for (std::size_t size = 0; size < context.classes()[index].sizes.size(); ++size) {
        first_factors_.push_back(factors_.size());
        add_factors(context.curve(model, index, size), context.models()[model]->slo_ms);
      }
    }
  }
  first_factors_.push_back(factors_.size());
  for (std::size_t index = 0; index < shares_.size(); ++index) price_shares(index);
}

void Relaxation::add_factors(const LatencyCurve& curve, double slo_ms) {
  const std::size_t first = factors_.size();
  for (std::uint32_t batch = 1; batch <= curve.max_batch; ++batch) {
    const double latency_ms = curve.latency_ms[batch - 1];
    // With random arrivals, other slots' batches take their mean time, and as many requests as
    // come.
    const double mean_ms = curve.random_arrivals ? latency_ms / curve.margin : latency_ms;
    factors_.push_back({static_cast<double>(batch) * curve.processes * 1000 / mean_ms,
                        (slo_ms - latency_ms) / mean_ms});
  }
  const auto begin = factors_.begin() + static_cast<std::ptrdiff_t>(first);
  std::sort(begin, factors_.end(), [](const Factors& a, const Factors& b) {
    return a.by_wait != b.by_wait ? a.by_wait > b.by_wait : a.by_batch > b.by_batch;
  });
  std::size_t kept = first;
  for (std::size_t at = first; at < factors_.size(); ++at) {
    if (kept > first && factors_[at].by_batch <= factors_[kept - 1].by_batch) continue;
    factors_[kept++] = factors_[at];
  }
  factors_.resize(kept);
}

double Relaxation::max_rate(std::size_t model, std::size_t device_class, std::size_t size,
                            double rate) const {
  const std::size_t at = model * prices_.size() + first_[device_class] + size;
  const auto begin = factors_.begin() + static_cast<std::ptrdiff_t>(first_factors_[at]);
  const auto end = factors_.begin() + static_cast<std::ptrdiff_t>(first_factors_[at + 1]);
  // One factor rises and the other falls: the best pair is next to their crossing.
  const auto crossing = std::partition_point(
      begin, end, [&](const Factors& one) { return one.by_batch <= rate * one.by_wait; });
  const double below = crossing == begin ? 0 : std::prev(crossing)->by_batch;
  const double above = crossing == end ? 0 : rate * crossing->by_wait;
  return std::max(below, above);
}

double Relaxation::cost(std::size_t model, double rate) const {
  if (rate <= 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t index = 0; index < first_.size(); ++index) {
    const std::size_t sizes = context_->classes()[index].sizes.size();
    for (std::size_t size = 0; size < sizes; ++size) {
      const double most = max_rate(model, index, size, rate);
      if (most > 0) least = std::min(least, prices_[first_[index] + size] * rate / most);
    }
  }
  return least < std::numeric_limits<double>::infinity() ? least : 0;
}

void Relaxation::price_shares(std::size_t device_class) {
  if (!context_->classes()[device_class].divisions.empty())
    return;  // dearest_division computes these
  SharePrices& shares = shares_[device_class];
  const std::vector<int>& sizes = context_->classes()[device_class].sizes;
  std::fill(shares.price.begin(), shares.price.end(), 0);
  std::fill(shares.last.begin(), shares.last.end(), kNone);
  for (std::size_t count = 1; count <= shares.partitions; ++count) {
    for (std::size_t percent = 0; percent < kPercents; ++percent) {
      const std::size_t here = count * kPercents + percent;
      for (std::uint32_t size = 0; size < sizes.size(); ++size) {
        const auto taken = static_cast<std::size_t>(sizes[size]);
        if (taken > percent) break;
        const double price = price_of(device_class, size) + shares.price[here - kPercents - taken];
        if (price > shares.price[here]) {
          shares.price[here] = price;
          shares.last[here] = size;
        }
      }
    }
  }
}

double Relaxation::price_of_share(std::size_t device_class, std::uint32_t partitions,
                                  int percent) const {
  const SharePrices& shares = shares_[device_class];
  return shares.price[std::min(partitions, shares.partitions) * kPercents +
                      static_cast<std::size_t>(percent)];
}

Relaxation::PricedDivision Relaxation::dearest_division(
    std::size_t device_class, std::span<const std::uint32_t> taken) const {
  PricedDivision dearest;
  for (const std::vector<std::uint32_t>& division : context_->classes()[device_class].divisions) {
    double price = 0;
    bool holds = true;
    for (std::size_t size = 0; holds && size < division.size(); ++size) {
      const std::uint32_t gone = taken.empty() ? 0 : taken[size];
      holds = gone <= division[size];
      if (holds) price += (division[size] - gone) * price_of(device_class, size);
    }
    if (holds && (dearest.division == nullptr || price > dearest.price))
      dearest = {&division, price};
  }
  return dearest;
}

double Relaxation::device_price(std::size_t device_class) const {
  if (!context_->classes()[device_class].divisions.empty()) return price_beside(device_class, {});
  return price_of_share(device_class, shares_[device_class].partitions, kWholeDevice.percent);
}

std::vector<std::uint32_t> Relaxation::dearest_sizes(std::size_t device_class) const {
  const DeviceClass& known = context_->classes()[device_class];
  std::vector<std::uint32_t> sizes;
  if (!known.divisions.empty()) {
    const std::vector<std::uint32_t>* const dearest = dearest_division(device_class, {}).division;
    for (std::uint32_t size = 0; size < dearest->size(); ++size)
      sizes.insert(sizes.end(), (*dearest)[size], size);
    return sizes;
  }
  const SharePrices& shares = shares_[device_class];
  std::size_t percent = kPercents - 1;
  for (std::size_t count = shares.partitions; count > 0; --count) {
    const std::uint32_t size = shares.last[count * kPercents + percent];
    if (size == kNone) break;
    sizes.push_back(size);
    percent -= static_cast<std::size_t>(known.sizes[size]);
  }
  return sizes;
}

void Relaxation::price(std::span<const double> rates) {
  const std::size_t classes = first_.size();
  const std::size_t models = rates.size();
  // Rows: the rate of each model, the time of each size, the devices of each class.
  std::vector<double> bounds(rates.begin(), rates.end());
  std::vector<std::vector<LinearProgram::Entry>> uses;
  for (std::size_t model = 0; model < models; ++model) {
    bool served = false;
    for (std::size_t index = 0; index < classes; ++index) {
      for (std::size_t size = 0; size < context_->classes()[index].sizes.size(); ++size) {
        const double most = rates[model] > 0 ? max_rate(model, index, size, rates[model]) : 0;
        if (most <= 0) continue;
        uses.push_back({{model, most}, {models + first_[index] + size, -1}});
        served = true;
      }
    }
    if (!served) bounds[model] = 0;
  }
  if (uses.empty()) return;
  bounds.resize(models + prices_.size(), 0);
  const std::size_t first_class = bounds.size();
  if (classes > 1) {
    for (const DeviceClass& known : context_->classes()) {
      bounds.push_back(-static_cast<double>(known.devices.size()));
    }
  }
  LinearProgram program(bounds);
  for (const auto& use : uses) program.add_column(0, use);
  for (std::size_t index = 0; index < classes && classes > 1; ++index) {
    const LinearProgram::Entry extra{first_class + index, 1};
    program.add_column(kCostOfExtraDevice, {&extra, 1});
  }
  const auto add_division = [&](std::size_t index, const std::vector<std::uint32_t>& sizes) {
    std::vector<LinearProgram::Entry> entries;
    for (std::uint32_t size = 0; size < context_->classes()[index].sizes.size(); ++size) {
      const auto count = std::count(sizes.begin(), sizes.end(), size);
      if (count > 0) entries.push_back({models + first_[index] + size, static_cast<double>(count)});
    }
    if (classes > 1) entries.push_back({first_class + index, -1});
    program.add_column(1, entries);
  };
  for (std::size_t index = 0; index < classes; ++index) {
    for (std::uint32_t size = 0; size < context_->classes()[index].sizes.size(); ++size) {
      add_division(index, {size});
    }
  }
  const std::vector<double> before = prices_;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!program.solve()) {
      prices_ = before;
      break;
    }
    const auto first_price = program.prices().begin() + static_cast<std::ptrdiff_t>(models);
    std::copy(first_price, first_price + static_cast<std::ptrdiff_t>(prices_.size()),
              prices_.begin());
    bool added = false;
    for (std::size_t index = 0; index < classes; ++index) {
      price_shares(index);
      const double worth = classes > 1 ? 1 + program.prices()[first_class + index] : 1;
      if (device_price(index) <= worth + kWorthAdding) continue;
      add_division(index, dearest_sizes(index));
      added = true;
    }
    if (!added) break;
  }
  normalize(rates);
}

// The bound is a concave function of a common factor on all prices, with a bend where the dearest
// device of a class costs 1.
void Relaxation::normalize(std::span<const double> rates) {
  for (std::size_t index = 0; index < first_.size(); ++index) price_shares(index);
  const double cost = cost_of_all(rates);
  double best_factor = 0;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t bend = 0; bend < first_.size(); ++bend) {
    if (device_price(bend) <= 0) continue;
    const double factor = 1 / device_price(bend);
    double bound = factor * cost;
    for (std::size_t index = 0; index < first_.size(); ++index) {
      bound -= static_cast<double>(context_->classes()[index].devices.size()) *
               std::max(0.0, factor * device_price(index) - 1);
    }
    if (bound > best) {
      best = bound;
      best_factor = factor;
    }
  }
  if (best_factor <= 0) return;
  for (double& price : prices_) price *= best_factor;
  for (std::size_t index = 0; index < first_.size(); ++index) {
    price_shares(index);
    scarcity_[index] = std::max(0.0, device_price(index) - 1);
  }
}

double Relaxation::cost_of_all(std::span<const double> rates) const {
  double sum = 0;
  for (std::size_t model = 0; model < rates.size(); ++model) sum += cost(model, rates[model]);
  return sum;
}

double Relaxation::bound(std::span<const double> rates) const {
  double bound = cost_of_all(rates);
  for (std::size_t index = 0; index < first_.size(); ++index) {
    bound -= static_cast<double>(context_->classes()[index].devices.size()) * scarcity_[index];
  }
  return bound;
}

double Relaxation::bound_without_limits(std::span<const double> rates) const {
  double dearest = 0;
  for (std::size_t index = 0; index < first_.size(); ++index)
    dearest = std::max(dearest, device_price(index));
  return dearest > 0 ? cost_of_all(rates) / dearest : 0;
}

}  // namespace gpulet::schedule
