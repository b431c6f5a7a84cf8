#include "gpulet/train/training.h"

#include <utility>

#include "gpulet/learn/learned_policy.h"
#include "gpulet/learn/network.h"
#include "train/checkpoint.h"

namespace gpulet::train {

namespace {

// Means over the steps of an episode.
class Means {
 public:
  void add(const Step& step) {
    ++figures_.steps;
    figures_.reward += step.reward;
    figures_.violation += step.violation;
    figures_.throughput += step.throughput;
  }

  [[nodiscard]] EpisodeFigures figures() const {
    EpisodeFigures means = figures_;
    const auto steps = static_cast<double>(means.steps);
    means.reward /= steps;
    means.violation /= steps;
    means.throughput /= steps;
    return means;
  }

 private:
  EpisodeFigures figures_;
};

}  // namespace

Training::Training(Environment& environment, TrainingOptions options, Learner learner)
    : environment_(&environment), options_(std::move(options)), learner_(std::move(learner)) {}

Result<Training> Training::create(Environment& environment, TrainingOptions options) {
  auto learner = Learner::create(environment.observation_size(), environment.rules(),
                                 options.learner, options.seed);
  if (!learner.ok()) return learner.status();
  return Training(environment, std::move(options), std::move(learner).value());
}

Result<Training> Training::resume(Environment& environment, TrainingOptions options,
                                  std::string_view checkpoint) {
  auto read = read_checkpoint(checkpoint);
  if (!read.ok()) return read.status();
  Checkpoint& from = read.value();
  const auto same = [](const std::string& then, const std::string& now) {
    if (then == now) return Status();
    return Status(StatusCode::invalid,
                  "was made with " + then + "; this run has " + now +
                      ": give the same options, or start again without --resume");
  };
  if (Status status = same(from.made_with, in_words(options)); !status.ok()) return status;
  if (Status status = same(from.trained_for, options.trained_for); !status.ok()) return status;
  auto made = create(environment, std::move(options));
  if (!made.ok()) return made.status();
  Training& training = made.value();
  if (Status status = training.learner_.restore(std::move(from.learner)); !status.ok())
    return status;
  training.curve_ = std::move(from.curve);
  if (from.best_episode == 0) return made;
  const auto like = training.learner_.policy();
  if (!like.ok()) return like.status();
  auto best = learn::Network::create(like.value().widths(), from.best_weights);
  if (!best.ok()) return Status(StatusCode::malformed, "has a best policy with other layer sizes");
  training.best_ = Best{from.best_episode, from.best_reward, std::move(best).value()};
  return made;
}

const EpisodeFigures& Training::run_episode() {
  const std::uint64_t episode = curve_.size() + 1;
  const auto stream = [&](const char* name) {
    return stream_seed(options_.seed, name + std::to_string(episode));
  };
  Random acting(stream("choices of episode "));
  Random learning(stream("updates of episode "));
  std::vector<float> observation = environment_->reset(stream("episode "));
  Means means;
  LearnerFigures learned;
  for (bool last = false; !last;) {
    const learn::Choices choices = learner_.act(observation, acting);
    Step step = environment_->step(choices.chosen);
    learner_.remember(observation, choices, step.reward, step.observation);
    if (learner_.can_update()) learned = learner_.update(learning);
    means.add(step);
    last = step.last;
    observation = std::move(step.observation);
  }
  EpisodeFigures& figures = curve_.emplace_back(means.figures());
  figures.episode = episode;
  figures.critic_loss = learned.critic_loss;
  figures.temperature = learned.temperature;
  figures.entropy = learned.entropy;
  figures.target_entropy = learned.target_entropy;
  if (options_.play_every > 0 && episode % options_.play_every == 0) evaluate(figures);
  return figures;
}

void Training::evaluate(EpisodeFigures& figures) {
  auto policy = learner_.policy();
  if (!policy.ok()) return;
  figures.played = options_.played_episodes;
  const auto part = 1 / static_cast<double>(options_.played_episodes);
  for (std::uint64_t number = 1; number <= options_.played_episodes; ++number) {
    const EpisodeFigures one =
        play(*environment_, policy.value(),
             stream_seed(options_.seed, "chosen by episode " + std::to_string(number)));
    figures.played_reward += one.reward * part;
    figures.played_violation += one.violation * part;
  }
  if (!best_ || figures.played_reward > best_->reward)
    best_ = Best{figures.episode, figures.played_reward, std::move(policy).value()};
}

Result<learn::Network> Training::policy() const {
  if (best_) return best_->policy;
  return learner_.policy();
}

std::string Training::checkpoint() const {
  Checkpoint checkpoint{in_words(options_), options_.trained_for, curve_, 0, 0, {},
                        learner_.state()};
  if (best_) {
    checkpoint.best_episode = best_->episode;
    checkpoint.best_reward = best_->reward;
    checkpoint.best_weights = best_->policy.parameters();
  }
  return write_checkpoint(checkpoint);
}

EpisodeFigures play(Environment& environment, const learn::Network& policy, std::uint64_t seed) {
  std::vector<float> observation = environment.reset(seed);
  std::vector<float> logits(policy.outputs());
  learn::Network::Scratch scratch;
  Means means;
  for (bool last = false; !last;) {
    policy.forward(observation, logits, scratch);
    Step step =
        environment.step(learn::choose_best(observation, logits, environment.rules()).chosen);
    means.add(step);
    last = step.last;
    observation = std::move(step.observation);
  }
  return means.figures();
}

Status run(Training& training, const RunOptions& options) {
  bool stopped = false;
  while (!stopped && training.curve().size() < options.episodes) {
    const EpisodeFigures& figures = training.run_episode();
    stopped = !options.go_on(figures);
    if (figures.episode % options.checkpoint_every != 0) continue;
    if (Status status = learn::write_file(options.checkpoint, training.checkpoint()); !status.ok())
      return status;
  }
  return learn::write_file(options.checkpoint, training.checkpoint());
}

}  // namespace gpulet::train
