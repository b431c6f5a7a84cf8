#include "train/perceptron.h"

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

}  // namespace gpulet::train
