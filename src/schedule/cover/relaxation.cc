#include "schedule/cover/relaxation.h"

#include <ClpSimplex.hpp>
#include <CoinError.hpp>
#include <algorithm>
#include <limits>

#include "schedule/cover/least_slowdowns.h"

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

std::vector<double> LinearProgram::parts() const {
  const ClpSimplex& simplex = solver_->simplex;
  const double* const parts = simplex.getColSolution();
  return {parts, parts + simplex.getNumCols()};
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
// More neighbours count as this many. On devices with more sizes, one or more neighbours count as
// one. Each lot is a row of the linear program, and each model has a column for it.
constexpr std::uint32_t kMostNeighbours = 4;
constexpr std::size_t kFewSizes = 20;

}  // namespace

Relaxation::Relaxation(const PlanContext& context) : context_(&context) {
  for (const DeviceClass& known : context.classes()) {
    first_size_.push_back(prices_of_sizes_.size());
    prices_of_sizes_.resize(prices_of_sizes_.size() + known.sizes.size());
    const int smallest = std::max(1, known.sizes.front());
    const auto most = static_cast<std::uint32_t>(kWholeDevice.percent / smallest);
    shares_.emplace_back().partitions = std::min(known.example->max_partitions, most);
  }
  dearest_.resize(shares_.size());
  scarcity_.resize(shares_.size());
  list_lots();
  list_rates();
  for (const Lot& lot : lots_)
    prices_.push_back(context.classes()[lot.device_class].sizes[lot.size] / 100.0);
  update_prices();
}

void Relaxation::list_lots() {
  for (std::uint32_t index = 0; index < shares_.size(); ++index) {
    first_lot_.push_back(lots_.size());
    const std::vector<int>& sizes = context_->classes()[index].sizes;
    std::uint32_t most = 0;
    // Where no slowdown is known, gpulets with and without neighbours are alike.
    if (LeastSlowdowns::effort(*context_, index) > 0 && shares_[index].partitions > 1) {
      most =
          std::min(shares_[index].partitions - 1, sizes.size() <= kFewSizes ? kMostNeighbours : 1);
    }
    for (std::uint32_t neighbours = 0; neighbours <= most; ++neighbours) {
      for (std::uint32_t size = 0; size < sizes.size(); ++size) {
        const int needed = sizes[size] + static_cast<int>(neighbours) * sizes.front();
        if (neighbours == 0 || needed <= kWholeDevice.percent)
          lots_.push_back({index, size, neighbours});
      }
    }
  }
  first_lot_.push_back(lots_.size());
}

void Relaxation::list_rates() {
  std::vector<LeastSlowdowns> slowdowns;
  for (std::uint32_t index = 0; index < shares_.size(); ++index)
    slowdowns.emplace_back(*context_, index);
  rates_.reserve(context_->models().size() * lots_.size());
  SlowedCurve slowed;
  std::vector<std::vector<double>> least;  // by size of a class
  for (std::uint32_t model = 0; model < context_->models().size(); ++model) {
    const double slo_ms = context_->models()[model]->slo_ms;
    for (std::size_t at = 0; at < lots_.size(); ++at) {
      const Lot& lot = lots_[at];
      if (at == first_lot_[lot.device_class])
        least.assign(context_->classes()[lot.device_class].sizes.size(), {});
      const LatencyCurve& alone = context_->curve(model, lot.device_class, lot.size);
      if (lot.neighbours == 0 || alone.max_batch == 0) {
        HighestRate& highest = rates_.emplace_back(alone, slo_ms);
        for (const LatencyCurve& shared :
             context_->shared_curves(model, lot.device_class, lot.size))
          highest.add_alternative(shared, slo_ms);
        continue;
      }
      std::vector<double>& by_batch = least[lot.size];
      if (by_batch.empty()) by_batch = slowdowns[lot.device_class].by_batch(model, lot.size);
      const auto slowdown_of = [&](std::uint32_t batch) {
        return 1 + lot.neighbours * (by_batch[batch - 1] - 1);
      };
      slow_down(alone, slo_ms, slowdown_of, &slowed);
      rates_.emplace_back(slowed.curve, slo_ms);
    }
  }
}

