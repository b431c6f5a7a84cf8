// Training a policy, episode by episode (InSS, algorithm 2): after every step of the environment
// one update of the learner, from when a batch is remembered.
//
// Between two episodes the whole of a training is what checkpoint() writes: whoever resumes it
// there makes the same episodes and ends with the same policy, bit by bit, as without the stop. All
// that is random in an episode is drawn from streams named after the seed and its number.
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
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
  // After it the policy played so many episodes without chance, with these means; 0: it did not.
  std::uint64_t played = 0;
  double played_reward = 0;
  double played_violation = 0;

  friend bool operator==(const EpisodeFigures&, const EpisodeFigures&) = default;
};

struct TrainingOptions {
  std::uint64_t seed = 1;
  LearnerOptions learner;
  // After every so many episodes (0: never) the policy plays some of its own without chance, always
  // the same; the best so far is what the training comes to. The last one need not be it: as the
  // temperature falls, a policy may settle on something worse than what it had tried.
  std::uint64_t play_every = 25;
  std::uint64_t played_episodes = 5;
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
  // The best that played, or the last one while none did. Fails as Learner::policy.
  [[nodiscard]] Result<learn::Network> policy() const;
  // After which episode it was that policy.
  [[nodiscard]] std::uint64_t episode_of_policy() const {
    return best_ ? best_->episode : curve_.size();
  }

 private:
  struct Best {
    std::uint64_t episode = 0;
    double reward = 0;
    learn::Network policy;
  };

  Training(Environment& environment, TrainingOptions options, Learner learner);
  void let_play(EpisodeFigures& figures);

  Environment* environment_;
  TrainingOptions options_;
  Learner learner_;
  std::vector<EpisodeFigures> curve_;
  std::optional<Best> best_;
};

// One episode as the policy plays it when it is used: always the best choice, and nothing learned.
// The figures of updates, and the episode's number, are 0.
[[nodiscard]] EpisodeFigures play(Environment& environment, const learn::Network& policy,
                                  std::uint64_t seed);

}  // namespace gpulet::train
