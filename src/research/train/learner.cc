#include "research/train/learner.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <numeric>
#include <utility>

#include "research/train/losses.h"
#include "research/train/perceptron.h"

namespace gpulet::train {

namespace {

template <typename T>
void put_row(std::vector<T>& rows, std::size_t row, std::span<const T> values) {
  const std::size_t from = row * values.size();
  if (rows.size() < from + values.size()) rows.resize(from + values.size());
  std::copy(values.begin(), values.end(), rows.begin() + static_cast<std::ptrdiff_t>(from));
}

// The spread of `count` numbers and another one.
Replay::Spread with_one_more(const Replay::Spread& spread, std::size_t count, double number) {
  const auto before = static_cast<double>(count);
  const double away = number - spread.mean;
  const double mean = spread.mean + away / (before + 1);
  const double squares = spread.deviation * spread.deviation * before + away * (number - mean);
  return {mean, std::sqrt(squares / (before + 1))};
}

}  // namespace

Result<Replay> Replay::restore(Shape shape, Rows rows) {
  const std::size_t size = rows.rewards.size();
  const bool fits = size <= shape.capacity && rows.next < shape.capacity && rows.next <= size &&
                    rows.observations.size() == size * shape.observation &&
                    rows.next_observations.size() == size * shape.observation &&
                    rows.chosen.size() == size * shape.heads &&
                    rows.allowed.size() == size * shape.possibilities;
  if (!fits) {
    return Status(StatusCode::malformed,
                  fmt::format("the replayed steps do not fit a buffer of {}", shape.capacity));
  }
  Replay replay(shape);
  replay.rows_ = std::move(rows);
  return replay;
}

void Replay::add(std::span<const float> observation, const learn::Choices& choices, double reward,
                 std::span<const float> next_observation) {
  const std::size_t row = rows_.next;
  put_row(rows_.observations, row, observation);
  put_row(rows_.next_observations, row, next_observation);
  put_row(rows_.chosen, row, std::span<const std::uint32_t>(choices.chosen));
  put_row(rows_.allowed, row, std::span<const std::uint8_t>(choices.allowed));
  if (row == size()) rows_.first_rewards = with_one_more(rows_.first_rewards, size(), reward);
  put_row(rows_.rewards, row, std::span<const double>(&reward, 1));
  rows_.next = (row + 1) % shape_.capacity;
}

namespace {

// Fails (invalid) and names the first option that is out of its range.
Status check_options(const LearnerOptions& options) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::invalid, what); };
  for (const std::uint32_t width : options.hidden) {
    if (width == 0 || width > learn::Network::kMostWidth)
      return bad(fmt::format("hidden: a layer's width must be 1 to 65536; was {}", width));
  }
  const auto in_range = [&](double value, double least, double most, const char* name) {
    if (value >= least && value <= most) return Status();  // not NaN
    return bad(fmt::format("{}: must be from {:f} to {:f}; was {:f}", name, least, most, value));
  };
  for (const Status& status :
       {in_range(options.learning_rate, 1e-9, 1, "learning_rate"),
        in_range(options.discount, 0, 0.999999, "discount"),
        in_range(options.target_update, 1e-6, 1, "target_update"),
        in_range(options.first_temperature, 1e-6, 1e6, "first_temperature"),
        in_range(options.entropy_fraction, 0, 1, "entropy_fraction"),
        in_range(options.reward_scale, 1e-6, 1e6, "reward_scale"),
        in_range(options.batch, 1, 1e6, "batch"),
        in_range(options.replay_capacity, options.batch, 1e8, "replay_capacity"),
        in_range(options.threads, 1, 2, "threads")}) {
    if (!status.ok()) return status;
  }
  return {};
}

// The possibilities of the heads in two layouts: packed, head after head, as in
// research/learn/network.h; and padded, in rows of the widest head's width, as in tensors.
struct HeadLayout {
  // REQUIRES: at least one head.
  explicit HeadLayout(std::span<const std::uint32_t> head_sizes)
      : sizes(head_sizes.begin(), head_sizes.end()),
        possibilities(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0})),
        widest(*std::max_element(sizes.begin(), sizes.end())) {}

  [[nodiscard]] std::size_t heads() const { return sizes.size(); }
  // Numbers in one padded row.
  [[nodiscard]] std::size_t padded() const { return sizes.size() * widest; }

  // Calls take(at, padded_at) for every possibility, in order.
  template <typename Take>
  void for_each(const Take& take) const {
    std::size_t at = 0;
    for (std::size_t head = 0; head < sizes.size(); ++head) {
      for (std::size_t of_head = 0; of_head < sizes[head]; ++of_head)
        take(at++, head * widest + of_head);
    }
  }

  std::vector<std::uint32_t> sizes;
  std::size_t possibilities;
  std::size_t widest;
};

