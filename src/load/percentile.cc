#include "gpulet/load/percentile.h"

#include <algorithm>
#include <cmath>

namespace gpulet::load {

std::optional<double> Samples::percentile(double percent) const {
  if (values_.empty()) return std::nullopt;
  // percent * size before the division: 99 % of 100 samples is exactly 99, where 0.99 * 100 may not
  // be.
  const double exact_rank = std::ceil(percent * static_cast<double>(values_.size()) / 100.0);
  const auto rank =
      std::clamp<std::size_t>(static_cast<std::size_t>(exact_rank), 1, values_.size());
  std::vector<double> ordered = values_;
  const auto nth = ordered.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(ordered.begin(), nth, ordered.end());
  return *nth;
}

std::optional<double> Samples::max() const {
  if (values_.empty()) return std::nullopt;
  return *std::max_element(values_.begin(), values_.end());
}

}  // namespace gpulet::load
