// Locally weighted regression of a batch's running time.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gpulet/profile/inss_model.h"

namespace gpulet::profile {
namespace {

// How far the regression looks, in steps between the samples. This and the power of 4 by which
// launches hide work were chosen by leaving out one of the 16 fitted cells at a time.
constexpr double kWidthInSteps = 0.8;
// Work far below the scheduling time does not show in a latency: it is taken as this much of it.
constexpr double kLeastVisible = 0.05;

constexpr std::size_t kTerms = 4;  // 1, batch, 1/share, batch/share
using Terms = std::array<double, kTerms>;

double fourth_power(double value) { return value * value * value * value; }
double fourth_root(double value) { return std::sqrt(std::sqrt(value)); }

// What is seen of two times of which the larger hides most of the smaller.
double overlapped(double a, double b) {
  const double larger = std::max(a, b);
  if (!(larger > 0)) return 0;
  return larger * fourth_root(1 + fourth_power(std::min(a, b) / larger));
}

// A range in logarithms, in steps between `count` values.
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

  // The weights that fit best, by Cholesky's factors. Samples may be few or in line, so a trace of
  // ridge decides what they leave open.
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
  static constexpr double kTiny = 1e-12;  // of a diagonal element, where rounding ate the ridge

  std::array<Terms, kTerms> matrix_{};  // the lower half
  Terms right_{};
};

}  // namespace

RunningTime::RunningTime(double scheduling_ms, std::span<const Sample> samples)
    : scheduling_ms_(scheduling_ms) {
  if (samples.empty()) return;
  least_work_ms_ = std::numeric_limits<double>::infinity();
  for (const Sample& sample : samples) {
    const double hidden = std::min(scheduling_ms / sample.latency_ms, 1.0);
    const double worked = std::max(fourth_root(1 - fourth_power(hidden)), kLeastVisible);
    const double work_ms = worked * sample.latency_ms;
    // An error of the latency counts, relative to it; one of the work shows so much of itself
    // there.
    const double visible = worked * worked * worked;
    points_.push_back(
        {.batch = sample.batch,
         .share = sample.share,
         .log_batch = std::log(sample.batch),
         .log_share = std::log(sample.share),
         .work_ms = work_ms,
         .weight = std::pow(std::max(visible, kLeastVisible) / sample.latency_ms, 2)});
    least_work_ms_ = std::min(least_work_ms_, work_ms);
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
  // Relative to where it is asked, all terms are 1 there, and the answer is their weights' sum.
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
  if (!std::isfinite(work_ms) || work_ms < least_work_ms_) work_ms = least_work_ms_;
  return overlapped(scheduling_ms_, work_ms) - scheduling_ms_;
}

}  // namespace gpulet::profile
