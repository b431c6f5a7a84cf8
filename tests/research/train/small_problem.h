// A problem with a known best policy: three states in random order, and two choices of three, where
// the second must differ from the first. In state s
//   s, then s + 1 (mod 3)      earns 1 (the best)
//   s + 1, then s              earns 0
//   any other                  costs 2
// so neither choice is good without the other. Episodes have 20 steps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/random.h"
#include "research/train/learner.h"
#include "research/train/training.h"

namespace gpulet::train {

class TwoDifferent final : public learn::ChoiceRules {
 public:
  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return sizes_; }
  void allow(std::span<const float> /*observation*/, std::size_t head,
             std::span<const std::uint32_t> chosen_before,
             std::span<std::uint8_t> allowed) const override {
    for (std::uint32_t at = 0; at < allowed.size(); ++at)
      allowed[at] = head == 0 || at != chosen_before[0] ? 1 : 0;
  }

 private:
  std::array<std::uint32_t, 2> sizes_{3, 3};
};

class SmallProblem final : public Environment {
 public:
  [[nodiscard]] const learn::ChoiceRules& rules() const override { return rules_; }
  [[nodiscard]] std::size_t observation_size() const override { return 3; }

  [[nodiscard]] std::vector<float> reset(std::uint64_t seed) override {
    random_ = Random(seed);
    steps_ = 0;
    return next_state();
  }

  [[nodiscard]] Step step(std::span<const std::uint32_t> choices) override {
    const std::uint32_t after = (state_ + 1) % 3;
    Step step;
    step.reward = -2;
    if (choices[0] == state_ && choices[1] == after) step.reward = 1;
    if (choices[0] == after && choices[1] == state_) step.reward = 0;
    step.violation = step.reward < 0 ? 1 : 0;
    step.throughput = 1 - step.violation;
    step.last = ++steps_ == 20;
    step.observation = next_state();
    return step;
  }

 private:
  std::vector<float> next_state() {
    state_ = static_cast<std::uint32_t>(random_.below(3));
    std::vector<float> observation(3);
    observation[state_] = 1;
    return observation;
  }

  TwoDifferent rules_;
  Random random_{0};
  std::uint32_t state_ = 0;
  int steps_ = 0;
};

// Options that learn it in seconds.
inline LearnerOptions small_options() {
  LearnerOptions options;
  options.hidden = {32, 32};
  options.learning_rate = 2e-3;
  options.batch = 64;
  options.replay_capacity = 1000;
  options.target_update = 0.02;
  options.threads = 1;
  return options;
}

}  // namespace gpulet::train
