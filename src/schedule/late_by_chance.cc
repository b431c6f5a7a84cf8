#include "schedule/late_by_chance.h"

#include <math.h>

#include <cmath>

namespace gpulet::schedule {
namespace {

// std::lgamma leaves the sign in a variable that all threads share.
double log_factorial(std::uint32_t n) {
  int sign = 0;
  return ::lgamma_r(n + 1.0, &sign);
}

// The sum over n > batch of (n - batch) P(N = n). REQUIRES: mean < batch.
double beyond(std::uint32_t batch, double mean) {
  double sum = 0;
  double term = 0;
  std::uint32_t n = batch;
  // The terms fall for good once n is beyond mean and batch.
  do {
    ++n;
    term = (n - batch) * std::exp(n * std::log(mean) - mean - log_factorial(n));
    sum += term;
  } while (n < batch + 4 || term > sum * 1e-12);
  return sum;
}

double exponent(double batch, double mean) {
  double low = 0;
  double high = 1;
  const auto positive = [&](double t) { return mean * std::expm1(t) >= t * batch; };
  while (!positive(high)) high *= 2;
  for (int step = 0; step < 80; ++step) {
    const double middle = (low + high) / 2;
    (positive(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace

double late_by_chance(std::uint32_t batch, double rounds, double mean) {
  if (!(rounds >= 1) || !(mean < batch)) return 1;
  if (mean <= 0) return 0;
  const double first = beyond(batch, mean) / (mean + std::exp(-mean));
  const double further = std::floor(rounds) - 1;
  return further > 0 ? first * std::exp(-exponent(batch, mean) * batch * further) : first;
}

}  // namespace gpulet::schedule
