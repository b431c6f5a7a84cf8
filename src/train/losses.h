// The losses of gpulet/train/learner.h. Logits, values and masks are [rows][heads][widest head]:
// heads with fewer possibilities are filled up with some that are never allowed.
#pragma once

#include <ATen/ATen.h>

namespace gpulet::train {

// Added to the logit of what is not allowed: its probability is 0, and 0 times its logarithm too.
inline constexpr double kRuledOut = -1e9;

struct MaskedPolicy {
  at::Tensor logarithms, probabilities;
};

// `mask`: 0 where allowed, kRuledOut elsewhere.
[[nodiscard]] MaskedPolicy masked_policy(const at::Tensor& logits, const at::Tensor& mask);

// H(π(. | s)) of each row, over all its heads, in nats.
[[nodiscard]] at::Tensor entropy(const MaskedPolicy& policy);

// Of each row, the values of the critic that expects less of the policy there.
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

// (9), of entropies [rows] and what they are held to; `log_temperature` is a scalar.
[[nodiscard]] at::Tensor temperature_loss(const at::Tensor& log_temperature,
                                          const at::Tensor& entropies,
                                          const at::Tensor& target_entropies);

}  // namespace gpulet::train
