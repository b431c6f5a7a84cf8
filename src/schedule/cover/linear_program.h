// A linear program that grows by columns: minimize cost * x subject to rows of the form
// sum >= bound, x >= 0. All that is seen of CLP here. Deterministic; one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace gpulet::schedule {

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

  // REQUIRES: cost >= 0. Columns are numbered from 0 as they come.
  void add_column(double cost, std::span<const Entry> entries);

  // Starts from the solution before, if there is one. False where none is found: the rows cannot
  // be met, or CLP gave up.
  bool solve();

  // Of the last solve that found a solution: what one more unit of each row's bound would cost.
  [[nodiscard]] const std::vector<double>& prices() const { return prices_; }

 private:
  struct Solver;
  std::unique_ptr<Solver> solver_;
  std::vector<double> prices_;
};

}  // namespace gpulet::schedule
