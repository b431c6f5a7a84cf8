#include "mig/small_program.h"

#include <cstddef>
#include <limits>
#include <utility>

namespace gpulet::mig {
namespace {

constexpr double kZero = 1e-11;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
// Rounding could make the rule's promise void.
constexpr std::size_t kMostPivots = 10'000;

// A dictionary (Chvatal): each basic unknown is its limit minus a row of those that are 0. The last
// row is the objective.
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
  std::vector<std::size_t> basic_, zero_;  // unknowns: the program's, then one for each row
};

}  // namespace

std::vector<double> maximise(const SmallProgram& program) {
  Table table(program);
  for (std::size_t pivots = 0; pivots < kMostPivots && table.step(); ++pivots) continue;
  return table.solution();
}

}  // namespace gpulet::mig
