#include "profile/least_squares.h"

#include <cmath>

namespace gpulet::profile {

std::optional<std::vector<double>> least_squares(std::vector<double> rows, std::size_t columns,
                                                 std::vector<double> targets) {
  const std::size_t count = targets.size();
  if (count < columns || columns == 0 || rows.size() != count * columns) return std::nullopt;
  const auto at = [&](std::size_t row, std::size_t column) -> double& {
    return rows[row * columns + column];
  };
  std::vector<double> diagonal(columns);
  std::vector<double> lengths(columns);
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < count; ++row) {
      lengths[column] = std::hypot(lengths[column], at(row, column));
    }
  }
  for (std::size_t k = 0; k < columns; ++k) {
    // The reflection that turns column k, from row k on, into one number.
    double length = 0;
    for (std::size_t row = k; row < count; ++row) length = std::hypot(length, at(row, k));
    constexpr double kDependent = 1e-10;
    if (!(length > kDependent * lengths[k])) return std::nullopt;
    diagonal[k] = at(k, k) > 0 ? -length : length;
    at(k, k) -= diagonal[k];
    double norm = 0;
    for (std::size_t row = k; row < count; ++row) norm += at(row, k) * at(row, k);
    const auto reflect = [&](auto&& value) {
      double dot = 0;
      for (std::size_t row = k; row < count; ++row) dot += at(row, k) * value(row);
      for (std::size_t row = k; row < count; ++row) value(row) -= 2 * dot / norm * at(row, k);
    };
    for (std::size_t column = k + 1; column < columns; ++column) {
      reflect([&](std::size_t row) -> double& { return at(row, column); });
    }
    reflect([&](std::size_t row) -> double& { return targets[row]; });
  }
  std::vector<double> weights(columns);
  for (std::size_t k = columns; k-- > 0;) {
    double rest = targets[k];
    for (std::size_t column = k + 1; column < columns; ++column) {
      rest -= at(k, column) * weights[column];
    }
    weights[k] = rest / diagonal[k];
    if (!std::isfinite(weights[k])) return std::nullopt;
  }
  return weights;
}

}  // namespace gpulet::profile
