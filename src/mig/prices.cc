#include "mig/prices.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "mig/small_program.h"

namespace gpulet::mig {
namespace {

constexpr int kMostCuts = 200;
constexpr double kGoodEnough = 1e-9;  // relative, of the bound

// The profile on which a request of the service costs least.
std::size_t cheapest(const Problem& problem, std::size_t service,
                     const std::vector<double>& of_profile) {
  std::size_t chosen = problem.profiles();
  double least = 0;
  for (std::size_t profile = 0; profile < problem.profiles(); ++profile) {
    const double rate = problem.rate(service, profile);
    if (rate <= 0) continue;
    const double price = of_profile[profile] / rate;
    if (chosen < problem.profiles() && price >= least) continue;
    chosen = profile;
    least = price;
  }
  return chosen;
}

Prices priced(const Problem& problem, std::vector<double> of_profile) {
  double dearest = 0;
  for (const Shape& shape : problem.shapes()) {
    double sum = 0;
    for (const std::uint32_t profile : shape.profiles) sum += of_profile[profile];
    dearest = std::max(dearest, sum);
  }
  Prices prices;
  if (dearest > 0) {
    for (double& price : of_profile) price /= dearest;
  }
  for (std::size_t service = 0; service < problem.services(); ++service) {
    double price = 0;
    if (problem.need(service) > 0) {
      const std::size_t profile = cheapest(problem, service, of_profile);
      price = of_profile[profile] / problem.rate(service, profile);
    }
    prices.of_request.push_back(price);
    prices.bound += problem.need(service) * price;
  }
  prices.of_profile = std::move(of_profile);
  return prices;
}

// The unknowns are the prices and, last, the bound.
SmallProgram without_cuts(const Problem& problem) {
  SmallProgram program;
  program.objective.assign(problem.profiles() + 1, 0);
  program.objective.back() = 1;
  for (const Shape& shape : problem.shapes()) {
    std::vector<double>& row = program.rows.emplace_back(problem.profiles() + 1, 0);
    for (const std::uint32_t profile : shape.profiles) row[profile] += 1;
    program.limits.push_back(1);
  }
  return program;
}

// The bound is concave in the prices: nowhere above what it would be if each service kept the
// profile that is cheapest at these.
void add_cut(const Problem& problem, const Prices& prices, SmallProgram& program) {
  std::vector<double>& row = program.rows.emplace_back(problem.profiles() + 1, 0);
  for (std::size_t service = 0; service < problem.services(); ++service) {
    if (problem.need(service) <= 0) continue;
    const std::size_t profile = cheapest(problem, service, prices.of_profile);
    row[profile] -= problem.need(service) / problem.rate(service, profile);
  }
  row.back() = 1;
  program.limits.push_back(0);
}

}  // namespace

Prices prices_by_slices(const Problem& problem) {
  std::vector<double> of_profile;
  for (std::uint32_t profile = 0; profile < problem.profiles(); ++profile)
    of_profile.push_back(static_cast<double>(problem.slices(profile)) / problem.compute_slices());
  return priced(problem, std::move(of_profile));
}

// Kelley's cutting planes: the prices that would be best by the cuts so far give the next cut.
Prices best_prices(const Problem& problem) {
  Prices best = prices_by_slices(problem);
  if (best.bound <= 0) return best;
  SmallProgram program = without_cuts(problem);
  add_cut(problem, best, program);
  for (int cuts = 0; cuts < kMostCuts; ++cuts) {
    std::vector<double> solution = maximise(program);
    const double hoped = solution.back();
    solution.pop_back();
    for (double& price : solution) price = std::max(price, 0.0);
    Prices prices = priced(problem, std::move(solution));
    add_cut(problem, prices, program);
    if (prices.bound > best.bound) best = std::move(prices);
    if (hoped <= best.bound * (1 + kGoodEnough)) break;
  }
  return best;
}

}  // namespace gpulet::mig
