// A seeded random source whose sequence is the same on every platform and library (std's
// distributions are not). xoshiro256** seeded by splitmix64. Not for secrets. One thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace gpulet {

class Random {
 public:
  explicit Random(std::uint64_t seed);

  // Uniform over all 64-bit values.
  [[nodiscard]] std::uint64_t next();
  // Uniform in [0, 1).
  [[nodiscard]] double uniform();
  // Uniform in 0 .. bound-1. REQUIRES: bound > 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound);
  // Exponential with that mean.
  [[nodiscard]] double exponential(double mean);

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace gpulet
