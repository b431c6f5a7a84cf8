#include "schedule/cover/linear_program.h"

#include <ClpSimplex.hpp>
#include <CoinError.hpp>
#include <algorithm>

namespace gpulet::schedule {

struct LinearProgram::Solver {
  ClpSimplex simplex;
  // Columns since the last solve: CLP takes many at once far faster.
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
  // Without a basis the dual starts feasible, since no cost is negative; after new columns the
  // primal does.
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

}  // namespace gpulet::schedule