// Scale of the first logits: small, so that the first policy is nearly uniform.
constexpr double kFirstLogits = 0.01;
// Smaller deviations of rewards are rounding errors.
constexpr double kLeastDeviation = 1e-6;

struct Optimised {
  explicit Optimised(Perceptron made)
      : network(std::move(made)), first(network.size()), second(network.size()) {}

  Perceptron network;
  std::vector<float> first, second;  // moments
};

std::vector<std::int64_t> widths_of(std::size_t inputs, const std::vector<std::uint32_t>& hidden,
                                    std::size_t outputs) {
  std::vector<std::int64_t> widths{static_cast<std::int64_t>(inputs)};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(static_cast<std::int64_t>(outputs));
  return widths;
}

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

template <typename T>
std::span<T> numbers(at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

// Steps sampled from the replay buffer, as tensors.
struct Batch {
  at::Tensor observations, next_observations;  // [rows][observation]
  at::Tensor chosen;                           // [rows][heads][1]
  at::Tensor mask;                             // [rows][heads][widest]
  at::Tensor rewards;                          // [rows], normalised
  at::Tensor target_entropies;                 // [rows]
};

}  // namespace

struct Learner::Impl {
  Impl(std::size_t observation_size, const learn::ChoiceRules& given_rules,
       LearnerOptions given_options, std::uint64_t seed)
      : rules(given_rules),
        layout(given_rules.head_sizes()),
        options(std::move(given_options)),
        replay({options.replay_capacity, observation_size, layout.heads(), layout.possibilities}),
        log_temperature{{static_cast<float>(std::log(options.first_temperature))}, {0}, {0}} {
    const auto make = [&](std::string_view name, double last_scale) {
      Random random(stream_seed(seed, name));
      return Perceptron(widths_of(observation_size, options.hidden, layout.padded()), at::kFloat,
                        last_scale, random);
    };
    policy.emplace_back(make("policy", kFirstLogits));
    for (const std::string_view name : {"critic 1", "critic 2"}) {
      critics.emplace_back(make(name, 1));
      targets.push_back(make(name, 1));
    }
  }

  const learn::ChoiceRules& rules;
  HeadLayout layout;
  LearnerOptions options;
  std::vector<Optimised> policy;  // one
  std::vector<Optimised> critics;
  std::vector<Perceptron> targets;
  Replay replay;
  LearnerState::Trained log_temperature;  // one number each
  std::uint64_t updates = 0;

  [[nodiscard]] double temperature() const {
    return std::exp(double{log_temperature.parameters.front()});
  }

  // Runs both, `others` in a second thread if there is one. Results do not depend on the threads.
  template <typename Own, typename Others>
  void both(const Own& own, const Others& others) const {
    const auto launch = options.threads > 1 ? std::launch::async : std::launch::deferred;
    auto running = std::async(launch, others);
    own();
    running.get();
  }

  [[nodiscard]] at::Tensor by_head(const at::Tensor& outputs) const {
    return outputs.view({outputs.size(0), static_cast<std::int64_t>(layout.heads()),
                         static_cast<std::int64_t>(layout.widest)});
  }

  [[nodiscard]] learn::Choices draw(std::span<const float> observation,
                                    std::span<const float> padded_logits, Random& random) const {
    std::vector<float> logits(layout.possibilities);
    layout.for_each(
        [&](std::size_t at, std::size_t padded) { logits[at] = padded_logits[padded]; });
    return learn::choose_at_random(observation, logits, rules, random);
  }

  void write_mask(std::span<const std::uint8_t> allowed, std::span<float> mask) const {
    layout.for_each([&](std::size_t at, std::size_t padded) {
      if (allowed[at] == 1) mask[padded] = 0;
    });
  }

