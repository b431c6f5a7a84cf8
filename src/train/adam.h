// Adam (Kingma and Ba 2015), β 0.9 and 0.999, ε 1e-8, and the soft update of targets, each in one
// pass over memory. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace gpulet::train {

// The `step`th step (the first is 1) down these gradients. REQUIRES: equal sizes.
void adam_step(double learning_rate, std::uint64_t step, std::span<const float> gradients,
               std::span<float> parameters, std::span<float> first_moments,
               std::span<float> second_moments);

// targets = fraction * parameters + (1 - fraction) * targets.
void move_towards(double fraction, std::span<const float> parameters, std::span<float> targets);

}  // namespace gpulet::train
