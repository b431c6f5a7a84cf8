#include "research/inss_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "gpulet/base/percentile.h"
#include "profile/fitting.h"

namespace gpulet::research {

using namespace profile;  // NOLINT(google-build-using-namespace)

namespace {

// The width of the regression in steps between the samples. This and the power of 4 by which
// launches hide work were chosen by leave-one-out over the 16 fitted cells.
constexpr double kWidthInSteps = 0.8;
// Work far below the scheduling time does not show in a latency; this fraction is assumed.
constexpr double kLeastVisible = 0.05;

constexpr std::size_t kTerms = 4;  // 1, batch, 1/share, batch/share
using Terms = std::array<double, kTerms>;

double fourth_power(double value) { return value * value * value * value; }
double fourth_root(double value) { return std::sqrt(std::sqrt(value)); }

// The duration of two overlapping times, of which the larger hides most of the smaller.
double overlapped(double a, double b) {
  const double larger = std::max(a, b);
  if (!(larger > 0)) return 0;
  return larger * fourth_root(1 + fourth_power(std::min(a, b) / larger));
}

// The step between `count` values that are spread evenly over a range.
double step_of(double least, double most, std::size_t count) {
  const double step = (most - least) / static_cast<double>(count - 1);
  return step > 0 ? step : 1;
}

class NormalEquations {
 public:
  void add(const Terms& terms, double target, double weight) {
    for (std::size_t row = 0; row < kTerms; ++row) {
      for (std::size_t column = 0; column <= row; ++column) {
        matrix_[row][column] += weight * terms[row] * terms[column];
      }
      right_[row] += weight * terms[row] * target;
    }
  }

  // The best weights, by Cholesky decomposition. Samples may be few or collinear, so a small ridge
  // term determines the rest.
  [[nodiscard]] Terms solve() const {
    constexpr double kRidge = 1e-6;
    std::array<Terms, kTerms> lower{};
    Terms solution{};
    for (std::size_t row = 0; row < kTerms; ++row) {
      for (std::size_t column = 0; column <= row; ++column) {
        double rest = matrix_[row][column];
        if (row == column) rest *= 1 + kRidge;
        for (std::size_t k = 0; k < column; ++k) rest -= lower[row][k] * lower[column][k];
        lower[row][column] = row == column ? std::sqrt(std::max(rest, kTiny * matrix_[row][row]))
                                           : rest / lower[column][column];
      }
      solution[row] = right_[row];
      for (std::size_t k = 0; k < row; ++k) solution[row] -= lower[row][k] * solution[k];
      solution[row] /= lower[row][row];
    }
    for (std::size_t row = kTerms; row-- > 0;) {
      for (std::size_t k = row + 1; k < kTerms; ++k) solution[row] -= lower[k][row] * solution[k];
      solution[row] /= lower[row][row];
    }
    return solution;
  }

 private:
  static constexpr double kTiny =
      1e-12;  // relative to a diagonal element where rounding cancelled the ridge