  [[nodiscard]] at::Tensor empty_mask(std::size_t rows) const {
    return at::full({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(layout.heads()),
                     static_cast<std::int64_t>(layout.widest)},
                    kRuledOut, at::kFloat);
  }

  // The target of an action's entropy in a state with that mask.
  [[nodiscard]] double target_entropy(std::span<const std::uint8_t> allowed) const {
    if (options.target_entropy == TargetEntropy::paper)
      return -std::log(1 + static_cast<double>(layout.possibilities));
    double even = 0;
    std::size_t from = 0;
    for (const std::uint32_t size : layout.sizes) {
      const auto of_head = allowed.subspan(from, size);
      even += std::log(static_cast<double>(std::count(of_head.begin(), of_head.end(), 1)));
      from += size;
    }
    return options.entropy_fraction * even;
  }

  [[nodiscard]] Batch draw_batch(Random& random) const;
  [[nodiscard]] at::Tensor critic_targets(const Batch& batch, Random& random) const;
  void descend(Optimised& optimised, const at::Tensor& loss) const;
  [[nodiscard]] at::Tensor step_critic(Optimised& critic, const Batch& batch,
                                       const at::Tensor& expected, double* loss_value) const;
  void step_temperature(const at::Tensor& entropies, const at::Tensor& target_entropies);
  LearnerFigures update(Random& random);
};

Batch Learner::Impl::draw_batch(Random& random) const {
  const Replay::Shape& shape = replay.shape();
  const Replay::Rows& rows = replay.rows();
  const auto [mean, deviation] = rows.first_rewards;
  const double scale = options.reward_scale / std::max(deviation, kLeastDeviation);
  const auto count = static_cast<std::int64_t>(options.batch);
  const auto width = static_cast<std::int64_t>(shape.observation);
  Batch batch{at::empty({count, width}, at::kFloat),
              at::empty({count, width}, at::kFloat),
              at::empty({count, static_cast<std::int64_t>(shape.heads), 1}, at::kLong),
              empty_mask(options.batch),
              at::empty({count}, at::kFloat),
              at::empty({count}, at::kFloat)};
  const auto row_of = [](const auto& values, std::size_t row, std::size_t size) {
    return std::span(values).subspan(row * size, size);
  };
  for (std::size_t to = 0; to < options.batch; ++to) {
    const std::size_t row = random.below(replay.size());
    const auto copy = [&](const auto& from, std::size_t size, auto whole) {
      const auto source = row_of(from, row, size);
      std::copy(source.begin(), source.end(), whole.subspan(to * size, size).begin());
    };
    copy(rows.observations, shape.observation, numbers<float>(batch.observations));
    copy(rows.next_observations, shape.observation, numbers<float>(batch.next_observations));
    copy(rows.chosen, shape.heads, numbers<std::int64_t>(batch.chosen));
    const auto allowed = row_of(rows.allowed, row, shape.possibilities);
    write_mask(allowed, numbers<float>(batch.mask).subspan(to * layout.padded(), layout.padded()));
    numbers<float>(batch.rewards)[to] = static_cast<float>((rows.rewards[row] - mean) * scale);
    numbers<float>(batch.target_entropies)[to] = static_cast<float>(target_entropy(allowed));
  }
  return batch;
}

at::Tensor Learner::Impl::critic_targets(const Batch& batch, Random& random) const {
  const at::NoGradGuard no_gradients;
  MaskedPolicy next;
  const auto choose_next = [&] {
    const at::Tensor outputs = policy.front().network.forward(batch.next_observations).contiguous();
    at::Tensor mask = empty_mask(options.batch);
    const std::span<const float> logits{outputs.data_ptr<float>(),
                                        static_cast<std::size_t>(outputs.numel())};
    const std::size_t width = replay.shape().observation;
    const std::span<const float> observations{batch.next_observations.data_ptr<float>(),
                                              options.batch * width};
    for (std::size_t row = 0; row < options.batch; ++row) {
      const std::size_t from = row * layout.padded();
      const learn::Choices choices = draw(observations.subspan(row * width, width),
                                          logits.subspan(from, layout.padded()), random);
      write_mask(choices.allowed, numbers<float>(mask).subspan(from, layout.padded()));
    }
    next = masked_policy(by_head(outputs), mask);
  };
  std::vector<at::Tensor> values(targets.size());
  const auto value = [&] {
    const at::NoGradGuard none_in_this_thread;
    for (std::size_t at = 0; at < targets.size(); ++at)
      values[at] = by_head(targets[at].forward(batch.next_observations));
  };
  both(choose_next, value);
  const at::Tensor value_after =
      soft_value(next, cautious_values(next, values[0], values[1]), temperature());
  return batch.rewards + options.discount * (value_after - value_after.mean());
}

