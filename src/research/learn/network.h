// A fully connected network without LibTorch, and the choice of an action from its outputs.
//
// Network: ReLU between layers, none after the last. Trained elsewhere (research/train/learner.h);
// immutable.
//
// An action is a sequence of choices, one per *head*. Earlier choices may rule out possibilities of
// later heads. The network outputs one logit per possibility, head after head; masks have the same
// layout. A choice's probability is the softmax over the allowed possibilities of its head; the
// action's probability is the product: π(a | s) = Π_i π_i(a_i | s, a_1 .. a_i-1).
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"

namespace gpulet::learn {

class ChoiceRules {
 public:
  ChoiceRules() = default;
  ChoiceRules(const ChoiceRules&) = default;
  ChoiceRules& operator=(const ChoiceRules&) = default;
  virtual ~ChoiceRules() = default;

  // The number of possibilities of each head, in the order of choice. At least one head with at
  // least one possibility each. Every call returns the same.
  [[nodiscard]] virtual std::span<const std::uint32_t> head_sizes() const = 0;

  // Writes 1 for each possibility of `head` that is allowed after the choices of the earlier heads,
  // else 0. At least one is allowed. Depends on the arguments alone.
  // REQUIRES: chosen_before.size() == head, allowed.size() == head_sizes()[head].
  virtual void allow(std::span<const float> observation, std::size_t head,
                     std::span<const std::uint32_t> chosen_before,
                     std::span<std::uint8_t> allowed) const = 0;
};

// One action and the possibilities that were allowed when it was chosen.
struct Choices {
  std::vector<std::uint32_t> chosen;  // by head
  std::vector<std::uint8_t> allowed;  // parallel to the logits: 1 if allowed

  friend bool operator==(const Choices&, const Choices&) = default;
};

// Chooses the largest allowed logit of each head; the first of equals.
// REQUIRES: as many logits as possibilities of all heads. Throws std::logic_error if the rules
// allow nothing at a head.
[[nodiscard]] Choices choose_best(std::span<const float> observation, std::span<const float> logits,
                                  const ChoiceRules& rules);

// Samples each head's choice by its probability. Same requirements.
[[nodiscard]] Choices choose_at_random(std::span<const float> observation,
                                       std::span<const float> logits, const ChoiceRules& rules,
                                       Random& random);

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

  // Buffers of a forward pass. Reuse them to avoid allocations. One thread at a time; any network.
  struct Scratch {
    std::vector<float> from, to;
  };

  // Fails (invalid) if there is no layer, a width is 0 or above kMostWidth, the number of weights
  // or biases is wrong, the sizes of adjacent layers differ, or a number is not finite.
  [[nodiscard]] static Result<Network> create(std::vector<Layer> layers);
  // From widths() and parameters() of a network. Also fails (invalid) on a wrong number of
  // parameters.
  [[nodiscard]] static Result<Network> create(std::span<const std::uint32_t> widths,
                                              std::span<const float> parameters);

  // Deterministic for one build.
  // REQUIRES: in.size() == inputs(), out.size() == outputs().
  void forward(std::span<const float> in, std::span<float> out, Scratch& scratch) const;

  [[nodiscard]] std::size_t inputs() const { return layers_.front().inputs; }
  [[nodiscard]] std::size_t outputs() const { return layers_.back().outputs; }
  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  // From the input to the output of the last layer.
  [[nodiscard]] std::vector<std::uint32_t> widths() const;
  // Layer by layer: weights, then biases.
  [[nodiscard]] std::vector<float> parameters() const;

  friend bool operator==(const Network& a, const Network& b) { return a.layers_ == b.layers_; }

 private:
  explicit Network(std::vector<Layer> layers);

  std::vector<Layer> layers_;
  // Weights as [inputs][outputs] per layer: contiguous per input.
  std::vector<std::vector<float>> columns_;
};

}  // namespace gpulet::learn