  std::array<Terms, kTerms> matrix_{};  // the lower half
  Terms right_{};
};

}  // namespace

RunningTime::RunningTime(double scheduling_ms, std::span<const Sample> samples)
    : scheduling_ms_(scheduling_ms) {
  if (samples.empty()) return;
  min_work_ms_ = std::numeric_limits<double>::infinity();
  for (const Sample& sample : samples) {
    const double hidden = std::min(scheduling_ms / sample.latency_ms, 1.0);
    const double worked = std::max(fourth_root(1 - fourth_power(hidden)), kLeastVisible);
    const double work_ms = worked * sample.latency_ms;
    // Errors are relative to the latency; an error of the work shows there by this fraction.
    const double visible = worked * worked * worked;
    points_.push_back(
        {.batch = sample.batch,
         .share = sample.share,
         .log_batch = std::log(sample.batch),
         .log_share = std::log(sample.share),
         .work_ms = work_ms,
         .weight = std::pow(std::max(visible, kLeastVisible) / sample.latency_ms, 2)});
    min_work_ms_ = std::min(min_work_ms_, work_ms);
  }
  const auto [least_batch, most_batch] = std::minmax_element(
      points_.begin(), points_.end(), [](auto& a, auto& b) { return a.batch < b.batch; });
  const auto [least_share, most_share] = std::minmax_element(
      points_.begin(), points_.end(), [](auto& a, auto& b) { return a.share < b.share; });
  batch_step_ = step_of(least_batch->log_batch, most_batch->log_batch, kInssBatches);
  share_step_ = step_of(least_share->log_share, most_share->log_share, kInssShares);
}

double RunningTime::at(double batch, double share) const {
  if (points_.empty()) return 0;
  const double log_batch = std::log(batch);
  const double log_share = std::log(share);
  const auto distance = [&](const Point& point) {
    const double in_batch = (point.log_batch - log_batch) / batch_step_;
    const double in_share = (point.log_share - log_share) / share_step_;
    return in_batch * in_batch + in_share * in_share;
  };
  double nearest = std::numeric_limits<double>::infinity();
  for (const Point& point : points_) nearest = std::min(nearest, distance(point));
  // Terms are relative to the requested point, where all are 1: the result is the sum of weights.
  NormalEquations equations;
  for (const Point& point : points_) {
    const double away = distance(point) - nearest;
    const double closeness = std::exp(-away / (2 * kWidthInSteps * kWidthInSteps));
    const double more = point.batch / batch;
    const double less = share / point.share;
    equations.add({1, more, less, more * less}, point.work_ms, closeness * point.weight);
  }
  double work_ms = 0;
  for (const double weight : equations.solve()) work_ms += weight;
  if (!std::isfinite(work_ms) || work_ms < min_work_ms_) work_ms = min_work_ms_;
  return overlapped(scheduling_ms_, work_ms) - scheduling_ms_;
}

double InssCoefficients::l2(double share) const {
  return std::clamp(l2_slope * share + l2_constant, 0.0, 1.0);
}

InssModel::Parts InssModel::parts(const ServedModel& served, double batch, double share) {
  const double running_ms = served.running.at(batch, share);
  return {.alone_ms = served.coefficients.transfer_ms * batch + served.coefficients.scheduling_ms +
                      running_ms,
          .running_ms = running_ms};
}

double InssModel::added_ms(const ServedModel& self, double running_ms, const ServedModel& other,
                           double other_share) const {
  return alpha_s_ * self.coefficients.launches +
         running_ms * self.coefficients.alpha_cache * other.coefficients.l2(other_share);
}

const InssModel::ServedModel* InssModel::served(std::string_view model) const {
  const auto found = numbers_.find(model);
  return found == numbers_.end() ? nullptr : &served_[found->second];
}

std::optional<double> InssModel::latency_ms(std::string_view model, std::uint32_t batch,
                                            Share share, std::span<const CoRunner> others) const {
  const ServedModel* const self = served(model);
  if (self == nullptr || batch == 0 || !share.valid()) return std::nullopt;
  const Parts own = parts(*self, batch, share.fraction());
  double latency_ms = own.alone_ms;
  for (const CoRunner& other : others) {
    const ServedModel* const beside = served(other.model);
    if (beside == nullptr) return std::nullopt;
    latency_ms += added_ms(*self, own.running_ms, *beside, other.share.fraction());
  }
  return latency_ms;
}

double InssModel::slowdown(const Side& self, const Side& other) const {
  const ServedModel& own = served_[self.model];
  const Parts alone = parts(own, self.batch, self.share);
  return 1 + added_ms(own, alone.running_ms, served_[other.model], other.share) / alone.alone_ms;
}

const InssCoefficients* InssModel::find(std::string_view model) const {
  const ServedModel* const found = served(model);
  return found == nullptr ? nullptr : &found->coefficients;
}

std::span<const LatencySample> InssModel::fitted_alone(std::string_view model) const {
  const ServedModel* const found = served(model);
  if (found == nullptr) return {};
  return found->alone;
}

namespace {

ErrorSummary summary_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {.count = errors.size(),
          .p50 = percentile(errors, 50).value(),
          .p90 = percentile(errors, 90).value(),
          .worst = errors.back()};
}

ErrorSummary beside_errors(const InssModel& model, const Profile& profile) {
  const auto fitted = model.fitted_pairs();
  std::vector<double> errors;
  for (const PairSample& pair : profile.pairs) {
    if (!pair_slowdown(profile, pair)) continue;
    if (std::find(fitted.begin(), fitted.end(), pair) != fitted.end()) continue;
    const std::array others{CoRunner{pair.other_model, pair.other_batch, pair.other_share}};
    const auto predicted_ms = model.latency_ms(pair.model, pair.batch, pair.share, others);
    if (predicted_ms) errors.push_back(std::abs(*predicted_ms / pair.latency_ms - 1));
  }
  return summary_of(std::move(errors));
}

}  // namespace

InssErrors held_out_errors(const InssModel& model, const Profile& profile) {
  InssErrors errors;
  std::vector<double> alone;
  std::vector<double> batches;
  std::vector<double> shares;
  std::vector<double> both;
  for (const auto& [name, known] : profile.models) {
    const auto fitted = model.fitted_alone(name);
    const auto any = [&fitted](const auto& is) {
      return std::any_of(fitted.begin(), fitted.end(), is);
    };
    std::vector<double> own;
    for (const LatencySample& sample : known.latency.samples()) {
      if (any([&](const auto& f) { return f.batch == sample.batch && f.share == sample.share; })) {
        continue;
      }
      const auto predicted_ms = model.latency_ms(name, sample.batch, sample.share);
      if (!predicted_ms) continue;
      own.push_back(std::abs(*predicted_ms / sample.latency_ms - 1));
      const bool same_share = any([&](const auto& f) { return f.share == sample.share; });
      const bool same_batch = any([&](const auto& f) { return f.batch == sample.batch; });
      (same_share ? batches : same_batch ? shares : both).push_back(own.back());
    }
    alone.insert(alone.end(), own.begin(), own.end());
    errors.models.emplace(name, summary_of(std::move(own)));
  }
  errors.alone = summary_of(std::move(alone));
  errors.batches = summary_of(std::move(batches));
  errors.shares = summary_of(std::move(shares));
  errors.both = summary_of(std::move(both));
  errors.beside = beside_errors(model, profile);
  return errors;
}

}  // namespace gpulet::research
