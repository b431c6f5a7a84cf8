
#include "research/train/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "research/learn/learned_policy.h"
#include "tests/research/train/small_problem.h"
#include "tests/support/names.h"

namespace gpulet::train {
namespace {

using support::holds;
using support::names;
using ::testing::StartsWith;

TrainingOptions options_of(std::uint64_t seed) {
  return {.seed = seed, .learner = small_options(), .trained_for = "the small problem"};
}

void run(Training& training, int episodes) {
  for (int episode = 0; episode < episodes; ++episode) training.run_episode();
}

TEST(TrainedPolicy, SolvesTheSmallProblem) {
  for (const std::uint64_t seed : {1U, 2U}) {
    SmallProblem problem;
    Training training = Training::create(problem, options_of(seed)).value();
    run(training, 120);
    const EpisodeFigures played = play(problem, training.policy().value(), 99);
    EXPECT_EQ(played.reward, 1) << "seed " << seed;
    EXPECT_EQ(played.violation, 0);
    EXPECT_EQ(played.steps, 20);
    EXPECT_EQ(training.curve().size(), 120);
    EXPECT_GT(training.curve().back().reward, training.curve().front().reward + 1);
  }
}

TEST(Training, GivesTheSamePolicyForTheSameSeed) {
  SmallProblem first_problem, second_problem;
  Training first = Training::create(first_problem, options_of(7)).value();
  Training second = Training::create(second_problem, options_of(7)).value();
  Training other = Training::create(second_problem, options_of(8)).value();
  run(first, 12);
  run(second, 12);
  run(other, 12);
  EXPECT_EQ(first.policy().value(), second.policy().value());
  EXPECT_EQ(first.curve(), second.curve());
  EXPECT_NE(first.policy().value(), other.policy().value());
}

TEST(Training, DoesNotDependOnTheNumberOfThreads) {
  SmallProblem problem;
  TrainingOptions options = options_of(7);
  Training alone = Training::create(problem, options).value();
  run(alone, 8);
  options.learner.threads = 2;
  Training helped = Training::create(problem, options).value();
  run(helped, 8);
  EXPECT_EQ(helped.checkpoint(), alone.checkpoint());
}

TEST(Training, ResumesWithTheSameResult) {
  SmallProblem problem;
  Training whole = Training::create(problem, options_of(7)).value();
  run(whole, 12);

  Training before = Training::create(problem, options_of(7)).value();
  run(before, 5);
  const std::string checkpoint = before.checkpoint();
  SmallProblem same_problem;
  Training after = Training::resume(same_problem, options_of(7), checkpoint).value();
  EXPECT_EQ(after.checkpoint(), checkpoint);
  run(after, 7);

  EXPECT_EQ(after.checkpoint(), whole.checkpoint());
  EXPECT_EQ(after.policy().value(), whole.policy().value());
  EXPECT_EQ(after.curve(), whole.curve());
}

TEST(Training, UpdatesAfterEveryFewSteps) {
  SmallProblem problem;
  TrainingOptions options = options_of(7);
  options.steps_per_update = 1'000'000;
  Training never = Training::create(problem, options).value();
  run(never, 12);
  EXPECT_EQ(never.curve().back().critic_loss, 0);
  SmallProblem same_problem;
  Training always = Training::create(same_problem, options_of(7)).value();
  run(always, 12);
  EXPECT_GT(always.curve().back().critic_loss, 0);
}

TEST(Training, ReturnsTheBestEvaluatedPolicy) {
  TrainingOptions options = options_of(7);
  options.play_every = 5;
  SmallProblem problem;
  Training training = Training::create(problem, options).value();
  run(training, 4);
  EXPECT_EQ(training.episode_of_policy(), 4);
  run(training, 28);
  const EpisodeFigures* best = nullptr;
  for (const EpisodeFigures& figures : training.curve()) {
    EXPECT_EQ(figures.played, figures.episode % 5 == 0 ? options.played_episodes : 0);
    if (figures.played > 0 && (best == nullptr || figures.played_reward > best->played_reward))
      best = &figures;
  }
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(training.episode_of_policy(), best->episode);

  SmallProblem again;
  Training to_the_best = Training::create(again, options).value();
  run(to_the_best, static_cast<int>(best->episode));
  EXPECT_EQ(training.policy().value(), to_the_best.policy().value());

  const Training resumed = Training::resume(again, options, training.checkpoint()).value();
  EXPECT_EQ(resumed.policy().value(), training.policy().value());
  EXPECT_EQ(resumed.checkpoint(), training.checkpoint());
}

TEST(Training, ResumesOnlyWithTheSameOptionsAndAnIntactCheckpoint) {
  SmallProblem problem;
  Training training = Training::create(problem, options_of(1)).value();
  run(training, 1);
  const std::string checkpoint = training.checkpoint();
  const auto code = [&](const TrainingOptions& options, const std::string& bytes) {
    return Training::resume(problem, options, bytes).status().code();
  };
  EXPECT_EQ(code(options_of(1), checkpoint), StatusCode::ok);
  EXPECT_EQ(code(options_of(2), checkpoint), StatusCode::invalid);
  TrainingOptions other = options_of(1);
  other.trained_for = "another problem";
  EXPECT_EQ(code(other, checkpoint), StatusCode::invalid);
  other = options_of(1);
  other.steps_per_update = 2;
  EXPECT_EQ(code(other, checkpoint), StatusCode::invalid);

  EXPECT_EQ(code(options_of(1), "{}"), StatusCode::malformed);
  for (const std::size_t at : {std::size_t{40}, std::size_t{200}, checkpoint.size() - 1}) {
    std::string damaged = checkpoint;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(code(options_of(1), damaged), StatusCode::malformed);
  }
  for (const std::size_t length : {std::size_t{30}, checkpoint.size() / 2})
    EXPECT_EQ(code(options_of(1), checkpoint.substr(0, length)), StatusCode::malformed);
}

TEST(Run, StopsOnRequestAndContinuesFromItsCheckpoint) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("gpulet-run-test-" + std::to_string(::getpid()) + ".checkpoint");
  SmallProblem problem;
  Training whole = Training::create(problem, options_of(3)).value();
  run(whole, 6);

