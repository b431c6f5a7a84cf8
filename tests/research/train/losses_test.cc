// Compares LibTorch's gradients with finite differences of the losses, in double precision on
// networks of a few neurons.
#include "research/train/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <vector>

#include "gpulet/base/random.h"
#include "research/train/perceptron.h"

namespace gpulet::train {
namespace {

constexpr std::int64_t kRows = 4, kHeads = 2, kWidest = 3;
constexpr double kDelta = 1e-6;

at::Tensor random_tensor(at::IntArrayRef sizes, Random& random) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  for (std::int64_t at = 0; at < tensor.numel(); ++at)
    tensor.data_ptr<double>()[at] = 2 * random.uniform() - 1;
  return tensor;
}

struct Fixture {
  Random random{5};
  Perceptron network{{3, 5, 4, kHeads* kWidest}, at::kDouble, 1, random};
  at::Tensor observations = random_tensor({kRows, 3}, random);
  at::Tensor values = random_tensor({kRows, kHeads, kWidest}, random);
  at::Tensor targets = random_tensor({kRows}, random);
  at::Tensor chosen = at::empty({kRows, kHeads, 1}, at::kLong);
  at::Tensor mask = at::zeros({kRows, kHeads, kWidest}, at::kDouble);

  Fixture() {
    for (std::int64_t at = 0; at < kRows * kHeads; ++at)
      chosen.data_ptr<std::int64_t>()[at] = static_cast<std::int64_t>(random.below(kWidest));
    mask[0][1][2] = kRuledOut;
    mask[1][0][0] = kRuledOut;
    mask[1][0][1] = kRuledOut;
  }

  [[nodiscard]] at::Tensor outputs() const {
    return network.forward(observations).view({kRows, kHeads, kWidest});
  }
};

void expect_gradients_fit(const std::vector<at::Tensor>& leaves,
                          const std::function<at::Tensor()>& loss) {
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss()}, leaves);
  double largest = 0;
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const at::Tensor gradient = gradients[leaf].contiguous();
    for (std::int64_t at = 0; at < leaves[leaf].numel(); ++at) {
      double& parameter = leaves[leaf].data_ptr<double>()[at];
      const double before = parameter;
      parameter = before + kDelta;
      const double above = loss().item<double>();
      parameter = before - kDelta;
      const double below = loss().item<double>();
      parameter = before;
      const double expected = (above - below) / (2 * kDelta);
      EXPECT_NEAR(gradient.data_ptr<double>()[at], expected, 1e-7) << "leaf " << leaf << ", " << at;
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_GT(largest, 1e-3);  // zero gradients would prove nothing
}

TEST(Losses, GradientOfACritic) {
  const Fixture fixture;
  expect_gradients_fit(fixture.network.leaves(), [&] {
    return critic_loss(fixture.outputs(), fixture.chosen, fixture.targets);
  });
}

TEST(Losses, GradientOfThePolicy) {
  const Fixture fixture;
  expect_gradients_fit(fixture.network.leaves(), [&] {
    return policy_loss(masked_policy(fixture.outputs(), fixture.mask), fixture.values, 0.3);
  });
}

TEST(Losses, GradientOfTheTemperature) {
  const Fixture fixture;
  const at::Tensor logarithm = at::full({}, -0.4, at::kDouble).requires_grad_();
  const at::Tensor entropies = entropy(masked_policy(fixture.outputs(), fixture.mask)).detach();
  expect_gradients_fit({logarithm}, [&] {
    return temperature_loss(logarithm, entropies, at::full({kRows}, 0.5, at::kDouble));
  });
}

TEST(Losses, RuledOutPossibilitiesHaveNoEffect) {
  const Fixture fixture;
  const MaskedPolicy policy = masked_policy(fixture.outputs(), fixture.mask);
  EXPECT_EQ(policy.probabilities[1][0][0].item<double>(), 0);
  EXPECT_EQ(policy.probabilities[1][0][2].item<double>(), 1);
  // Row 1: the first head has one possibility left, so the entropy is the other head's.
  const at::Tensor other = policy.probabilities[1][1];
  EXPECT_NEAR(entropy(policy)[1].item<double>(), -(other * other.log()).sum().item<double>(),
              1e-12);
  at::Tensor changed = fixture.values.clone();
  changed[1][0][0] = 1e6;
  EXPECT_EQ(soft_value(policy, changed, 0.3)[1].item<double>(),
            soft_value(policy, fixture.values, 0.3)[1].item<double>());
}

TEST(Losses, SelectsTheLowerCriticPerRow) {
  Fixture fixture;
  const MaskedPolicy policy = masked_policy(fixture.outputs(), fixture.mask);
  // Lower in every row but the last, where one head's gain exceeds the other's loss.
  at::Tensor other = fixture.values - 1;
  other[kRows - 1][0] += 3;
  const at::Tensor cautious = cautious_values(policy, fixture.values, other);
  EXPECT_TRUE(at::equal(cautious.narrow(0, 0, kRows - 1), other.narrow(0, 0, kRows - 1)));
  EXPECT_TRUE(at::equal(cautious[kRows - 1], fixture.values[kRows - 1]));
}

}  // namespace
}  // namespace gpulet::train
