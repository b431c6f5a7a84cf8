#include "research/train/perceptron.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

namespace gpulet::train {

namespace {

std::int64_t count_parameters(const std::vector<std::int64_t>& widths) {
  std::int64_t count = 0;
  for (std::size_t layer = 1; layer < widths.size(); ++layer)
    count += (widths[layer - 1] + 1) * widths[layer];
  return count;
}

}  // namespace

Perceptron::Perceptron(std::vector<std::int64_t> widths, at::ScalarType type, double last_scale,
                       Random& random)
    : widths_(std::move(widths)), flat_(at::zeros({count_parameters(widths_)}, type)) {
  std::int64_t from = 0;
  for (std::size_t layer = 1; layer < widths_.size(); ++layer) {
    const std::int64_t inputs = widths_[layer - 1];
    const std::int64_t outputs = widths_[layer];
    const double scale = layer + 1 == widths_.size() ? last_scale : 1;
    const double bound = scale / std::sqrt(static_cast<double>(inputs));
    const std::int64_t count = (inputs + 1) * outputs;
    // LibTorch's own generator would be one more state to keep.
    at::Tensor drawn = at::empty({count}, at::kDouble);
    for (double& value : std::span(drawn.data_ptr<double>(), static_cast<std::size_t>(count)))
      value = (2 * random.uniform() - 1) * bound;
    flat_.narrow(0, from, count).copy_(drawn);
    leaves_.push_back(flat_.narrow(0, from, inputs * outputs).view({inputs, outputs}).detach());
    leaves_.push_back(flat_.narrow(0, from + inputs * outputs, outputs).detach());
    from += count;
  }
  for (at::Tensor& leaf : leaves_) leaf.requires_grad_(true);
}

at::Tensor Perceptron::forward(const at::Tensor& in) const {
  at::Tensor values = in;
  for (std::size_t at = 0; at < leaves_.size(); at += 2) {
    values = at::addmm(leaves_[at + 1], values, leaves_[at]);
    if (at + 2 < leaves_.size()) values = values.relu_();
  }
  return values;
}

std::span<float> Perceptron::parameters() { return {flat_.data_ptr<float>(), size()}; }

std::span<const float> Perceptron::parameters() const { return {flat_.data_ptr<float>(), size()}; }

namespace {

constexpr float kFirstDecay = 0.9F;
constexpr float kSecondDecay = 0.999F;
constexpr float kEpsilon = 1e-8F;

// Bias correction: moments start at 0 and are too small by this factor.
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
