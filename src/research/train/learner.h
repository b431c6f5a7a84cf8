// SAC-Discrete for actions of several choices (InSS, section 5.4; Christodoulou 2019).
//
// Policy. One network outputs the logits of all heads. Earlier choices decide what later heads
// allow (research/learn/network.h), so log π(a | s) = Σ_i log π_i(a_i | s, a_<i).
//
// Value. Q(s, a) = Σ_i Q_i(s, a_i). Each of two critics outputs one number per possibility; the sum
// over the chosen ones is trained on the whole reward. The lower critic is selected per state, not
// per head: a head's share of the sum is arbitrary up to a constant, so a minimum per head would be
// biased low. A sum cannot represent a value that two heads have only together; between two such
// combinations of similar value the policy may keep the lesser.
//
// Losses, each the mean over a batch:
//   critic (6, 7):    ½ (Q_v(s, a) - [r' + γ (V(s') - mean of V over the batch)])²
//                     V(s') = Σ_i Σ_a π_i(a | s') (Q'_i(s', a) - τ log π_i(a | s'))
//   policy (8):       Σ_i Σ_a π_i(a | s) (τ log π_i(a | s) - Q_i(s, a))
//   temperature (9):  τ (H(π(. | s)) - Ĥ), in log τ
// V uses the current policy with newly sampled choices; (8) uses Q from before the critics' update.
//
// Episodes end by time only, so the value continues after the last step: no step is terminal.
//
// Rewards. With ω = 100 one violated objective outweighs everything else, and with γ = 0.99 values
// are a hundred times the mean reward of a step. Without terminal steps neither a constant nor a
// factor changes the best policy. So r' = reward_scale * (r - mean) / deviation, and values of next
// states are relative to their mean: the networks need not follow an offset. Mean and deviation are
// those of the first steps, until the replay buffer is full. If they followed the policy, a choice
// that it abandoned would keep a value from a time with a lower mean, and look good again.
//
// Target entropy. Table 1 has Ĥ = -log(1 + ι). The entropy of discrete choices is never negative,
// so (9) would only ever lower τ. By default Ĥ is a fraction of the entropy of the uniform choice
// among the allowed possibilities, Σ_i log n_i. TargetEntropy::paper selects the paper's.
//
// Deterministic on one machine: equal seed, calls and threads give equal bits. One thread at a
// time. create() sets LibTorch's number of threads for the whole process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "research/learn/network.h"

namespace gpulet::train {

// The replay buffer: the most recent steps (InSS, section 5.4). It also stores the possibilities
// that were allowed at each choice. One thread at a time.
class Replay {
 public:
  struct Shape {
    std::size_t capacity = 0;       // steps
    std::size_t observation = 0;    // numbers
    std::size_t heads = 0;          // choices of an action
    std::size_t possibilities = 0;  // of all heads

    friend bool operator==(const Shape&, const Shape&) = default;
  };

  // Mean and standard deviation.
  struct Spread {
    double mean = 0, deviation = 0;

    friend bool operator==(const Spread&, const Spread&) = default;
  };

  // All steps: one row per step in every vector.
  struct Rows {
    std::uint64_t next = 0;  // row of the next step
    Spread first_rewards;    // of the steps until the buffer was full
    std::vector<float> observations, next_observations;
    std::vector<std::uint32_t> chosen;
    std::vector<std::uint8_t> allowed;
    std::vector<double> rewards;

    friend bool operator==(const Rows&, const Rows&) = default;
  };

  // REQUIRES: capacity > 0.
  explicit Replay(Shape shape) : shape_(shape) {}

  // Takes the rows of a Replay of the same shape. Fails (malformed) if their sizes differ.
  [[nodiscard]] static Result<Replay> restore(Shape shape, Rows rows);

  // Replaces the oldest step when full. REQUIRES: sizes match the shape.
  void add(std::span<const float> observation, const learn::Choices& choices, double reward,
           std::span<const float> next_observation);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::size_t size() const { return rows_.rewards.size(); }
  [[nodiscard]] const Rows& rows() const { return rows_; }

 private:
  Shape shape_;
  Rows rows_;
};

enum class TargetEntropy : std::uint8_t {
  fraction = 0,  // entropy_fraction of the uniform choice's entropy
  paper = 1,     // -log(1 + number of logits)
};

// Defaults are those of InSS, table 1 and section 6.1, where given.
struct LearnerOptions {
  std::vector<std::uint32_t> hidden{512, 256};  // widths of the hidden layers
  double learning_rate = 1e-4;                  // of every Adam optimiser
  double discount = 0.99;                       // γ
  double target_update = 0.01;   // κ: part of a critic that its target takes per update
  double first_temperature = 1;  // τ
  TargetEntropy target_entropy = TargetEntropy::fraction;
  double entropy_fraction = 0.05;
  double reward_scale = 1;
  std::uint32_t batch = 100;               // steps
  std::uint32_t replay_capacity = 10'000;  // steps
  std::uint32_t threads = 2;               // 1 or 2

  friend bool operator==(const LearnerOptions&, const LearnerOptions&) = default;
};

// The complete state of a learner. Parameters are ordered by layer, weights [inputs][outputs]
// before biases.
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

// Figures of one update.
struct LearnerFigures {
  double critic_loss = 0;
  double temperature = 0;
  double entropy = 0;         // nats per action, mean over the batch
  double target_entropy = 0;  // nats per action, mean over the batch
};

class Learner {
 public:
  // `rules` must outlive the learner. Fails (invalid) if an option is out of its range.
  [[nodiscard]] static Result<Learner> create(std::size_t observation_size,
                                              const learn::ChoiceRules& rules,
                                              LearnerOptions options, std::uint64_t seed);
  ~Learner();
  Learner(Learner&&) noexcept;
  Learner& operator=(Learner&&) noexcept;

  // Samples an action from the current policy.
  [[nodiscard]] learn::Choices act(std::span<const float> observation, Random& random) const;

  void remember(std::span<const float> observation, const learn::Choices& choices, double reward,
                std::span<const float> next_observation);

  // True once the replay buffer holds a batch.
  [[nodiscard]] bool can_update() const;

  // Updates every network and the temperature once. REQUIRES: can_update().
  LearnerFigures update(Random& random);

  // The policy's network, one output per possibility. Fails (internal) if training diverged: a
  // parameter is not finite.
  [[nodiscard]] Result<learn::Network> policy() const;

  [[nodiscard]] LearnerState state() const;
  // Continues from `state`. Fails (malformed) and changes nothing if its sizes differ.
  [[nodiscard]] Status restore(LearnerState state);

 private:
  struct Impl;
  explicit Learner(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::train