double Relaxation::cost(std::size_t model, double rate) const {
  if (rate <= 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t lot = 0; lot < lots_.size(); ++lot) {
    const HighestRate& highest = rates_[model * lots_.size() + lot];
    const double price = prices_[lot] * rate;
    if (highest.unlimited() <= 0 || price >= least * highest.unlimited()) continue;
    least = std::min(least, price / highest.of(rate));
  }
  return least < std::numeric_limits<double>::infinity() ? least : 0;
}

template <typename PriceOf>
void Relaxation::price_shares(std::size_t device_class, const PriceOf& price_of,
                              SharePrices* shares) const {
  const std::vector<int>& sizes = context_->classes()[device_class].sizes;
  shares->price.assign((shares->partitions + 1) * kPercents, 0);
  shares->last.assign(shares->price.size(), kNone);
  for (std::size_t count = 1; count <= shares->partitions; ++count) {
    for (std::size_t percent = 0; percent < kPercents; ++percent) {
      const std::size_t here = count * kPercents + percent;
      for (std::uint32_t size = 0; size < sizes.size(); ++size) {
        const auto taken = static_cast<std::size_t>(sizes[size]);
        if (taken > percent) break;
        const double price = price_of(size) + shares->price[here - kPercents - taken];
        if (price > shares->price[here]) {
          shares->price[here] = price;
          shares->last[here] = size;
        }
      }
    }
  }
}

void Relaxation::update_prices() {
  for (std::size_t index = 0; index < shares_.size(); ++index) {
    for (std::size_t at = first_lot_[index]; at < first_lot_[index + 1]; ++at) {
      const Lot& lot = lots_[at];
      double& price = prices_of_sizes_[first_size_[index] + lot.size];
      // Where a gpulet can have neighbours, the first of its lots with some replaces the one
      // without.
      price = lot.neighbours <= 1 ? prices_[at] : std::max(price, prices_[at]);
    }
    // dearest_division looks at layouts.
    if (context_->classes()[index].divisions.empty()) {
      price_shares(
          index, [&](std::uint32_t size) { return price_of(index, size); }, &shares_[index]);
    }
    dearest_[index] = dearest_divisions(index);
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

std::vector<Relaxation::Division> Relaxation::dearest_divisions(std::size_t device_class) const {
  const DeviceClass& known = context_->classes()[device_class];
  const std::size_t first = first_lot_[device_class];
  std::vector<Division> dearest;
  if (!known.divisions.empty()) {
    const PricedDivision layout = dearest_division(device_class, {});
    dearest.push_back({layout.price, {}});
    for (std::uint32_t size = 0; size < layout.division->size(); ++size)
      dearest.back().lots.insert(dearest.back().lots.end(), (*layout.division)[size], first + size);
    return dearest;
  }
  const std::uint32_t most = lots_[first_lot_[device_class + 1] - 1].neighbours;
  std::size_t lot = first;
  SharePrices shares;
  for (std::uint32_t neighbours = 0; neighbours <= most; ++neighbours) {
    // The lots with so many neighbours: all sizes up to the largest that leaves them room.
    const std::size_t begin = lot;
    while (lot < first_lot_[device_class + 1] && lots_[lot].neighbours == neighbours) ++lot;
    shares.partitions = neighbours == most ? shares_[device_class].partitions : neighbours + 1;
    const auto price_of = [&](std::uint32_t size) {
      return begin + size < lot ? prices_[begin + size] : 0.0;
    };
    price_shares(device_class, price_of, &shares);
    std::size_t percent = kPercents - 1;
    Division& division = dearest.emplace_back();
    division.price = shares.price[shares.partitions * kPercents + percent];
    for (std::size_t count = shares.partitions; count > 0; --count) {
      const std::uint32_t size = shares.last[count * kPercents + percent];
      if (size == kNone) break;
      division.lots.push_back(begin + size);
      percent -= static_cast<std::size_t>(known.sizes[size]);
    }
  }
  return dearest;
}

double Relaxation::device_price(std::size_t device_class) const {
  double most = 0;
  for (const Division& division : dearest_[device_class]) most = std::max(most, division.price);
  return most;
}

void Relaxation::price(std::span<const double> rates) {
  const std::size_t classes = shares_.size();
  const std::size_t models = rates.size();
  // Rows: the rate of each model, the time of each lot, the devices of each class.
  std::vector<double> bounds(rates.begin(), rates.end());
  std::vector<std::vector<LinearProgram::Entry>> uses;
  for (std::size_t model = 0; model < models; ++model) {
    bool served = false;
    for (std::size_t lot = 0; lot < lots_.size(); ++lot) {
      const double most = rates_[model * lots_.size() + lot].of(rates[model]);
      if (most <= 0) continue;
      uses.push_back({{model, most}, {models + lot, -1}});
      served = true;
    }
    if (!served) bounds[model] = 0;
  }
  if (uses.empty()) return;
  bounds.resize(models + lots_.size(), 0);
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
  const auto add_division = [&](std::size_t index, std::vector<std::size_t> lots) {
    std::vector<LinearProgram::Entry> entries;
    std::sort(lots.begin(), lots.end());
    for (const std::size_t lot : lots) {
      if (entries.empty() || entries.back().row != models + lot)
        entries.push_back({models + lot, 0});
      ++entries.back().factor;
    }
    if (classes > 1) entries.push_back({first_class + index, -1});
    program.add_column(1, entries);
  };
  for (std::size_t lot = 0; lot < lots_.size(); ++lot) add_division(lots_[lot].device_class, {lot});
  const std::vector<double> before = prices_;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!program.solve()) {
      prices_ = before;
      break;
    }
    const auto first_price = program.prices().begin() + static_cast<std::ptrdiff_t>(models);
    std::copy(first_price, first_price + static_cast<std::ptrdiff_t>(prices_.size()),
              prices_.begin());
    update_prices();
    bool added = false;
    for (std::size_t index = 0; index < classes; ++index) {
      const double worth = classes > 1 ? 1 + program.prices()[first_class + index] : 1;
      for (const Division& division : dearest_[index]) {
        if (division.price <= worth + kWorthAdding) continue;
        add_division(index, division.lots);
        added = true;
      }
    }
    if (!added) break;
  }
  lower_prices(rates);
  normalize(rates);
}

