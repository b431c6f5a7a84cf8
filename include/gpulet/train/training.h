// Training a policy, episode by episode (InSS, algorithm 2): after every step of the environment
// one update of the learner, from when a batch is remembered.
//
// Between two episodes the whole of a training is what checkpoint() writes: whoever resumes it
// there makes the same episodes and ends with the same policy, bit by bit, as without the stop. All
// that is random in an episode is drawn from streams named after the seed and its number.
// One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/learn/network.h"
#include "gpulet/train/environment.h"
#include "gpulet/train/learner.h"

namespace gpulet::train {

// How one episode went; means over its steps.
struct EpisodeFigures {
  std::uint64_t episode = 0;  // from 1
  std::uint64_t steps = 0;
  double reward = 0;
  double violation = 0;   // fraction of requests
  double throughput = 0;  // requests/s within their SLO
  // Of the last update; 0 before the first.
  double critic_loss = 0;  // in squares of normalised rewards
  double temperature = 0;
  double entropy = 0;         // nats
  double target_entropy = 0;  // nats

  friend bool operator==(const EpisodeFigures&, const EpisodeFigures&) = default;
};

struct TrainingOptions {
  std::uint64_t seed = 1;
  LearnerOptions learner;
  // What the environment was made of, in any words: a checkpoint resumes only where these are the
  // same.
  std::string trained_for;
};

class Training {
 public:
  // The environment must outlive it, and belong to it alone. Fails (invalid) as Learner::create.
  [[nodiscard]] static Result<Training> create(Environment& environment, TrainingOptions options);

  // Goes on from a checkpoint. Fails (malformed) where it is none or damaged, and (invalid) where
  // it was made with other options or for another purpose, which the message names.
  [[nodiscard]] static Result<Training> resume(Environment& environment, TrainingOptions options,
                                               std::string_view checkpoint);

  // Plays the next one and learns from it.
  const EpisodeFigures& run_episode();

  // All episodes so far, those before a resume too.
  [[nodiscard]] const std::vector<EpisodeFigures>& curve() const { return curve_; }
  [[nodiscard]] const TrainingOptions& options() const { return options_; }

  [[nodiscard]] std::string checkpoint() const;
  // Fails as Learner::policy.
  [[nodiscard]] Result<learn::Network> policy() const { return learner_.policy(); }

 private:
  Training(Environment& environment, TrainingOptions options, Learner learner);

  Environment* environment_;
  TrainingOptions options_;
  Learner learner_;
  std::vector<EpisodeFigures> curve_;
};

// One episode as the policy plays it when it is used: always the best choice, and nothing learned.
// The figures of updates, and the episode's number, are 0.
[[nodiscard]] EpisodeFigures play(Environment& environment, const learn::Network& policy,
                                  std::uint64_t seed);

}  // namespace gpulet::train
