#include "research/train/learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tests/research/train/small_problem.h"

namespace gpulet::train {
namespace {

constexpr std::array<std::array<float, 3>, 3> kStates{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};

Learner made(const learn::ChoiceRules& rules, const LearnerOptions& options) {
  return Learner::create(3, rules, options, 1).value();
}

// Random steps with equal rewards.
void remember_some(Learner& learner, Random& random, double reward) {
  while (!learner.can_update()) {
    const auto& state = kStates.at(random.below(3));
    learner.remember(state, learner.act(state, random), reward, kStates.at(random.below(3)));
  }
}

TEST(Learner, NamesTheOptionThatIsOutOfRange) {
  const TwoDifferent rules;
  const auto message = [&](const LearnerOptions& options) {
    return Learner::create(3, rules, options, 1).status().message();
  };
  LearnerOptions options = small_options();
  options.discount = 1;
  EXPECT_THAT(message(options), testing::StartsWith("discount: "));
  options = small_options();
  options.learning_rate = std::nan("");
  EXPECT_THAT(message(options), testing::StartsWith("learning_rate: "));
  options = small_options();
  options.replay_capacity = 3;
  EXPECT_THAT(message(options), testing::StartsWith("replay_capacity: "));
  options = small_options();
  options.hidden = {8, 0};
  EXPECT_THAT(message(options), testing::StartsWith("hidden: "));
}

TEST(Learner, StartsNearlyUniformAndKeepsTheRules) {
  const TwoDifferent rules;
  Learner learner = made(rules, small_options());
  Random random(1);
  std::array<int, 9> drawn{};
  for (int draw = 0; draw < 6000; ++draw) {
    const auto chosen = learner.act(kStates[0], random).chosen;
    ++drawn.at(3 * chosen[0] + chosen[1]);
  }
  for (std::size_t pair = 0; pair < drawn.size(); ++pair) {
    if (pair / 3 == pair % 3) {
      EXPECT_EQ(drawn.at(pair), 0);
    } else {
      EXPECT_NEAR(drawn.at(pair), 1000, 150);
    }
  }
}

// With equal rewards only the entropy matters: it stays at the uniform choice's, log 3 + log 2, and
// the temperature falls towards the lower target.
TEST(Learner, StaysUniformWithEqualRewards) {
  const TwoDifferent rules;
  Learner learner = made(rules, small_options());
  Random random(1);
  remember_some(learner, random, 3);
  const LearnerFigures first = learner.update(random);
  LearnerFigures last;
  for (int update = 0; update < 200; ++update) last = learner.update(random);
  EXPECT_NEAR(last.entropy, std::log(6), 0.02);
  EXPECT_NEAR(last.target_entropy, 0.05 * std::log(6), 1e-5);
  EXPECT_EQ(first.temperature, 1);
  // With a constant gradient, Adam moves by its learning rate per step.
  EXPECT_NEAR(last.temperature, std::exp(-200 * small_options().learning_rate), 0.05);
}

TEST(Learner, RaisesTheTemperatureBelowTheTargetEntropy) {
  const TwoDifferent rules;
  LearnerOptions options = small_options();
  options.entropy_fraction = 1;
  options.first_temperature = 1e-3;
  Learner learner = made(rules, options);
  Random random(1);
  while (!learner.can_update()) {
    const auto& state = kStates.at(random.below(3));
    const learn::Choices choices = learner.act(state, random);
    learner.remember(state, choices, choices.chosen[0], kStates[0]);
  }
  LearnerFigures last;
  for (int update = 0; update < 500; ++update) last = learner.update(random);
  EXPECT_GT(last.temperature, 1.5e-3);
}

TEST(Learner, ThePapersTargetIsBelowEveryEntropy) {
  const TwoDifferent rules;
  LearnerOptions options = small_options();
  options.target_entropy = TargetEntropy::paper;
  Learner learner = made(rules, options);
  Random random(1);
  remember_some(learner, random, 0);
  EXPECT_NEAR(learner.update(random).target_entropy, -std::log(1 + 6), 1e-5);
}

TEST(Learner, FirstPolicyHasTheRequestedSizes) {
  const TwoDifferent rules;
  const auto policy = made(rules, small_options()).policy().value();
  ASSERT_EQ(policy.layers().size(), 3);
  EXPECT_EQ(policy.inputs(), 3);
  EXPECT_EQ(policy.layers()[1].inputs, 32);
  EXPECT_EQ(policy.outputs(), 6);
}

TEST(Learner, PolicyNetworkSamplesTheSameActions) {
  const TwoDifferent rules;
  Learner learner = made(rules, small_options());
  Random random(1);
  remember_some(learner, random, 3);
  for (int update = 0; update < 50; ++update) learner.update(random);
  const auto policy = learner.policy().value();
  learn::Network::Scratch scratch;
  std::vector<float> logits(policy.outputs());
  Random one(2), other(2);
  for (int draw = 0; draw < 1000; ++draw) {
    const std::array<float, 3> observation{static_cast<float>(random.uniform()),
                                           static_cast<float>(random.uniform()), 1};
    policy.forward(observation, logits, scratch);
    ASSERT_EQ(learner.act(observation, one),
              learn::choose_at_random(observation, logits, rules, other));
  }
}

TEST(Learner, RejectsAStateOfOtherSizes) {
  const TwoDifferent rules;
  Learner learner = made(rules, small_options());
  LearnerOptions wider = small_options();
  wider.hidden = {33, 32};
  const LearnerState before = learner.state();
  EXPECT_EQ(learner.restore(made(rules, wider).state()).code(), StatusCode::malformed);
  LearnerState state = before;
  state.replay.rewards.push_back(1);
  EXPECT_EQ(learner.restore(state).code(), StatusCode::malformed);
  EXPECT_EQ(learner.state(), before);
}

TEST(Replay, ReplacesTheOldestStep) {
  Replay replay({.capacity = 2, .observation = 1, .heads = 1, .possibilities = 1});
  for (const float step : {1.0F, 2.0F, 3.0F}) replay.add({&step, 1}, {{0}, {1}}, step, {&step, 1});
  EXPECT_EQ(replay.size(), 2);
  EXPECT_EQ(replay.rows().rewards, (std::vector<double>{3, 2}));
}

// A spread that followed the policy would make abandoned choices look better
// (research/train/learner.h).
TEST(Replay, KeepsTheSpreadOfTheFirstRewards) {
  Replay replay({.capacity = 4, .observation = 1, .heads = 1, .possibilities = 1});
  for (const float reward : {1.0F, 3.0F, 5.0F, 7.0F, 90.0F, -90.0F})
    replay.add({&reward, 1}, {{0}, {1}}, reward, {&reward, 1});
  EXPECT_DOUBLE_EQ(replay.rows().first_rewards.mean, 4);
  EXPECT_DOUBLE_EQ(replay.rows().first_rewards.deviation, std::sqrt(5.0));
}

}  // namespace
}  // namespace gpulet::train
