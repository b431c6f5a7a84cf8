// The cost of a training step and of a decision of the trained policy, for six models on four
// devices. Each model gets one device or none, and one of twenty shares. The networks and the batch
// size are those of InSS, table 1.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "gpulet/base/random.h"
#include "research/train/learner.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kObservation = 20;

class FreeChoice final : public learn::ChoiceRules {
 public:
  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return sizes_; }
  void allow(std::span<const float> /*observation*/, std::size_t /*head*/,
             std::span<const std::uint32_t> /*chosen_before*/,
             std::span<std::uint8_t> allowed) const override {
    for (std::uint8_t& one : allowed) one = 1;
  }

 private:
  std::array<std::uint32_t, 12> sizes_{5, 20, 5, 20, 5, 20, 5, 20, 5, 20, 5, 20};
};

std::vector<float> random_observation(Random& random) {
  std::vector<float> observation(kObservation);
  for (float& value : observation) value = static_cast<float>(random.uniform());
  return observation;
}

train::Learner learner_on(const learn::ChoiceRules& rules, std::uint32_t threads) {
  train::LearnerOptions options;
  options.threads = threads;
  return train::Learner::create(kObservation, rules, options, 1).value();
}

void update(benchmark::State& state) {
  const FreeChoice rules;
  train::Learner learner = learner_on(rules, static_cast<std::uint32_t>(state.range(0)));
  Random random(1);
  for (int step = 0; step < 1000; ++step) {
    const auto observation = random_observation(random);
    learner.remember(observation, learner.act(observation, random), random.uniform(),
                     random_observation(random));
  }
  for (auto _ : state) benchmark::DoNotOptimize(learner.update(random));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(update)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

void act(benchmark::State& state) {
  const FreeChoice rules;
  const train::Learner learner = learner_on(rules, 1);
  Random random(1);
  const auto observation = random_observation(random);
  for (auto _ : state) benchmark::DoNotOptimize(learner.act(observation, random));
}
BENCHMARK(act)->Unit(benchmark::kMicrosecond);

void forward(benchmark::State& state) {
  const FreeChoice rules;
  Random random(1);
  const auto policy = learner_on(rules, 1).policy().value();
  const auto observation = random_observation(random);
  std::vector<float> logits(policy.outputs());
  learn::Network::Scratch scratch;
  for (auto _ : state) {
    policy.forward(observation, logits, scratch);
    benchmark::DoNotOptimize(logits.data());
  }
}
BENCHMARK(forward)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
