#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "schedule/mig/deployment_context.h"

namespace gpulet::schedule::mig {
namespace {

// A linear program: maximise objective * x with rows * x <= limits and x >= 0. No limit is
// negative, so x = 0 is feasible.
struct SmallProgram {
  std::vector<double> objective;
  std::vector<std::vector<double>> rows;
  std::vector<double> limits;
};

constexpr double kZero = 1e-11;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
// Bland's rule cannot cycle, except by rounding.
constexpr std::size_t kMostPivots = 10'000;

// The simplex method with Bland's rule on a dense dictionary (Chvatal): each basic variable equals
// its limit minus a row of the nonbasic variables, which are 0. The last row is the objective.
class Table {
 public:
  explicit Table(const SmallProgram& program) : width_(program.objective.size()) {
    for (std::size_t row = 0; row < program.rows.size(); ++row) {
      rows_.push_back(program.rows[row]);
      rows_.back().push_back(program.limits[row]);
      basic_.push_back(width_ + row);
    }
    rows_.emplace_back();
    for (const double value : program.objective) rows_.back().push_back(-value);
    rows_.back().push_back(0);
    for (std::size_t column = 0; column < width_; ++column) zero_.push_back(column);
  }

  bool step() {
    const std::size_t column = entering();
    if (column == kNone) return false;
    const std::size_t row = leaving(column);
    if (row == kNone) return false;
    pivot(row, column);
    return true;
  }

  [[nodiscard]] std::vector<double> solution() const {
    std::vector<double> values(width_, 0);
    for (std::size_t row = 0; row < basic_.size(); ++row) {
      if (basic_[row] < width_) values[basic_[row]] = rows_[row][width_];
    }
    return values;
  }

 private:
  [[nodiscard]] std::size_t entering() const {
    std::size_t chosen = kNone;
    for (std::size_t column = 0; column < width_; ++column) {
      if (rows_.back()[column] >= -kZero) continue;
      if (chosen == kNone || zero_[column] < zero_[chosen]) chosen = column;
    }
    return chosen;
  }

  [[nodiscard]] std::size_t leaving(std::size_t column) const {
    std::size_t chosen = kNone;
    double least = 0;
    for (std::size_t row = 0; row < basic_.size(); ++row) {
      if (rows_[row][column] <= kZero) continue;
      const double ratio = rows_[row][width_] / rows_[row][column];
      const bool tie = chosen != kNone && ratio == least && basic_[row] < basic_[chosen];
      if (chosen != kNone && ratio >= least && !tie) continue;
      chosen = row;
      least = ratio;
    }
    return chosen;
  }

  void pivot(std::size_t row, std::size_t column) {
    std::vector<double>& pivoted = rows_[row];
    const double by = pivoted[column];
    pivoted[column] = 1;
    for (double& value : pivoted) value /= by;
    for (std::size_t other = 0; other < rows_.size(); ++other) {
      if (other == row) continue;
      const double times = rows_[other][column];
      if (times == 0) continue;
      rows_[other][column] = 0;
      for (std::size_t at = 0; at <= width_; ++at) rows_[other][at] -= times * pivoted[at];
    }
    std::swap(basic_[row], zero_[column]);
  }

