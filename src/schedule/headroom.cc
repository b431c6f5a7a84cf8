#include "schedule/headroom.h"

#include <algorithm>
#include <cmath>

namespace gpulet::schedule {
namespace {

constexpr int kHalvings = 40;  // of an interval of at most kBatches: far below any tolerance

// E[(N - batch)+] for N ~ Poisson(mean) = mean - batch + sum over n < batch of (batch - n) P(N =
// n).
double beyond(std::uint32_t batch, double mean) {
  double probability = std::exp(-mean);
  double held = 0;
  for (std::uint32_t n = 0; n < batch; ++n) {
    held += (batch - n) * probability;
    probability *= mean / (n + 1);
  }
  return std::max(0.0, mean - batch + held);
}

// t > 0 with mean (exp(t) - 1) = t batch, by Newton's steps down a convex slope. REQUIRES: mean <
// batch.
double exponent(double batch, double mean) {
  // Right of the root: exp(t) - 1 > t + t^2 / 2.
  double t = 2 * (batch / mean - 1);
  // Nearer where the batch is much larger than the mean.
  t = std::min(t, 2 * std::log(batch / mean) + 2);
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    t -= (mean * std::expm1(t) - t * batch) / (mean * std::exp(t) - batch);
  }
  return std::max(t, 0.0);
}

double late(std::uint32_t batch, std::size_t rounds, double mean) {
  const double first = beyond(batch, mean) / (mean + std::exp(-mean));
  if (rounds == 1) return first;
  return first * std::exp(-exponent(batch, mean) * batch * static_cast<double>(rounds - 1));
}

double highest_mean(std::uint32_t batch, std::size_t rounds, double at_least) {
  double low = at_least;
  double high = batch;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    (late(batch, rounds, middle) <= kMostLateByChance ? low : high) = middle;
  }
  return low;
}

}  // namespace

HeadroomTable::HeadroomTable() {
  for (std::size_t rounds = 1; rounds <= kRounds; ++rounds) {
    double before = 0;
    for (std::size_t batch = 1; batch <= kBatches; ++batch) {
      before = highest_mean(static_cast<std::uint32_t>(batch), rounds, before);
      means_[rounds - 1][batch - 1] = before;
    }
  }
}

double HeadroomTable::mean(std::uint32_t batch, double rounds) const {
  if (!(rounds >= 1) || batch == 0) return 0;
  const auto row = std::min(static_cast<std::size_t>(std::min(rounds, 1e6)), kRounds) - 1;
  if (batch <= kBatches) return means_[row][batch - 1];
  return means_[row].back() * batch / kBatches;
}

const HeadroomTable* headroom_table(Headroom headroom) {
  static const HeadroomTable poisson;
  return headroom == Headroom::poisson ? &poisson : nullptr;
}

}  // namespace gpulet::schedule