// Lowers the price of each lot to the highest one at which it costs some model no more than what
// the model chooses now. The cost of every model stays as it is, and devices sell for less.
void Relaxation::lower_prices(std::span<const double> rates) {
  std::vector<double> most(lots_.size(), 0);
  for (std::size_t model = 0; model < rates.size(); ++model) {
    if (rates[model] <= 0) continue;
    const double value = cost(model, rates[model]) / rates[model];
    for (std::size_t lot = 0; lot < lots_.size(); ++lot)
      most[lot] = std::max(most[lot], value * rates_[model * lots_.size() + lot].of(rates[model]));
  }
  for (std::size_t lot = 0; lot < lots_.size(); ++lot)
    prices_[lot] = std::min(prices_[lot], most[lot]);
}

// The bound is a concave function of a common factor on all prices, with a bend where the dearest
// device of a class costs 1.
void Relaxation::normalize(std::span<const double> rates) {
  update_prices();
  const double cost = cost_of_all(rates);
  double best_factor = 0;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t bend = 0; bend < dearest_.size(); ++bend) {
    if (device_price(bend) <= 0) continue;
    const double factor = 1 / device_price(bend);
    double bound = factor * cost;
    for (std::size_t index = 0; index < dearest_.size(); ++index) {
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
  update_prices();
  for (std::size_t index = 0; index < dearest_.size(); ++index)
    scarcity_[index] = std::max(0.0, device_price(index) - 1);
}

double Relaxation::cost_of_all(std::span<const double> rates) const {
  double sum = 0;
  for (std::size_t model = 0; model < rates.size(); ++model) sum += cost(model, rates[model]);
  return sum;
}

double Relaxation::bound(std::span<const double> rates) const {
  double bound = cost_of_all(rates);
  for (std::size_t index = 0; index < scarcity_.size(); ++index) {
    bound -= static_cast<double>(context_->classes()[index].devices.size()) * scarcity_[index];
  }
  return bound;
}

double Relaxation::bound_without_limits(std::span<const double> rates) const {
  double dearest = 0;
  for (std::size_t index = 0; index < dearest_.size(); ++index)
    dearest = std::max(dearest, device_price(index));
  return dearest > 0 ? cost_of_all(rates) / dearest : 0;
}

}  // namespace gpulet::schedule
