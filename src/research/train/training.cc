#include "research/train/training.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "gpulet/base/sha256.h"
#include "research/learn/learned_policy.h"

namespace gpulet::train {

namespace {

// The state of a training between two episodes. Its file is a format line, the SHA-256 of the rest,
// and the fields.
struct Checkpoint {
  std::string made_with;  // in_words() of the options
  std::string trained_for;
  std::vector<EpisodeFigures> curve;
  std::uint64_t best_episode = 0;  // 0: no policy evaluated yet
  double best_reward = 0;
  std::vector<float> best_weights;  // layer by layer
  LearnerState learner;
};

// Checkpoints hold values in the machine's byte order.
static_assert(std::endian::native == std::endian::little);

class RecordWriter {
 public:
  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename Values>  // a vector or string
  void values(const Values& values) {
    using T = typename Values::value_type;
    static_assert(std::is_trivially_copyable_v<T>);
    value(std::uint64_t{values.size()});
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class RecordTooShort : public std::runtime_error {
 public:
  RecordTooShort() : std::runtime_error("the file ends too early") {}
};

// Throws RecordTooShort when the bytes do not suffice, before it allocates.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&value, cut(sizeof(T)).data(), sizeof(T));
  }

  template <typename Values>
  void values(Values& values) {
    using T = typename Values::value_type;
    static_assert(std::is_trivially_copyable_v<T>);
    std::uint64_t count = 0;
    value(count);
    if (count > rest_.size() / sizeof(T)) throw RecordTooShort();
    values.resize(count);
    const std::string_view bytes = cut(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view cut(std::size_t size) {
    if (size > rest_.size()) throw RecordTooShort();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

constexpr std::string_view kFirstLine = "gpulet training checkpoint 4\n";
constexpr std::size_t kHashLength = 64;

// One field list for both directions: `each` is a RecordWriter or a RecordReader.
template <typename Record, typename Trained>
void walk_trained(Record& each, Trained& trained) {
  each.values(trained.parameters);
  each.values(trained.first_moments);
  each.values(trained.second_moments);
}

template <typename Record, typename Of>
void walk(Record& each, Of& checkpoint) {
  each.values(checkpoint.made_with);
  each.values(checkpoint.trained_for);
  each.values(checkpoint.curve);
  each.value(checkpoint.best_episode);
  each.value(checkpoint.best_reward);
  each.values(checkpoint.best_weights);
  auto& learner = checkpoint.learner;
  each.value(learner.updates);
  walk_trained(each, learner.policy);
  for (auto& critic : learner.critics) walk_trained(each, critic);
  for (auto& target : learner.targets) each.values(target);
  walk_trained(each, learner.log_temperature);
  each.value(learner.replay.next);
  each.value(learner.replay.first_rewards);
  each.values(learner.replay.observations);
  each.values(learner.replay.next_observations);
  each.values(learner.replay.chosen);
  each.values(learner.replay.allowed);
  each.values(learner.replay.rewards);
}

// The options as text, without rounding: equal options have equal text.
std::string in_words(const TrainingOptions& options) {
  const LearnerOptions& learner = options.learner;
  std::string words = fmt::format("seed {}, hidden", options.seed);
  for (const std::uint32_t width : learner.hidden) words += fmt::format(" {}", width);
  words += fmt::format(
      ", learning rate {:.17g}, discount {:.17g}, target update {:.17g}, first temperature {:.17g}",
      learner.learning_rate, learner.discount, learner.target_update, learner.first_temperature);
  words +=
      learner.target_entropy == TargetEntropy::paper
          ? ", target entropy of the paper"
          : fmt::format(", target entropy {:.17g} of the even choice's", learner.entropy_fraction);
  words += fmt::format(", reward scale {:.17g}, batch {}, replay {}", learner.reward_scale,
                       learner.batch, learner.replay_capacity);
  return words + fmt::format(", {} steps for an update, {} episodes played after every {}",
                             options.steps_per_update, options.played_episodes, options.play_every);
}

std::string write_checkpoint(const Checkpoint& checkpoint) {
  RecordWriter writer;
  walk(writer, checkpoint);
  const std::string body = writer.take();
  return std::string(kFirstLine) + sha256_of(body) + "\n" + body;
}

// Fails (malformed) if write_checkpoint did not write the bytes.
Result<Checkpoint> read_checkpoint(std::string_view bytes) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::malformed, what); };
  if (!bytes.starts_with(kFirstLine)) {
    return bad(fmt::format("is not a checkpoint of gpulet train: it does not begin with \"{}\"",
                           kFirstLine.substr(0, kFirstLine.size() - 1)));
  }
  bytes.remove_prefix(kFirstLine.size());
  const std::string_view body = bytes.size() > kHashLength ? bytes.substr(kHashLength + 1) : "";
  if (bytes.substr(0, kHashLength) != sha256_of(body))
    return bad("is damaged: the SHA-256 of its contents differs; use an earlier checkpoint");
  try {
    RecordReader reader(body);
    Checkpoint checkpoint;
    checkpoint.learner.critics.resize(2);
    checkpoint.learner.targets.resize(2);
    walk(reader, checkpoint);
    if (!reader.at_end()) return bad("has extra bytes at its end");
    return checkpoint;
  } catch (const RecordTooShort& error) {
    return bad(error.what());
  }
}

// Means over the steps of an episode.
class Means {
 public:
  void add(const Step& step) {
    ++figures_.steps;
    figures_.reward += step.reward;
    figures_.violation += step.violation;
    figures_.throughput += step.throughput;
    figures_.batch_throughput += step.batch_throughput;
  }

  [[nodiscard]] std::uint64_t steps() const { return figures_.steps; }
  [[nodiscard]] EpisodeFigures figures() const {
    EpisodeFigures means = figures_;
    const auto steps = static_cast<double>(means.steps);
    means.reward /= steps;
    means.violation /= steps;
    means.throughput /= steps;
    means.batch_throughput /= steps;
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
                  fmt::format("was made with {}; this run has {}: give the same options, or start "
                              "again without --resume",
                              then, now));
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
    means.add(step);
    if (learner_.can_update() && means.steps() % options_.steps_per_update == 0)
      learned = learner_.update(learning);
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
             stream_seed(options_.seed, fmt::format("chosen by episode {}", number)));
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
