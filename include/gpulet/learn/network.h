// A fully connected network as a plan is made with it: numbers in, numbers out, without LibTorch.
//
// Between layers every negative number becomes 0 (ReLU); what the last layer gives is given as it
// is. It was trained elsewhere (train/learner.h). Values, immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::learn {

struct Layer {
  std::size_t inputs = 0, outputs = 0;
  std::vector<float> weights;  // [outputs][inputs], row by row
  std::vector<float> biases;   // [outputs]

  friend bool operator==(const Layer&, const Layer&) = default;
};

class Network {
 public:
  static constexpr std::size_t kMostLayers = 16;
  static constexpr std::size_t kMostWidth = 65'536;

  // What a forward pass writes on its way: kept by the caller so that the next one allocates
  // nothing. For one thread at a time; fits every network.
  struct Scratch {
    std::vector<float> from, to;
  };

  // Fails (invalid) where there is no layer or one of no or too much width, weights and biases do
  // not fit a layer's sizes, a layer does not take what the one before gives, or a number is not
  // finite.
  [[nodiscard]] static Result<Network> create(std::vector<Layer> layers);
  // From its widths() and parameters(). Fails (invalid) also where these are more or fewer.
  [[nodiscard]] static Result<Network> create(std::span<const std::uint32_t> widths,
                                              std::span<const float> parameters);

  // The same numbers for the same input on every run of one build.
  // REQUIRES: in.size() == inputs(), out.size() == outputs().
  void forward(std::span<const float> in, std::span<float> out, Scratch& scratch) const;

  [[nodiscard]] std::size_t inputs() const { return layers_.front().inputs; }
  [[nodiscard]] std::size_t outputs() const { return layers_.back().outputs; }
  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  // From the input to the output of the last layer.
  [[nodiscard]] std::vector<std::uint32_t> widths() const;
  // Of each layer the weights, then the biases.
  [[nodiscard]] std::vector<float> parameters() const;

  friend bool operator==(const Network& a, const Network& b) { return a.layers_ == b.layers_; }

 private:
  explicit Network(std::vector<Layer> layers);

  std::vector<Layer> layers_;
  // [inputs][outputs] of each layer: what one input adds to all outputs lies together.
  std::vector<std::vector<float>> columns_;
};

}  // namespace gpulet::learn
