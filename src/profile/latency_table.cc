#include "gpulet/profile/latency_table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

namespace gpulet::profile {
namespace {

Status invalid_sample(const LatencySample& sample, const std::string& what) {
  return {StatusCode::invalid, "latency sample (batch " + std::to_string(sample.batch) + ", " +
                                   std::to_string(sample.share.percent) + " %, " +
                                   std::to_string(sample.latency_ms) + " ms): " + what};
}

Status validate(const LatencySample& sample) {
  if (sample.batch == 0)
    return invalid_sample(sample, "the batch must be at least 1; take the sample out");
  if (!sample.share.valid())
    return invalid_sample(sample, "the size must be 1 to 100 %; correct it");
  const auto is_latency = [](double value) { return std::isfinite(value) && value > 0; };
  if (!is_latency(sample.latency_ms) || (sample.p99_ms && !is_latency(*sample.p99_ms))) {
    return invalid_sample(sample, "a latency must be finite and above 0; measure the cell again");
  }
  return {};
}

}  // namespace

std::string_view to_string(Doubt doubt) {
  switch (doubt) {
    case Doubt::none:
      return "";
    case Doubt::busy:
      return "busy";
    case Doubt::unsteady:
      return "unsteady";
    case Doubt::neighbours:
      return "neighbours";
  }
  return "";
}

Result<LatencyTable> LatencyTable::create(std::vector<LatencySample> samples) {
  if (samples.empty()) {
    return Status(StatusCode::invalid,
                  "no latency samples; give at least one measured batch at one size");
  }
  for (const LatencySample& sample : samples) {
    if (Status status = validate(sample); !status.ok()) return status;
  }
  const auto cell = [](const LatencySample& sample) {
    return std::tie(sample.share, sample.batch);
  };
  std::stable_sort(samples.begin(), samples.end(),
                   [&cell](const auto& a, const auto& b) { return cell(a) < cell(b); });

  LatencyTable table;
  for (const LatencySample& sample : samples) {
    if (!table.samples_.empty() && cell(table.samples_.back()) == cell(sample)) {
      const double first_ms = table.samples_.back().latency_ms;
      if (first_ms == sample.latency_ms) continue;
      return invalid_sample(sample, "another sample of this cell says " + std::to_string(first_ms) +
                                        " ms; keep one of them");
    }
    if (table.rows_.empty() || table.rows_.back().share != sample.share) {
      table.rows_.push_back({.share = sample.share, .batches = {}, .latencies_ms = {}});
    }
    table.rows_.back().batches.push_back(sample.batch);
    table.rows_.back().latencies_ms.push_back(sample.latency_ms);
    table.samples_.push_back(sample);
  }
  return table;
}

std::optional<double> LatencyTable::within_row(const Row& row, std::uint32_t batch) {
  if (batch > row.batches.back()) return std::nullopt;
  const auto above = std::lower_bound(row.batches.begin(), row.batches.end(), batch);
  const auto index = static_cast<std::size_t>(above - row.batches.begin());
  if (index == 0 || *above == batch) return row.latencies_ms[index];
  const double below_batch = row.batches[index - 1];
  const double part = (batch - below_batch) / (*above - below_batch);
  return std::lerp(row.latencies_ms[index - 1], row.latencies_ms[index], part);
}

std::optional<double> LatencyTable::interpolated(std::uint32_t batch, double percent) const {
  if (batch == 0) return std::nullopt;
  const auto larger =
      std::lower_bound(rows_.begin(), rows_.end(), percent,
                       [](const Row& row, double wanted) { return row.share.percent < wanted; });
  if (larger == rows_.end()) return std::nullopt;
  if (larger->share.percent == percent) return within_row(*larger, batch);
  if (larger == rows_.begin()) return std::nullopt;
  const auto smaller = larger - 1;
  const std::optional<double> at_larger = within_row(*larger, batch);
  const std::optional<double> at_smaller = within_row(*smaller, batch);
  if (!at_larger || !at_smaller) return std::nullopt;
  const double inverse = 1.0 / percent;
  const double inverse_larger = 1.0 / larger->share.percent;
  const double inverse_smaller = 1.0 / smaller->share.percent;
  const double part = (inverse - inverse_larger) / (inverse_smaller - inverse_larger);
  return std::lerp(*at_larger, *at_smaller, part);
}

std::optional<double> LatencyTable::latency_ms(std::uint32_t batch, Share share) const {
  return interpolated(batch, share.percent);
}

std::optional<double> LatencyTable::latency_under_quota_ms(std::uint32_t batch,
                                                           double percent) const {
  const double smallest = rows_.front().share.percent;
  const double largest = rows_.back().share.percent;
  const std::optional<double> most = interpolated(batch, largest);
  const std::optional<double> measured =
      interpolated(batch, std::clamp(percent, smallest, largest));
  if (!most || !measured) return std::nullopt;
  return std::max(*most, *measured * std::max(1.0, smallest / percent));
}

std::uint32_t LatencyTable::largest_batch(Share share) const {
  const auto larger =
      std::lower_bound(rows_.begin(), rows_.end(), share,
                       [](const Row& row, Share wanted) { return row.share < wanted; });
  if (larger == rows_.end()) return 0;
  if (larger->share == share) return larger->batches.back();
  if (larger == rows_.begin()) return 0;
  return std::min(larger->batches.back(), (larger - 1)->batches.back());
}

}  // namespace gpulet::profile
