// SAC-Discrete for actions of several choices (InSS, section 5.4; Christodoulou 2019): a policy
// that learns which choices are worth most and stays as undecided as it is told to.
//
// Policy. One network gives the logits of all heads; what is allowed at a head depends on the
// choices before it (learn/choices.h), so log π(a | s) is the sum over heads of log π_i(a_i | s,
// a_<i).
//
// Value. Q(s, a) = Σ_i Q_i(s, a_i): each of the two critics gives one number for each possibility
// of each head, and the sum over those chosen is trained on the whole reward. The critic that
// expects less of the policy at a state is believed there, as a whole: the share of one head in a
// sum is arbitrary up to a constant, so that the smaller of two critics, taken head by head, would
// be too small by the constants' differences.
//
// What two heads are worth only together is in no sum: it is found where one head's choice settles
// and the other's values follow. Where two such agreements are nearly as good, it may stay with the
// lesser.
//
// Loss of a critic (6, 7), with the value of the next state under the policy as it is now, its
// choices drawn anew:
//   ½ (Q_v(s, a) - [r' + γ (V(s') - mean of V over the batch)])²
//   V(s') = Σ_i Σ_a π_i(a | s') (Q'_i(s', a) - τ log π_i(a | s'))
// of the policy (8):       Σ_i Σ_a π_i(a | s) (τ log π_i(a | s) - Q_i(s, a))
// of the temperature (9):  τ (H(π(. | s)) - Ĥ), in log τ
// each the mean over a batch; Q in (8) as it was before the critics' step.
//
// Ends. The episodes of an Environment end because their time is over: the value goes on beyond the
// last step, and no step is told from another by being the last.
//
// Rewards. With ω = 100 one violated objective weighs as much as all else, and at γ = 0.99 values
// are a hundred times what a step earns on the mean in reward and entropy. Where value goes on for
// ever, neither a constant nor a factor changes which policy is best. So r' = reward_scale * (r -
// mean) / deviation over what is remembered, and the values of next states are taken relative to
// each other: the networks learn what makes a difference, and follow no offset that moves with τ.
//
// Target entropy. Table 1 has Ĥ = -log(1 + ι). The entropy of discrete choices is never below 0, so
// with that (9) only ever lowers τ, by the learning rate a step: a schedule, not a control. Here Ĥ
// is a fraction of the entropy of the even choice among what is allowed, Σ_i log n_i, which can be
// reached at every state; the paper's is TargetEntropy::paper.
//
// The same seed and calls give the same numbers, bit by bit, on one machine with the same threads.
// Threads: one thread at a time; LibTorch's count of threads, which create() sets, is the
// process's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpulet/core/random.h"
#include "gpulet/core/status.h"
#include "gpulet/learn/choices.h"
#include "gpulet/learn/network.h"
#include "gpulet/train/replay.h"

namespace gpulet::train {

enum class TargetEntropy : std::uint8_t {
  fraction = 0,  // of the entropy of the even choice: LearnerOptions::entropy_fraction
  paper = 1,     // -log(1 + outputs of the policy's network)
};

// Defaults: table 1 and section 6.1 where they say.
struct LearnerOptions {
  std::vector<std::uint32_t> hidden{512, 256};  // widths of the layers between, of all networks
  double learning_rate = 1e-4;                  // Adam's, of everything
  double discount = 0.99;                       // γ
  double target_update = 0.01;                  // κ: of the critics into their targets, each step
  double first_temperature = 1;                 // τ
  TargetEntropy target_entropy = TargetEntropy::fraction;
  double entropy_fraction = 0.05;
  double reward_scale = 1;
  std::uint32_t batch = 100;               // steps
  std::uint32_t replay_capacity = 10'000;  // steps
  std::uint32_t threads = 2;               // 1 or 2

  friend bool operator==(const LearnerOptions&, const LearnerOptions&) = default;
};

// What a learner is after so many updates, with nothing left out. Parameters lie layer by layer,
// weights [inputs][outputs] before biases.
struct LearnerState {
  struct Trained {
    std::vector<float> parameters;
    std::vector<float> first_moments, second_moments;  // Adam's

    friend bool operator==(const Trained&, const Trained&) = default;
  };

  std::uint64_t updates = 0;
  Trained policy;
  std::vector<Trained> critics;             // two
  std::vector<std::vector<float>> targets;  // two
  Trained log_temperature;
  Replay::Rows replay;

  friend bool operator==(const LearnerState&, const LearnerState&) = default;
};

// Of the last update.
struct LearnerFigures {
  double critic_loss = 0;
  double policy_loss = 0;
  double temperature = 0;
  double entropy = 0;         // nats, of a whole action, mean over the batch
  double target_entropy = 0;  // the same of what it is held to
};

class Learner {
 public:
  // The rules must outlive it. Fails (invalid) where an option is out of its range.
  [[nodiscard]] static Result<Learner> create(std::size_t observation_size,
                                              const learn::ChoiceRules& rules,
                                              LearnerOptions options, std::uint64_t seed);
  ~Learner();
  Learner(Learner&&) noexcept;
  Learner& operator=(Learner&&) noexcept;

  // An action as the policy draws it now.
  [[nodiscard]] learn::Choices act(std::span<const float> observation, Random& random) const;

  void remember(std::span<const float> observation, const learn::Choices& choices, double reward,
                std::span<const float> next_observation);

  // Whether a batch of steps is remembered.
  [[nodiscard]] bool can_update() const;

  // One step of every network and the temperature. REQUIRES: can_update().
  LearnerFigures update(Random& random);

  // The policy as others evaluate it, one output for each possibility. Fails (internal) where
  // training has diverged: a number is not finite.
  [[nodiscard]] Result<learn::Network> policy() const;

  [[nodiscard]] LearnerState state() const;
  // Goes on where the learner was that had this state. Fails (malformed) and changes nothing where
  // it is not one of a learner of the same sizes.
  [[nodiscard]] Status restore(LearnerState state);

 private:
  struct Impl;
  explicit Learner(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::train
