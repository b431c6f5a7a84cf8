#include "tools/cell_doubts.h"

#include <algorithm>
#include <limits>

namespace gpulet::tools {
namespace {

using profile::Doubt;
using profile::LatencySample;

// How many times the work of `other` the cell has, or how many times less share it has for it; at
// least 1.
double allowed_ms(const LatencySample& cell, const LatencySample& other) {
  const double batches = static_cast<double>(cell.batch) / other.batch;
  const double shares = static_cast<double>(other.share.percent) / cell.share.percent;
  return other.latency_ms * std::max(1.0, batches) * std::max(1.0, shares);
}

// `order` tells a sample's place along the line of neighbours.
template <typename OnLine, typename Order>
double least_of_nearest(const std::vector<LatencySample>& samples, const LatencySample& cell,
                        OnLine on_line, Order order) {
  const LatencySample* below = nullptr;
  const LatencySample* above = nullptr;
  for (const LatencySample& one : samples) {
    if (!on_line(one)) continue;
    if (order(one) < order(cell) && (below == nullptr || order(one) > order(*below))) below = &one;
    if (order(one) > order(cell) && (above == nullptr || order(one) < order(*above))) above = &one;
  }
  double least = std::numeric_limits<double>::infinity();
  if (below != nullptr) least = std::min(least, allowed_ms(cell, *below));
  if (above != nullptr) least = std::min(least, allowed_ms(cell, *above));
  return least;
}

}  // namespace

double above_neighbours(const std::vector<LatencySample>& samples, std::size_t cell) {
  const LatencySample& one = samples.at(cell);
  const double by_batch = least_of_nearest(
      samples, one, [&one](const LatencySample& other) { return other.share == one.share; },
      [](const LatencySample& other) { return other.batch; });
  const double by_size = least_of_nearest(
      samples, one, [&one](const LatencySample& other) { return other.batch == one.batch; },
      [](const LatencySample& other) { return other.share; });
  return one.latency_ms / std::min(by_batch, by_size);
}

void doubt_by_neighbours(std::vector<LatencySample>& samples) {
  for (std::size_t cell = 0; cell < samples.size(); ++cell) {
    if (samples[cell].doubt == Doubt::none && above_neighbours(samples, cell) > kAboveNeighbours)
      samples[cell].doubt = Doubt::neighbours;
  }
}

LatencySample better_of(const LatencySample& a, const LatencySample& b) {
  const bool a_is_sure = a.doubt == Doubt::none;
  const bool b_is_sure = b.doubt == Doubt::none;
  if (a_is_sure != b_is_sure) return a_is_sure ? a : b;
  return b.latency_ms < a.latency_ms ? b : a;
}

}  // namespace gpulet::tools
