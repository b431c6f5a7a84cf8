#include "gpulet/load/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace gpulet::load {
namespace {

using config::Arrivals;

std::vector<double> gaps_s(ArrivalProcess process, int count) {
  std::vector<double> gaps;
  double last = 0;
  for (int i = 0; i < count; ++i) {
    const double at = to_seconds(process.next().time_since_epoch());
    gaps.push_back(at - last);
    last = at;
  }
  return gaps;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean(a);
  const double mean_b = mean(b);
  double product = 0;
  double square_a = 0;
  double square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return product / std::sqrt(square_a * square_b);
}

TEST(PoissonArrivals, HaveTheRateAndTheSpreadOfAPoissonProcess) {
  const std::vector<double> gaps = gaps_s({Arrivals::poisson, 100, 7}, 200000);
  const double mean_gap = mean(gaps);
  EXPECT_NEAR(mean_gap, 0.01, 0.01 * 0.01);
  double variance = 0;
  std::size_t above_mean = 0;
  for (const double gap : gaps) {
    variance += (gap - mean_gap) * (gap - mean_gap) / static_cast<double>(gaps.size());
    if (gap > 0.01) ++above_mean;
  }
  EXPECT_NEAR(std::sqrt(variance) / mean_gap, 1, 0.02);
  EXPECT_NEAR(static_cast<double>(above_mean) / static_cast<double>(gaps.size()), std::exp(-1.0),
              0.01);
  EXPECT_NEAR(correlation({gaps.begin(), gaps.end() - 1}, {gaps.begin() + 1, gaps.end()}), 0, 0.01);
}

TEST(UniformArrivals, KeepTheirSpacingWithoutDrift) {
  ArrivalProcess process(Arrivals::uniform, 3, 5);
  const Time first = process.next();
  EXPECT_LT(to_seconds(first.time_since_epoch()), 1.0 / 3);
  Time last = first;
  for (int i = 0; i < 300000; ++i) last = process.next();
  EXPECT_NEAR(to_seconds(last - first), 100000, 1e-6);
}

TEST(ArrivalProcess, IsTheSameForTheSameSeedOnly) {
  for (const Arrivals kind : {Arrivals::poisson, Arrivals::uniform}) {
    EXPECT_EQ(gaps_s({kind, 50, 3}, 100), gaps_s({kind, 50, 3}, 100));
    EXPECT_NE(gaps_s({kind, 50, 3}, 100), gaps_s({kind, 50, 4}, 100));
  }
}

TEST(ArrivalProcess, StreamsOfModelsAndOfSeedsAreIndependent) {
  const auto gaps = [](std::uint64_t seed, std::string_view model) {
    return gaps_s({Arrivals::poisson, 50, stream_seed(seed, model)}, 50000);
  };
  EXPECT_NEAR(correlation(gaps(1, "lenet"), gaps(1, "resnet50")), 0, 0.02);
  EXPECT_NEAR(correlation(gaps(1, "lenet"), gaps(2, "lenet")), 0, 0.02);
  EXPECT_NEAR(correlation(gaps(1, "vgg16"), gaps(1, "vgg19")), 0, 0.02);
}

TEST(ArrivalProcess, RefusesWhatHasNoSchedule) {
  EXPECT_THROW(ArrivalProcess(Arrivals::closed, 1, 1), std::invalid_argument);
  EXPECT_THROW(ArrivalProcess(Arrivals::poisson, 0, 1), std::invalid_argument);
  EXPECT_THROW(ArrivalProcess(Arrivals::poisson, std::numeric_limits<double>::quiet_NaN(), 1),
               std::invalid_argument);
}

}  // namespace
}  // namespace gpulet::load