void Learner::Impl::descend(Optimised& optimised, const at::Tensor& loss) const {
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({loss}, optimised.network.leaves());
  std::size_t from = 0;
  for (const at::Tensor& gradient : gradients) {
    at::Tensor whole = gradient.contiguous();
    const std::span<const float> values = numbers<float>(whole);
    const auto part = [&](std::span<float> of) { return of.subspan(from, values.size()); };
    adam_step(options.learning_rate, updates, values, part(optimised.network.parameters()),
              part(optimised.first), part(optimised.second));
    from += values.size();
  }
}

// Updates a critic and returns its values of every possibility before the update.
at::Tensor Learner::Impl::step_critic(Optimised& critic, const Batch& batch,
                                      const at::Tensor& expected, double* loss_value) const {
  const at::Tensor values = by_head(critic.network.forward(batch.observations));
  const at::Tensor loss = critic_loss(values, batch.chosen, expected);
  descend(critic, loss);
  *loss_value = loss.item<double>();
  return values.detach();
}

void Learner::Impl::step_temperature(const at::Tensor& entropies,
                                     const at::Tensor& target_entropies) {
  const at::Tensor logarithm =
      at::full({}, double{log_temperature.parameters.front()}, at::kFloat).requires_grad_();
  const at::Tensor loss = temperature_loss(logarithm, entropies, target_entropies);
  const auto slope = torch::autograd::grad({loss}, {logarithm})[0].item<float>();
  adam_step(options.learning_rate, updates, {&slope, 1}, log_temperature.parameters,
            log_temperature.first_moments, log_temperature.second_moments);
}

LearnerFigures Learner::Impl::update(Random& random) {
  ++updates;
  LearnerFigures figures;
  figures.temperature = temperature();
  const Batch batch = draw_batch(random);
  const at::Tensor expected = critic_targets(batch, random);

  std::array<at::Tensor, 2> values;
  std::array<double, 2> losses{};
  const auto step_one = [&](std::size_t at) {
    values.at(at) = step_critic(critics[at], batch, expected, &losses.at(at));
  };
  both([&] { step_one(0); }, [&] { step_one(1); });
  figures.critic_loss = (losses[0] + losses[1]) / 2;

  MaskedPolicy now;
  const auto step_policy = [&] {
    now = masked_policy(by_head(policy.front().network.forward(batch.observations)), batch.mask);
    const MaskedPolicy given{now.logarithms.detach(), now.probabilities.detach()};
    const at::Tensor loss =
        policy_loss(now, cautious_values(given, values[0], values[1]), figures.temperature);
    descend(policy.front(), loss);
    now = given;
  };
  const auto move_targets = [&] {
    for (std::size_t at = 0; at < critics.size(); ++at) {
      move_towards(options.target_update, std::as_const(critics[at].network).parameters(),
                   targets[at].parameters());
    }
  };
  both(step_policy, move_targets);

  const at::Tensor entropies = entropy(now);
  step_temperature(entropies, batch.target_entropies);
  figures.entropy = entropies.mean().item<double>();
  figures.target_entropy = batch.target_entropies.mean().item<double>();
  return figures;
}

Learner::Learner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Learner::~Learner() = default;
Learner::Learner(Learner&&) noexcept = default;
Learner& Learner::operator=(Learner&&) noexcept = default;

Result<Learner> Learner::create(std::size_t observation_size, const learn::ChoiceRules& rules,
                                LearnerOptions options, std::uint64_t seed) {
  if (observation_size == 0)
    return Status(StatusCode::invalid, "an observation needs at least one number; its size is 0");
  if (Status status = check_options(options); !status.ok()) return status;
  at::set_num_threads(1);
  return Learner(std::make_unique<Impl>(observation_size, rules, std::move(options), seed));
}

