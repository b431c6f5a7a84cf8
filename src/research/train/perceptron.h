// A trained network, fully connected with ReLU between layers, and its optimiser. All parameters
// are one tensor, with weights and biases as views: an optimiser step is one loop. One thread at a
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/random.h"

namespace gpulet::train {

class Perceptron {
 public:
  // Initial parameters are uniform in ±1/√inputs; those of the last layer times `last_scale`.
  // REQUIRES: at least two widths, from inputs to outputs.
  Perceptron(std::vector<std::int64_t> widths, at::ScalarType type, double last_scale,
             Random& random);

  // [rows][inputs] to [rows][outputs].
  [[nodiscard]] at::Tensor forward(const at::Tensor& in) const;

  // Leaves of the autograd graph, layer by layer: weights [inputs][outputs], biases.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  [[nodiscard]] const std::vector<std::int64_t>& widths() const { return widths_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(flat_.numel()); }

  // All parameters. REQUIRES: type is float.
  [[nodiscard]] std::span<float> parameters();
  [[nodiscard]] std::span<const float> parameters() const;

 private:
  std::vector<std::int64_t> widths_;
  at::Tensor flat_;
  std::vector<at::Tensor> leaves_;
};

// One step of Adam (Kingma and Ba 2015; β 0.9 and 0.999, ε 1e-8). `step` counts from 1.
// REQUIRES: equal sizes.
void adam_step(double learning_rate, std::uint64_t step, std::span<const float> gradients,
               std::span<float> parameters, std::span<float> first_moments,
               std::span<float> second_moments);

// targets = fraction * parameters + (1 - fraction) * targets.
void move_towards(double fraction, std::span<const float> parameters, std::span<float> targets);

}  // namespace gpulet::train
