// A seeded random source whose sequence is the same on every platform and library (std's
// distributions are not). xoshiro256** seeded by splitmix64. Not for secrets. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gpulet {

// A log-normal distribution with mean 1 and coefficient of variation `cv`, for many draws.
// REQUIRES: cv >= 0.
class LogNormal {
 public:
  explicit LogNormal(double cv);

 private:
  friend class Random;
  double variance_;   // of the logarithm
  double deviation_;  // of the logarithm
};

class Random {
 public:
  explicit Random(std::uint64_t seed);

  // Uniform over all 64-bit values.
  [[nodiscard]] std::uint64_t next();
  // Uniform in [0, 1).
  [[nodiscard]] double uniform();
  // Uniform in 0 .. bound-1. REQUIRES: bound > 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound);
  // Exponential with mean `mean`.
  [[nodiscard]] double exponential(double mean);
  // Log-normal with mean 1 and coefficient of variation `cv`; exactly 1 for 0. REQUIRES: cv >= 0.
  [[nodiscard]] double log_normal(double cv);
  [[nodiscard]] double log_normal(const LogNormal& distribution);

 private:
  std::array<std::uint64_t, 4> state_;
};

// The seed of one named stream of a run, such as a model's arrivals. It depends on the run's seed
// and the name only, so adding a model to a workload does not change the arrivals of the others.
[[nodiscard]] std::uint64_t stream_seed(std::uint64_t run_seed, std::string_view name);

}  // namespace gpulet