learn::Choices Learner::act(std::span<const float> observation, Random& random) const {
  const at::NoGradGuard no_gradients;
  at::Tensor in = at::empty({1, static_cast<std::int64_t>(observation.size())}, at::kFloat);
  std::copy(observation.begin(), observation.end(), in.data_ptr<float>());
  at::Tensor logits = impl_->policy.front().network.forward(in).contiguous();
  return impl_->draw(observation, numbers<float>(logits), random);
}

void Learner::remember(std::span<const float> observation, const learn::Choices& choices,
                       double reward, std::span<const float> next_observation) {
  impl_->replay.add(observation, choices, reward, next_observation);
}

bool Learner::can_update() const { return impl_->replay.size() >= impl_->options.batch; }

LearnerFigures Learner::update(Random& random) { return impl_->update(random); }

Result<learn::Network> Learner::policy() const {
  const Perceptron& network = impl_->policy.front().network;
  std::span<const float> rest = network.parameters();
  std::vector<learn::Layer> layers;
  for (std::size_t at = 1; at < network.widths().size(); ++at) {
    const auto inputs = static_cast<std::size_t>(network.widths()[at - 1]);
    const auto outputs = static_cast<std::size_t>(network.widths()[at]);
    const bool last = at + 1 == network.widths().size();
    learn::Layer& layer = layers.emplace_back();
    layer.inputs = inputs;
    layer.outputs = last ? impl_->layout.possibilities : outputs;
    layer.weights.resize(layer.inputs * layer.outputs);
    layer.biases.resize(layer.outputs);
    const auto take = [&](std::size_t to, std::size_t column) {
      for (std::size_t in = 0; in < inputs; ++in)
        layer.weights[to * inputs + in] = rest[in * outputs + column];
      layer.biases[to] = rest[inputs * outputs + column];
    };
    if (last) {
      impl_->layout.for_each(take);
    } else {
      for (std::size_t out = 0; out < outputs; ++out) take(out, out);
    }
    rest = rest.subspan((inputs + 1) * outputs);
  }
  auto made = learn::Network::create(std::move(layers));
  if (made.ok()) return made;
  return Status(StatusCode::internal, "training diverged: " + made.status().message());
}

LearnerState Learner::state() const {
  const auto of = [](const Optimised& optimised) {
    return LearnerState::Trained{copy_of(optimised.network.parameters()), optimised.first,
                                 optimised.second};
  };
  LearnerState state;
  state.updates = impl_->updates;
  state.policy = of(impl_->policy.front());
  for (const Optimised& critic : impl_->critics) state.critics.push_back(of(critic));
  for (const Perceptron& target : impl_->targets)
    state.targets.push_back(copy_of(target.parameters()));
  state.log_temperature = impl_->log_temperature;
  state.replay = impl_->replay.rows();
  return state;
}

Status Learner::restore(LearnerState state) {
  const std::size_t size = impl_->policy.front().network.size();
  const auto fits = [](const LearnerState::Trained& trained, std::size_t count) {
    return trained.parameters.size() == count && trained.first_moments.size() == count &&
           trained.second_moments.size() == count;
  };
  bool all_fit = fits(state.policy, size) && fits(state.log_temperature, 1) &&
                 state.critics.size() == 2 && state.targets.size() == 2;
  for (const auto& critic : state.critics) all_fit = all_fit && fits(critic, size);
  for (const auto& target : state.targets) all_fit = all_fit && target.size() == size;
  if (!all_fit) return {StatusCode::malformed, "the networks have other sizes"};
  auto replay = Replay::restore(impl_->replay.shape(), std::move(state.replay));
  if (!replay.ok()) return replay.status();

  const auto put = [](LearnerState::Trained& trained, Optimised& to) {
    std::copy(trained.parameters.begin(), trained.parameters.end(),
              to.network.parameters().begin());
    to.first = std::move(trained.first_moments);
    to.second = std::move(trained.second_moments);
  };
  put(state.policy, impl_->policy.front());
  for (std::size_t at = 0; at < 2; ++at) {
    put(state.critics[at], impl_->critics[at]);
    std::copy(state.targets[at].begin(), state.targets[at].end(),
              impl_->targets[at].parameters().begin());
  }
  impl_->log_temperature = std::move(state.log_temperature);
  impl_->replay = std::move(replay).value();
  impl_->updates = state.updates;
  return {};
}

}  // namespace gpulet::train
