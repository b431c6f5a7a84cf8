#include "gpulet/profile/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace gpulet::profile {
namespace {

// How much a model's size counts beside the ratios of its latencies.
constexpr double kWeightOfSize = 0.25;

// The latency of the nearest model, beyond its cells as well.
double extended_ms(const LatencyTable& table, std::uint32_t batch, Share size) {
  const std::uint32_t largest =
      std::max_element(
          table.samples().begin(), table.samples().end(),
          [](const LatencySample& a, const LatencySample& b) { return a.batch < b.batch; })
          ->batch;
  for (std::uint32_t known = std::min(batch, largest); known > 0; --known) {
    if (const auto latency_ms = table.latency_under_quota_ms(known, size.percent))
      return *latency_ms * batch / known;
  }
  return table.samples().back().latency_ms * batch;
}

// The factors between the probes of one size and what they are compared with, by batch.
using Scales = std::map<std::uint32_t, double>;

// Geometric between two batches, constant beyond them.
double scale_at(const Scales& scales, std::uint32_t batch) {
  const auto above = scales.lower_bound(batch);
  if (above == scales.end()) return scales.rbegin()->second;
  if (above == scales.begin() || above->first == batch) return above->second;
  const auto below = std::prev(above);
  const double part = std::log(static_cast<double>(batch) / below->first) /
                      std::log(static_cast<double>(above->first) / below->first);
  return std::pow(below->second, 1 - part) * std::pow(above->second, part);
}

class Estimator {
 public:
  Estimator(const LatencyTable* nearest, std::span<const LatencySample> probes)
      : nearest_(nearest), probes_(probes) {
    for (const LatencySample& probe : probes)
      scales_[probe.share][probe.batch] =
          probe.latency_ms / reference_ms(probe.batch, probe.share, probe.share);
  }

  // Without the margin.
  [[nodiscard]] double latency_ms(std::uint32_t batch, Share size) const {
    const auto& [probed, scales] = *closest(size);
    const std::uint32_t largest = scales.rbegin()->first;
    double estimate = scale_at(scales, batch) * reference_ms(batch, size, probed);
    if (batch > largest) {
      const double at_largest = scales.rbegin()->second * reference_ms(largest, size, probed);
      estimate = std::max(estimate, at_largest * batch / largest);
    }
    return estimate;
  }

  // What the probes imply: a cell takes at least as long as less work on more of the device.
  [[nodiscard]] double least_ms(std::uint32_t batch, Share size) const {
    double least = 0;
    for (const LatencySample& probe : probes_) {
      if (probe.batch <= batch && probe.share >= size) least = std::max(least, probe.latency_ms);
    }
    return least;
  }

 private:
  // Without a nearest model: in proportion to the batch, and below the probed size to its share.
  [[nodiscard]] double reference_ms(std::uint32_t batch, Share size, Share probed) const {
    if (nearest_ != nullptr) return extended_ms(*nearest_, batch, size);
    return batch * std::max(1.0, static_cast<double>(probed.percent) / size.percent);
  }
  // The probed size whose ratio to `size` is smallest, the smaller one of two.
  [[nodiscard]] std::map<Share, Scales>::const_iterator closest(Share size) const {
    const auto distance = [size](const auto& entry) {
      return std::abs(std::log(static_cast<double>(entry.first.percent) / size.percent));
    };
    return std::min_element(scales_.begin(), scales_.end(), [&](const auto& a, const auto& b) {
      return distance(a) < distance(b);
    });
  }

  const LatencyTable* nearest_;
  std::span<const LatencySample> probes_;
  std::map<Share, Scales> scales_;
};

// Powers of two up to the largest batch, and that one.
std::set<std::uint32_t> batches_up_to(std::uint32_t largest) {
  std::set<std::uint32_t> batches{largest};
  for (std::uint32_t batch = 1; batch < largest; batch *= 2) batches.insert(batch);
  return batches;
}

// How different the latencies are from those at the probes; infinite where none can be compared.
double distance_to(const LatencyTable& table, std::span<const LatencySample> probes) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  std::size_t compared = 0;
  for (const LatencySample& probe : probes) {
    const auto known_ms = table.latency_ms(probe.batch, probe.share);
    if (!known_ms) continue;
    const double ratio = std::log(probe.latency_ms / *known_ms);
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    sum += ratio;
    ++compared;
  }
  if (compared == 0) return std::numeric_limits<double>::infinity();
  return most - least + kWeightOfSize * std::abs(sum / static_cast<double>(compared));
}

}  // namespace

std::optional<NearestModel> nearest_model(const Profile& profile,
                                          std::span<const LatencySample> probes) {
  std::optional<NearestModel> nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, model] : profile.models) {
    if (model.estimate) continue;
    const double distance = distance_to(model.latency, probes);
    if (distance >= least) continue;
    least = distance;
    nearest = {name, &model.latency};
  }
  return nearest;
}

LatencyTable estimated_latencies(const LatencyTable* nearest, std::span<const LatencySample> probes,
                                 const EstimatedCells& cells) {
  const Estimator estimator(nearest, probes);
  std::vector<LatencySample> samples(probes.begin(), probes.end());
  std::set<std::pair<std::uint32_t, Share>> probed;
  for (const LatencySample& probe : probes) probed.emplace(probe.batch, probe.share);
  for (const Share size : cells.sizes) {
    for (const std::uint32_t batch : batches_up_to(cells.largest_batch)) {
      if (probed.contains({batch, size})) continue;
      const double latency_ms = std::max(cells.margin * estimator.latency_ms(batch, size),
                                         estimator.least_ms(batch, size));
      samples.push_back({.batch = batch, .share = size, .latency_ms = latency_ms});
    }
  }
  return LatencyTable::create(std::move(samples)).value();
}

}  // namespace gpulet::profile
