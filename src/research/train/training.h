// Training of a policy (InSS, algorithm 2): one update of the learner after each step of the
// environment, or after every few, once the replay buffer holds a batch.
//
// checkpoint() writes the complete state between two episodes: a resumed training runs the same
// episodes and ends with the same policy, bit by bit. All randomness of an episode comes from
// streams named after the seed and the episode's number. One thread at a time. run() does blocking
// file I/O; the curve functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/simulate/simulation.h"
#include "research/learn/network.h"
#include "research/learn/placement.h"
#include "research/train/learner.h"

namespace gpulet::train {

struct Step {
  std::vector<float> observation;  // after the action; finite, about -1 .. 1 if possible
  double reward = 0;               // finite
  double violation = 0;            // fraction of requests not served within their SLO
  double throughput = 0;           // requests/s served within their SLO
  double batch_throughput = 0;     // InSS, section 4.1: requests/s of batches back to back
  bool last = false;               // ends the episode
};

// The world in which a policy is trained. Episodes end by time: the world continues after the last
// step, and the learner counts its value (research/train/learner.h). One thread at a time.
class Environment {
 public:
  Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  virtual ~Environment() = default;

  // The rules of the actions; valid as long as the environment.
  [[nodiscard]] virtual const learn::ChoiceRules& rules() const = 0;
  [[nodiscard]] virtual std::size_t observation_size() const = 0;

  // Begins an episode and returns its first observation. An episode depends on its seed only, not
  // on earlier episodes.
  [[nodiscard]] virtual std::vector<float> reset(std::uint64_t seed) = 0;

  // REQUIRES: an episode is running; rules() allow the choices.
  [[nodiscard]] virtual Step step(std::span<const std::uint32_t> choices) = 0;
};

// Figures of one episode: means over its steps.
struct EpisodeFigures {
  std::uint64_t episode = 0;  // from 1
  std::uint64_t steps = 0;
  double reward = 0;
  double violation = 0;   // fraction of requests
  double throughput = 0;  // requests/s within their SLO
  double batch_throughput = 0;
  // Of the episode's last update; 0 before the first.
  double critic_loss = 0;  // in normalised rewards, squared
  double temperature = 0;
  double entropy = 0;         // nats
  double target_entropy = 0;  // nats
  // Episodes of deterministic evaluation after this episode (0: none), and their means.
  std::uint64_t played = 0;
  double played_reward = 0;
  double played_violation = 0;

  friend bool operator==(const EpisodeFigures&, const EpisodeFigures&) = default;
};

// The environment of learned placement (InSS, section 5.2). At each step every model has another
// rate, the batch search turns the chosen placements into a plan, and the simulator serves Poisson
// arrivals at those rates with it (simulate/simulation.h). Requests in the queue at the end of a
// step wait for the next one, where they count.
struct PlacementOptions {
  std::uint32_t steps = 50;       // per episode
  double seconds = 1;             // simulated per step
  double violation_weight = 100;  // omega
  // Each model's rate is a wave between lowest_rate and 1 of its highest rate. Its period (steps)
  // and phase are sampled per episode.
  double lowest_rate = 0.05;
  double shortest_period = 10;
  double longest_period = 100;
};

// The reward of a step (equation 3), summed over the models: the model's throughput (its planned
// batch divided by the time that the plan expects of it) in units of the rate of
// a whole device that serves one by one (H), minus violation_weight times the fraction of requests
// not served within the objective. `task` must be the task of `scene`;
// `knowledge.policy` is ignored; pointees must outlive the environment. Throws std::logic_error (a
// bug) if the checker rejects a plan.
[[nodiscard]] std::unique_ptr<Environment> make_placement_environment(
    learn::PlacementTask task, simulate::SimulationInput scene, simulate::Knowledge knowledge,
    const PlacementOptions& options = {});

struct TrainingOptions {
  std::uint64_t seed = 1;
  LearnerOptions learner;
  // Steps of the environment for each update of the learner (1 in the paper). Counted from the
  // start of each episode.
  std::uint64_t steps_per_update = 1;
  // Every `play_every` episodes (0: never) the policy is evaluated without sampling on the same
  // `played_episodes` episodes. The training's result is the best evaluated policy. It need not be
  // the last: a policy may get worse as the temperature falls.
  std::uint64_t play_every = 50;
  std::uint64_t played_episodes = 5;
  // A text that identifies the environment. A checkpoint resumes only with an equal text.
  std::string trained_for;
};

class Training {
 public:
  // `environment` must outlive the training and not be shared. Fails as Learner::create.
  [[nodiscard]] static Result<Training> create(Environment& environment, TrainingOptions options);

  // Continues from a checkpoint. Fails with malformed if it is damaged or not a checkpoint, with
  // invalid if its options or trained_for differ.
  [[nodiscard]] static Result<Training> resume(Environment& environment, TrainingOptions options,
                                               std::string_view checkpoint);

  // Runs the next episode and learns from it.
  const EpisodeFigures& run_episode();

  // All episodes, including those before a resume.
  [[nodiscard]] const std::vector<EpisodeFigures>& curve() const { return curve_; }
  [[nodiscard]] const TrainingOptions& options() const { return options_; }

  [[nodiscard]] std::string checkpoint() const;
  // The best evaluated policy; the current one before the first evaluation. Fails as
  // Learner::policy.
  [[nodiscard]] Result<learn::Network> policy() const;
  // The episode after which policy() was the learner's.
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
  void evaluate(EpisodeFigures& figures);

  Environment* environment_;
  TrainingOptions options_;
  Learner learner_;
  std::vector<EpisodeFigures> curve_;
  std::optional<Best> best_;
};

// Runs one episode with the best choice at every step and without learning. The figures of updates
// and the episode's number are 0.
[[nodiscard]] EpisodeFigures play(Environment& environment, const learn::Network& policy,
                                  std::uint64_t seed);

struct RunOptions {
  std::uint64_t episodes = 1500;  // including those before a resume
  // Written every checkpoint_every episodes and at the end.
  std::filesystem::path checkpoint;
  std::uint64_t checkpoint_every = 50;
  // Called after each episode; false ends the run after a checkpoint.
  std::function<bool(const EpisodeFigures&)> go_on = [](const EpisodeFigures&) { return true; };
};

// Trains until options.episodes. Fails (internal) if a checkpoint cannot be written.
[[nodiscard]] Status run(Training& training, const RunOptions& options);

// The episodes as CSV with a header line.
[[nodiscard]] std::string curve_csv(std::span<const EpisodeFigures> episodes);

// Reward, violations and throughput by episode as SVG: each episode's value and a moving mean.
[[nodiscard]] std::string curve_svg(std::span<const EpisodeFigures> episodes);

}  // namespace gpulet::train
