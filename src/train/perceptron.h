// The networks that are trained: fully connected, ReLU between layers. Their parameters are one
// tensor, of which weights and biases are views: steps over all of them are one loop.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/core/random.h"

namespace gpulet::train {

class Perceptron {
 public:
  // From inputs to outputs; every layer uniform in ±1/√inputs, the last one's by `last_scale` of
  // that. REQUIRES: at least two widths.
  Perceptron(std::vector<std::int64_t> widths, at::ScalarType type, double last_scale,
             Random& random);

  // [rows][inputs] to [rows][outputs].
  [[nodiscard]] at::Tensor forward(const at::Tensor& in) const;

  // Leaves of the graph, in the order in which they lie: weights [inputs][outputs], biases.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  [[nodiscard]] const std::vector<std::int64_t>& widths() const { return widths_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(flat_.numel()); }

  // All of them. REQUIRES: it is of floats.
  [[nodiscard]] std::span<float> parameters();
  [[nodiscard]] std::span<const float> parameters() const;

 private:
  std::vector<std::int64_t> widths_;
  at::Tensor flat_;
  std::vector<at::Tensor> leaves_;
};

}  // namespace gpulet::train
