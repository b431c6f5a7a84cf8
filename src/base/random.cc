#include "gpulet/base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace gpulet {

Random::Random(std::uint64_t seed) : state_{} {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
    word = mixed ^ (mixed >> 31U);
  }
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

std::uint64_t Random::below(std::uint64_t bound) {
  // Values above the largest multiple of bound would favour small results: draw again.
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t value = next();
  while (value >= limit) value = next();
  return value % bound;
}

double Random::exponential(double mean) { return -mean * std::log1p(-uniform()); }

LogNormal::LogNormal(double cv)
    : variance_(std::log1p(cv * cv)), deviation_(std::sqrt(variance_)) {}

double Random::log_normal(double cv) { return log_normal(LogNormal(cv)); }

double Random::log_normal(const LogNormal& distribution) {
  if (distribution.variance_ == 0) return 1;
  // Box and Muller. The logarithm's argument is never 0.
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
  return std::exp(distribution.deviation_ * normal - distribution.variance_ / 2);
}

std::uint64_t stream_seed(std::uint64_t run_seed, std::string_view name) {
  // FNV-1a: the same on every platform, which std::hash is not. Random's own seeding mixes the
  // rest.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : name) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3ULL;
  }
  return Random(run_seed).next() ^ hash;
}

}  // namespace gpulet
