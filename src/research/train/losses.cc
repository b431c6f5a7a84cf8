#include "research/train/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

namespace gpulet::train {

MaskedPolicy masked_policy(const at::Tensor& logits, const at::Tensor& mask) {
  MaskedPolicy policy;
  policy.logarithms = at::log_softmax(logits + mask, -1);
  policy.probabilities = policy.logarithms.exp();
  return policy;
}

at::Tensor entropy(const MaskedPolicy& policy) {
  return -(policy.probabilities * policy.logarithms).sum({1, 2});
}

at::Tensor cautious_values(const MaskedPolicy& policy, const at::Tensor& one,
                           const at::Tensor& other) {
  const at::Tensor difference = (policy.probabilities * (one - other)).sum({1, 2}, true);
  return at::where(difference <= 0, one, other);
}

at::Tensor soft_value(const MaskedPolicy& policy, const at::Tensor& values, double temperature) {
  return (policy.probabilities * (values - temperature * policy.logarithms)).sum({1, 2});
}

at::Tensor critic_loss(const at::Tensor& values, const at::Tensor& chosen,
                       const at::Tensor& targets) {
  const at::Tensor expected = values.gather(2, chosen).sum({1, 2});
  return 0.5 * (expected - targets).square().mean();
}

at::Tensor policy_loss(const MaskedPolicy& policy, const at::Tensor& values, double temperature) {
  return -soft_value(policy, values, temperature).mean();
}

at::Tensor temperature_loss(const at::Tensor& log_temperature, const at::Tensor& entropies,
                            const at::Tensor& target_entropies) {
  return log_temperature.exp() * (entropies - target_entropies).mean();
}

}  // namespace gpulet::train
