// Exact percentiles: every sample is kept. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace gpulet::load {

class Samples {
 public:
  void add(double value) { values_.push_back(value); }

  [[nodiscard]] std::size_t size() const { return values_.size(); }

  // The smallest sample that at least `percent` of all samples do not exceed (nearest rank); empty
  // without samples. REQUIRES: 0 <= percent <= 100.
  [[nodiscard]] std::optional<double> percentile(double percent) const;
  [[nodiscard]] std::optional<double> max() const;

 private:
  std::vector<double> values_;
};

}  // namespace gpulet::load
