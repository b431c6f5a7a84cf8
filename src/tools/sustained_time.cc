#include "tools/sustained_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpulet::tools {
namespace {

constexpr std::size_t kFewestBlocks = 3;
constexpr double kConfidence = 1.57;

// Between the two values nearest to that fraction of the way through them. REQUIRES: not empty.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

}  // namespace

void SustainedTime::add(Duration interval) {
  intervals_ms_.push_back(to_ms(interval));
  total_ += interval;
  under_way_ += interval;
  ++batches_under_way_;
  if (under_way_ < block_) return;
  blocks_ms_.push_back(to_ms(under_way_) / batches_under_way_);
  under_way_ = {};
  batches_under_way_ = 0;
}

std::vector<double> SustainedTime::sorted_blocks() const {
  std::vector<double> sorted = blocks_ms_;
  // All together were shorter than a block.
  if (sorted.empty()) sorted.push_back(to_ms(under_way_) / batches_under_way_);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double SustainedTime::median_ms() const { return quantile(sorted_blocks(), 0.5); }

double SustainedTime::p99_ms() const {
  std::vector<double> sorted = intervals_ms_;
  std::sort(sorted.begin(), sorted.end());
  const auto rank =
      static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(sorted.size()))) - 1;
  return sorted[rank];
}

double SustainedTime::spread() const {
  if (blocks_ms_.size() < kFewestBlocks) return std::numeric_limits<double>::infinity();
  const std::vector<double> sorted = sorted_blocks();
  const double range = quantile(sorted, 0.75) - quantile(sorted, 0.25);
  return kConfidence * range / std::sqrt(static_cast<double>(sorted.size())) /
         quantile(sorted, 0.5);
}

}  // namespace gpulet::tools
