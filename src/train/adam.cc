#include "train/adam.h"

#include <cmath>

namespace gpulet::train {
namespace {

constexpr float kFirstDecay = 0.9F;
constexpr float kSecondDecay = 0.999F;
constexpr float kEpsilon = 1e-8F;

// What 1 is short of after that many decays: moments begin at 0 and are too small by this factor.
double bias_after(double decay, std::uint64_t steps) {
  return 1 - std::pow(decay, static_cast<double>(steps));
}

}  // namespace

void adam_step(double learning_rate, std::uint64_t step, std::span<const float> gradients,
               std::span<float> parameters, std::span<float> first_moments,
               std::span<float> second_moments) {
  const auto rate = static_cast<float>(learning_rate / bias_after(kFirstDecay, step));
  const auto spread = static_cast<float>(1 / std::sqrt(bias_after(kSecondDecay, step)));
  const float* __restrict gradient = gradients.data();
  float* __restrict parameter = parameters.data();
  float* __restrict first = first_moments.data();
  float* __restrict second = second_moments.data();
  const std::size_t count = parameters.size();
  for (std::size_t at = 0; at < count; ++at) {
    const float g = gradient[at];
    first[at] = kFirstDecay * first[at] + (1 - kFirstDecay) * g;
    second[at] = kSecondDecay * second[at] + (1 - kSecondDecay) * g * g;
    parameter[at] -= rate * first[at] / (std::sqrt(second[at]) * spread + kEpsilon);
  }
}

void move_towards(double fraction, std::span<const float> parameters, std::span<float> targets) {
  const auto taken = static_cast<float>(fraction);
  const float* __restrict parameter = parameters.data();
  float* __restrict target = targets.data();
  const std::size_t count = targets.size();
  for (std::size_t at = 0; at < count; ++at) target[at] += taken * (parameter[at] - target[at]);
}

}  // namespace gpulet::train