  std::size_t width_;
  std::vector<std::vector<double>> rows_;
  std::vector<std::size_t> basic_, zero_;  // the program's variables, then the slack of each row
};

// The optimal x, up to rounding. REQUIRES: the program is bounded.
std::vector<double> maximise(const SmallProgram& program) {
  Table table(program);
  for (std::size_t pivots = 0; pivots < kMostPivots && table.step(); ++pivots) continue;
  return table.solution();
}

constexpr int kMostCuts = 200;
constexpr double kRelativeGap = 1e-9;  // at which the search for prices ends

// The profile with the lowest price per request of the service.
std::size_t cheapest(const DeploymentContext& context, std::size_t service,
                     const std::vector<double>& per_profile) {
  std::size_t chosen = context.profiles();
  double least = 0;
  for (std::size_t profile = 0; profile < context.profiles(); ++profile) {
    const double rate = context.rate(service, profile);
    if (rate <= 0) continue;
    const double price = per_profile[profile] / rate;
    if (chosen < context.profiles() && price >= least) continue;
    chosen = profile;
    least = price;
  }
  return chosen;
}

// Scales the prices so that the dearest layout costs one device.
Prices priced(const DeploymentContext& context, std::vector<double> per_profile) {
  double dearest = 0;
  for (const LayoutShape& shape : context.shapes()) {
    double sum = 0;
    for (const std::uint32_t profile : shape.profiles) sum += per_profile[profile];
    dearest = std::max(dearest, sum);
  }
  Prices prices;
  if (dearest > 0) {
    for (double& price : per_profile) price /= dearest;
  }
  for (std::size_t service = 0; service < context.services(); ++service) {
    double price = 0;
    if (context.need(service) > 0) {
      const std::size_t profile = cheapest(context, service, per_profile);
      price = per_profile[profile] / context.rate(service, profile);
    }
    prices.per_request.push_back(price);
    prices.bound += context.need(service) * price;
  }
  prices.per_profile = std::move(per_profile);
  return prices;
}

// The variables are the prices of the profiles and, last, the bound.
SmallProgram without_cuts(const DeploymentContext& context) {
  SmallProgram program;
  program.objective.assign(context.profiles() + 1, 0);
  program.objective.back() = 1;
  for (const LayoutShape& shape : context.shapes()) {
    std::vector<double>& row = program.rows.emplace_back(context.profiles() + 1, 0);
    for (const std::uint32_t profile : shape.profiles) row[profile] += 1;
    program.limits.push_back(1);
  }
  return program;
}

// The bound is concave in the prices: it is never above the plane in which each service keeps the
// profile that is cheapest at the given prices.
void add_cut(const DeploymentContext& context, const Prices& prices, SmallProgram& program) {
  std::vector<double>& row = program.rows.emplace_back(context.profiles() + 1, 0);
  for (std::size_t service = 0; service < context.services(); ++service) {
    if (context.need(service) <= 0) continue;
    const std::size_t profile = cheapest(context, service, prices.per_profile);
    row[profile] -= context.need(service) / context.rate(service, profile);
  }
  row.back() = 1;
  program.limits.push_back(0);
}

}  // namespace

Prices prices_by_slices(const DeploymentContext& context) {
  std::vector<double> per_profile;
  for (std::uint32_t profile = 0; profile < context.profiles(); ++profile)
    per_profile.push_back(static_cast<double>(context.slices(profile)) / context.compute_slices());
  return priced(context, std::move(per_profile));
}

// Kelley's cutting-plane method: the best prices under the cuts so far give the next cut.
Prices best_prices(const DeploymentContext& context) {
  Prices best = prices_by_slices(context);
  if (best.bound <= 0) return best;
  SmallProgram program = without_cuts(context);
  add_cut(context, best, program);
  for (int cuts = 0; cuts < kMostCuts; ++cuts) {
    std::vector<double> solution = maximise(program);
    const double hoped = solution.back();
    solution.pop_back();
    for (double& price : solution) price = std::max(price, 0.0);
    Prices prices = priced(context, std::move(solution));
    add_cut(context, prices, program);
    if (prices.bound > best.bound) best = std::move(prices);
    if (hoped <= best.bound * (1 + kRelativeGap)) break;
  }
  return best;
}

namespace {

constexpr int kMostTries = 20'000;   // per service
constexpr double kSamePrice = 1e-9;  // in devices

// Branch and bound for the cheapest whole instances of one service. Branches on the number of
// instances of each profile, the most expensive per request first; the cheapest profile covers what
// is left. The lower bound of a branch prices the unmet need at the lowest price per request.
class WholeInstances {
 public:
  WholeInstances(const DeploymentContext& context, const Prices& prices, std::size_t service)
      : context_(context), prices_(prices), service_(service) {
    for (std::uint32_t profile = 0; profile < context.profiles(); ++profile) {
      if (context.rate(service, profile) > 0) order_.push_back(profile);
    }
    std::stable_sort(order_.begin(), order_.end(), [this](std::uint32_t one, std::uint32_t other) {
      return request_price(one) > request_price(other);
    });
  }

  // Falls back to the price per request when it exceeds kMostTries.
  double price() {
    const double need = context_.need(service_);
    if (order_.empty() || need <= 0) return 0;
    const double by_request = need * prices_.per_request[service_];
    best_ = remaining_price(need);
    try_from(0, need, 0);
    return tries_ > kMostTries ? by_request : std::max(by_request, best_);
  }

 private:
  [[nodiscard]] double request_price(std::uint32_t profile) const {
    return prices_.per_profile[profile] / context_.rate(service_, profile);
  }

  [[nodiscard]] double remaining_price(double unmet) const {
    const std::uint32_t cheapest = order_.back();
    const double count = std::ceil(unmet / context_.rate(service_, cheapest) * (1 - 1e-9));
    return std::max(0.0, count) * prices_.per_profile[cheapest];
  }

  void try_from(std::size_t at, double unmet, double paid) {
    if (at + 1 == order_.size() || unmet <= 0) {
      best_ = std::min(best_, paid + remaining_price(unmet));
      return;
    }
    const std::uint32_t profile = order_[at];
    for (int count = 0; ++tries_ <= kMostTries; ++count) {
      const double left = unmet - count * context_.rate(service_, profile);
      const double sum = paid + count * prices_.per_profile[profile];
      if (sum + std::max(0.0, left) * prices_.per_request[service_] >= best_ - kSamePrice) return;
      try_from(at + 1, left, sum);
      if (left <= 0) return;
    }
  }

  const DeploymentContext& context_;
  const Prices& prices_;
  std::size_t service_;
  std::vector<std::uint32_t> order_;  // profiles that serve the service
  double best_ = 0;
  int tries_ = 0;
};

}  // namespace

double bound_of_whole_instances(const DeploymentContext& context, const Prices& prices) {
  double bound = 0;
  for (std::size_t service = 0; service < context.services(); ++service)
    bound += WholeInstances(context, prices, service).price();
  return std::max(bound, prices.bound);
}

double lower_bound_without_rules(const DeploymentTask& task) {
  return prices_by_slices(DeploymentContext(task)).bound;
}

double lower_bound(const DeploymentTask& task) {
  return best_prices(DeploymentContext(task)).bound;
}

double lower_bound_of_whole_instances(const DeploymentTask& task) {
  const DeploymentContext context(task);
  return bound_of_whole_instances(context, best_prices(context));
}

double price_of(const InstanceMix& mix, const Prices& prices) {
  double price = 0;
  for (const UnplacedInstance& instance : mix.instances())
    price += prices.per_profile[instance.profile];
  return price;
}

}  // namespace gpulet::schedule::mig
