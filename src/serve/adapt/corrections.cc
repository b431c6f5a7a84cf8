#include "serve/adapt/corrections.h"

#include <algorithm>
#include <cmath>

namespace gpulet::serve {
namespace {

constexpr Duration kSlice = std::chrono::seconds(1);
constexpr double kLeastBatches = 10;       // of a slice
constexpr std::uint64_t kLeastSlices = 3;  // before the first correction
// A longer batch counts as this multiple of the predicted time, so an outlier does not decide.
constexpr double kMostOfOne = 3;
// A difference of less is due to the machine: switches between processes, timers.
constexpr Duration kNegligible = std::chrono::microseconds(200);
// A factor changes by at least this much.
constexpr double kStep = 0.05;
// Standard errors beyond which a difference is not chance.
constexpr double kDeviations = 3;
// The newest slices still rise: the correction waits for at most this many, so one change of the
// pace leads to one change of the correction.
constexpr std::uint32_t kMostRising = 2;
constexpr double kErrorOfMedian = 1.25;  // relative to that of the mean

// Bucket i of the ratios ends at kFirstRatio * kRatioStep^i.
constexpr double kFirstRatio = 0.25;
constexpr double kRatioStep = 1.2;
constexpr float kMostCounted = 2000;  // then all counts are halved
constexpr float kLeastCounted = 50;

double seconds_of(Duration duration) { return to_seconds(std::max(duration, Duration(1))); }

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

PaceEstimate::PaceEstimate(const CorrectionTimes& times, double factor, Time now)
    : times_(times),
      slice_began_(now),
      last_batch_(now),
      medians_{{now, factor}},
      factor_(factor) {}

void PaceEstimate::add(const ObservedBatch& batch, Time now) {
  const double alone = seconds_of(batch.alone);
  const double beside = std::max(alone, seconds_of(batch.beside));
  Duration longer = batch.executed;
  if (longer > batch.beside) longer = std::max(batch.beside, longer - kNegligible);
  const double ratio = seconds_of(longer) / beside;
  const double counted = std::min(ratio, kMostOfOne * std::max(1.0, factor_));
  slice_.batches += 1;
  slice_.executed_s += counted * beside;
  slice_.alone_s += alone;
  slice_.beside_s += beside;
  slice_.ratios += counted;
  slice_.squares += counted * counted;
  last_batch_ = now;
  ++batches_;
  const double bucket = std::ceil(std::log(ratio / kFirstRatio) / std::log(kRatioStep));
  ++ratios_[static_cast<std::size_t>(std::clamp(bucket, 0.0, double{kBuckets - 1}))];
  if (++counted_ < kMostCounted) return;
  counted_ = 0;
  for (float& count : ratios_) counted_ += count /= 2;
}

void PaceEstimate::tick(Time now) {
  if (now - slice_began_ < kSlice) return;
  if (slice_.batches < kLeastBatches) return;
  close_slice(now);
}

PaceEstimate::Pace PaceEstimate::pace_of(const Slice& slice) {
  Pace pace;
  if (slice.executed_s > slice.beside_s) pace.ratio = slice.executed_s / slice.beside_s;
  if (slice.executed_s < slice.alone_s) pace.ratio = slice.executed_s / slice.alone_s;
  const double mean = slice.ratios / slice.batches;
  const double variance = std::max(0.0, slice.squares / slice.batches - mean * mean);
  pace.error = std::sqrt(variance / slice.batches) / mean;
  return pace;
}

void PaceEstimate::close_slice(Time now) {
  recent_[slices_ % kSlices] = pace_of(slice_);
  ++slices_;
  slice_ = {};
  slice_began_ = now;
  if (slices_ < kLeastSlices) return;
  const std::size_t count = std::min<std::uint64_t>(slices_, kSlices);
  std::vector<double> ratios;
  double error = 0;
  for (std::size_t i = 0; i < count; ++i) {
    ratios.push_back(recent_[i].ratio);
    error += recent_[i].error / static_cast<double>(count);
  }
  follow(median_of(std::move(ratios)),
         kErrorOfMedian * error / std::sqrt(static_cast<double>(count)), now);
}

void PaceEstimate::follow(double median, double error, Time now) {
  median = std::clamp(median, kLeastCorrection, kMostCorrection);
  medians_.emplace_back(now, median);
  // The last one before the period counts as well: it held at the period's beginning.
  while (medians_.size() > 1 && medians_[1].first <= now - times_.period) medians_.pop_front();
  if (median * (1 - kDeviations * error) > factor_ * (1 + kStep)) {
    const double newest = recent_[(slices_ - 1) % kSlices].ratio;
    if (newest > median * (1 + kStep) && rising_++ < kMostRising) return;
    factor_ = median;
    rising_ = 0;
    return;
  }
  rising_ = 0;
  if (medians_.front().first > now - times_.period) return;
  double most = 0;
  for (const auto& [time, value] : medians_) most = std::max(most, value);
  if (most * (1 + kDeviations * error) < factor_ * (1 - kStep)) factor_ = most;
}

double PaceEstimate::tail() const {
  if (counted_ < kLeastCounted) return 0;
  float above = 0;
  for (std::size_t bucket = kBuckets; bucket-- > 0;) {
    above += ratios_[bucket];
    if (above >= counted_ / 100)
      return kFirstRatio * std::pow(kRatioStep, static_cast<double>(bucket));
  }
  return 0;
}

// ---- all places

PaceEstimate& CorrectionEstimator::at(const ObservedPlace& place, Time now) {
  const auto found = estimates_.find(place);
  if (found != estimates_.end()) return found->second;
  return estimates_.emplace(place, PaceEstimate(times_, known_of(place), now)).first->second;
}

double CorrectionEstimator::known_of(const ObservedPlace& place) const {
  double at_size = 0;
  double elsewhere = 1;
  std::uint64_t most_batches = 0;
  const ObservedPlace first{place.model, place.device_type, Share{}, {}};
  for (auto one = estimates_.lower_bound(first); one != estimates_.end(); ++one) {
    const auto& [other, estimate] = *one;
    if (other.model != place.model || other.device_type != place.device_type) break;
    const double usual = estimate.factor() / slowness_of(slow_devices_, other.device);
    if (other.size == place.size) at_size = std::max(at_size, usual);
    if (estimate.batches() < most_batches) continue;
    most_batches = estimate.batches();
    elsewhere = usual;
  }
  return (at_size > 0 ? at_size : elsewhere) * slowness_of(slow_devices_, place.device);
}

bool CorrectionEstimator::tick(Time now) {
  const std::size_t erased =
      std::erase_if(estimates_, [now](const auto& entry) { return entry.second.forgotten(now); });
  std::vector<ObservedFactor> factors;
  factors.reserve(estimates_.size());
  for (auto& [place, estimate] : estimates_) {
    estimate.tick(now);
    factors.push_back({place, estimate.factor()});
  }
  slow_devices_ = find_slow_devices(factors, slow_devices_);
  return erased > 0;
}

void CorrectionEstimator::forget(const std::string& model) {
  std::erase_if(estimates_, [&model](const auto& entry) { return entry.first.model == model; });
}

std::vector<CorrectionStatus> CorrectionEstimator::status() const { return by_size({}); }

std::vector<CorrectionStatus> CorrectionEstimator::by_size(const SlowDevices& slow) const {
  std::vector<CorrectionStatus> all;
  for (const auto& [place, estimate] : estimates_) {
    const bool first = all.empty() || all.back().model != place.model ||
                       all.back().device_type != place.device_type || all.back().size != place.size;
    if (first) all.push_back({place.model, place.device_type, place.size, place.device, 0, 0, 0});
    CorrectionStatus& one = all.back();
    const double factor = estimate.factor() / slowness_of(slow, place.device);
    if (factor > one.factor) {
      one.factor = factor;
      one.slowest = place.device;
    }
    one.tail = std::max(one.tail, estimate.tail());
    one.batches += estimate.batches();
  }
  return all;
}

profile::Corrections CorrectionEstimator::corrections() const {
  profile::Corrections corrections;
  std::uint64_t most_batches = 0;  // of the sizes of one model on one type, which are adjacent
  for (const CorrectionStatus& one : by_size(slow_devices_)) {
    profile::ModelCorrection& of_model = corrections[one.device_type][one.model];
    if (of_model.at_size.empty()) most_batches = 0;
    if (of_model.at_size.empty() || one.batches > most_batches) {
      most_batches = one.batches;
      of_model.factor = one.factor;
    }
    of_model.at_size[one.size] = one.factor;
  }
  for (auto& [type, models] : corrections) {
    std::erase_if(models, [](const auto& entry) {
      return std::all_of(entry.second.at_size.begin(), entry.second.at_size.end(),
                         [](const auto& at) { return at.second == 1; });
    });
  }
  std::erase_if(corrections, [](const auto& entry) { return entry.second.empty(); });
  return corrections;
}

}  // namespace gpulet::serve
