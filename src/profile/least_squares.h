// Ordinary least squares. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace gpulet::profile {

// The weights w that minimise the sum of (row . w - target)^2 over `rows` of `columns` numbers
// each, by Householder's QR: normal equations would square the condition number, and utilisations
// of L2 and memory are close to proportional. Empty where rows are too few or dependent.
[[nodiscard]] std::optional<std::vector<double>> least_squares(std::vector<double> rows,
                                                               std::size_t columns,
                                                               std::vector<double> targets);

}  // namespace gpulet::profile