  Training stopped = Training::create(problem, options_of(3)).value();
  RunOptions options{.episodes = 6, .checkpoint = file, .checkpoint_every = 2};
  options.go_on = [](const EpisodeFigures& figures) { return figures.episode < 3; };
  ASSERT_TRUE(run(stopped, options).ok());
  EXPECT_EQ(stopped.curve().size(), 3);

  Training resumed =
      Training::resume(problem, options_of(3), learn::read_file(file).value()).value();
  EXPECT_EQ(resumed.curve().size(), 3);
  options.go_on = [](const EpisodeFigures&) { return true; };
  ASSERT_TRUE(run(resumed, options).ok());
  EXPECT_EQ(learn::read_file(file).value(), whole.checkpoint());
  std::filesystem::remove(file);

  options.checkpoint = "/nowhere/at/all";
  EXPECT_TRUE(names(run(resumed, options), "/nowhere/at/all"));
  EXPECT_EQ(learn::read_file("/nowhere/at/all").status().code(), StatusCode::not_found);
}

TEST(Training, DrawsTheCurveAsCsvAndSvg) {
  SmallProblem problem;
  Training training = Training::create(problem, options_of(1)).value();
  run(training, 2);
  const std::string table = curve_csv(training.curve());
  EXPECT_THAT(table, StartsWith("episode,steps,reward,violation,throughput,batch_throughput,"));
  EXPECT_TRUE(holds(table, "\n2,20,"));
  const std::string picture = curve_svg(training.curve());
  EXPECT_THAT(picture, StartsWith("<svg "));
  EXPECT_TRUE(names(picture, "2 episodes"));
  EXPECT_TRUE(names(curve_svg({}), "0 episodes"));
}

}  // namespace
}  // namespace gpulet::train
