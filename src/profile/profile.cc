#include "gpulet/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

namespace gpulet::profile {
namespace {

Status invalid_sample(const LatencySample& sample, const std::string& problem) {
  return {StatusCode::invalid,
          fmt::format("latency sample (batch {}, {} %, {:f} ms): {}", sample.batch,
                      sample.share.percent, sample.latency_ms, problem)};
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
  if (sample.cv && !(std::isfinite(*sample.cv) && *sample.cv >= 0)) {
    return invalid_sample(sample, "a coefficient of variation must be finite and at least 0");
  }
  return {};
}

// NaN where one of the two is unknown (NaN), which std::lerp does not promise.
double lerp_known(double a, double b, double part) {
  return std::isnan(a + b) ? std::numeric_limits<double>::quiet_NaN() : std::lerp(a, b, part);
}

}  // namespace

std::string_view to_string(Doubt doubt) {
  constexpr std::array<std::string_view, 4> kNames{"", "busy", "unsteady", "neighbours"};
  return kNames.at(static_cast<std::size_t>(doubt));
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
      return invalid_sample(
          sample,
          fmt::format("another sample of this cell says {:f} ms; keep one of them", first_ms));
    }
    if (table.curves_.empty() || table.curves_.back().share != sample.share) {
      table.curves_.push_back(
          {.share = sample.share, .batches = {}, .latencies_ms = {}, .cvs = {}});
    }
    table.curves_.back().batches.push_back(sample.batch);
    table.curves_.back().latencies_ms.push_back(sample.latency_ms);
    table.curves_.back().cvs.push_back(
        sample.cv.value_or(std::numeric_limits<double>::quiet_NaN()));
    table.samples_.push_back(sample);
  }
  table.knows_spread_ = std::all_of(table.samples_.begin(), table.samples_.end(),
                                    [](const auto& sample) { return sample.cv.has_value(); });
  return table;
}

std::optional<double> LatencyTable::within_curve(const Curve& curve, Values values,
                                                 std::uint32_t batch) {
  if (batch > curve.batches.back()) return std::nullopt;
  const auto above = std::lower_bound(curve.batches.begin(), curve.batches.end(), batch);
  const auto index = static_cast<std::size_t>(above - curve.batches.begin());
  const std::vector<double>& known = curve.*values;
  if (index == 0 || *above == batch) return known[index];
  const double below_batch = curve.batches[index - 1];
  const double part = (batch - below_batch) / (*above - below_batch);
  return lerp_known(known[index - 1], known[index], part);
}

std::optional<double> LatencyTable::interpolated(Values values, std::uint32_t batch,
                                                 double percent) const {
  if (batch == 0) return std::nullopt;
  const auto larger =
      std::lower_bound(curves_.begin(), curves_.end(), percent,
                       [](const Curve& curve, double size) { return curve.share.percent < size; });
  if (larger == curves_.end()) return std::nullopt;
  if (larger->share.percent == percent) return within_curve(*larger, values, batch);
  if (larger == curves_.begin()) return std::nullopt;
  const auto smaller = larger - 1;
  const std::optional<double> at_larger = within_curve(*larger, values, batch);
  const std::optional<double> at_smaller = within_curve(*smaller, values, batch);
  if (!at_larger || !at_smaller) return std::nullopt;
  const double inverse = 1.0 / percent;
  const double inverse_larger = 1.0 / larger->share.percent;
  const double inverse_smaller = 1.0 / smaller->share.percent;
  const double part = (inverse - inverse_larger) / (inverse_smaller - inverse_larger);
  return lerp_known(*at_larger, *at_smaller, part);
}

std::optional<double> LatencyTable::latency_ms(std::uint32_t batch, Share share) const {
  return interpolated(&Curve::latencies_ms, batch, share.percent);
}

std::optional<double> LatencyTable::cv(std::uint32_t batch, Share share) const {
  const std::optional<double> known = interpolated(&Curve::cvs, batch, share.percent);
  return known && !std::isnan(*known) ? known : std::nullopt;
}

std::optional<double> LatencyTable::latency_under_quota_ms(std::uint32_t batch,
                                                           double percent) const {
  const double smallest = curves_.front().share.percent;
  const double largest = curves_.back().share.percent;
  const std::optional<double> most = interpolated(&Curve::latencies_ms, batch, largest);
  const std::optional<double> measured =
      interpolated(&Curve::latencies_ms, batch, std::clamp(percent, smallest, largest));
  if (!most || !measured) return std::nullopt;
  return std::max(*most, *measured * std::max(1.0, smallest / percent));
}

std::uint32_t LatencyTable::largest_batch(Share share) const {
  const auto larger =
      std::lower_bound(curves_.begin(), curves_.end(), share,
                       [](const Curve& curve, Share size) { return curve.share < size; });
  if (larger == curves_.end()) return 0;
  if (larger->share == share) return larger->batches.back();
  if (larger == curves_.begin()) return 0;
  return std::min(larger->batches.back(), (larger - 1)->batches.back());
}

const ModelProfile* Profile::find(std::string_view model) const {
  const auto found = models.find(model);
  return found == models.end() ? nullptr : &found->second;
}

bool Profile::knows_processes() const {
  return std::any_of(models.begin(), models.end(),
                     [](const auto& entry) { return !entry.second.shared_latency.empty(); });
}

namespace {

// Whether a row has the same batch and size.
template <typename Row>
bool has_cell(const std::vector<Row>& rows, const Row& wanted) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return row.share == wanted.share && row.batch == wanted.batch;
  });
}

using Cells = std::set<std::pair<Share, std::uint32_t>>;

LatencyTable merged(const LatencyTable& stored, const LatencyTable& measured,
                    const Cells& requested) {
  std::vector<LatencySample> samples = measured.samples();
  for (const LatencySample& sample : stored.samples()) {
    if (!has_cell(samples, sample) && !requested.contains({sample.share, sample.batch}))
      samples.push_back(sample);
  }
  return LatencyTable::create(std::move(samples)).value();  // no cell occurs twice
}

ModelProfile updated(const ModelProfile& stored, ModelProfile measured, const Cells& requested) {
  measured.latency = merged(stored.latency, measured.latency, requested);
  for (const auto& [processes, table] : stored.shared_latency) {
    const auto [found, added] = measured.shared_latency.try_emplace(processes, table);
    if (!added) found->second = merged(table, found->second, {});
  }
  for (const Utilization& row : stored.utilization) {
    if (!has_cell(measured.utilization, row)) measured.utilization.push_back(row);
  }
  for (const auto number : {&ModelProfile::memory_mb, &ModelProfile::kernels,
                            &ModelProfile::input_bytes, &ModelProfile::output_bytes}) {
    if (!(measured.*number)) measured.*number = stored.*number;
  }
  if (!measured.controller) measured.controller = stored.controller;
  return measured;
}

}  // namespace

Profile updated(Profile stored, Profile measured, const CellSet& requested) {
  for (auto& [key, text] : measured.provenance) stored.provenance.insert_or_assign(key, text);
  if (measured.pcie_gbps) stored.pcie_gbps = measured.pcie_gbps;
  for (auto& [name, model] : measured.models) {
    const auto before = stored.models.find(name);
    if (before == stored.models.end()) {
      stored.models.emplace(name, std::move(model));
      continue;
    }
    const auto cells = requested.find(name);
    before->second = updated(before->second, std::move(model),
                             cells == requested.end() ? CellSet::mapped_type() : cells->second);
  }
  return stored;
}

}  // namespace gpulet::profile
