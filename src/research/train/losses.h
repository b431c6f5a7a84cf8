// The losses of research/train/learner.h. Logits, values and masks are [rows][heads][widest head];
// smaller heads are padded with possibilities that are never allowed.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpulet::train {

// Added to the logit of a ruled-out possibility: its probability, and the product of that with its
// logarithm, become 0.
inline constexpr double kRuledOut = -1e9;

struct MaskedPolicy {
  at::Tensor logarithms, probabilities;
};

// `mask`: 0 where allowed, kRuledOut elsewhere.
[[nodiscard]] MaskedPolicy masked_policy(const at::Tensor& logits, const at::Tensor& mask);

// H(π(. | s)) of each row over all heads, in nats.
[[nodiscard]] at::Tensor entropy(const MaskedPolicy& policy);

// For each row, the values of the critic with the lower expectation under the policy.
[[nodiscard]] at::Tensor cautious_values(const MaskedPolicy& policy, const at::Tensor& one,
                                         const at::Tensor& other);

// Σ_i Σ_a π_i(a) (Q_i(a) - τ log π_i(a)) of each row.
[[nodiscard]] at::Tensor soft_value(const MaskedPolicy& policy, const at::Tensor& values,
                                    double temperature);

// (6); `chosen`: [rows][heads][1], int64; `targets`: [rows].
[[nodiscard]] at::Tensor critic_loss(const at::Tensor& values, const at::Tensor& chosen,
                                     const at::Tensor& targets);

// (8).
[[nodiscard]] at::Tensor policy_loss(const MaskedPolicy& policy, const at::Tensor& values,
                                     double temperature);

// (9); `entropies` and `target_entropies`: [rows]; `log_temperature`: scalar.
[[nodiscard]] at::Tensor temperature_loss(const at::Tensor& log_temperature,
                                          const at::Tensor& entropies,
                                          const at::Tensor& target_entropies);

}  // namespace gpulet::train
