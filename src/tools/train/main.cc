// gpulet-train: trains a placement policy; `gpulet train` starts it.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "gpulet/base/text.h"
#include "gpulet/version/version.h"
#include "research/learn/learned_policy.h"
#include "research/learn/network.h"
#include "research/learn/placement.h"
#include "research/train/training.h"
#include "tools/cli/command.h"
#include "tools/cli/plan_options.h"
#include "tools/report/format.h"
#include "tools/report/terminal.h"

namespace {

using namespace gpulet;
using namespace gpulet::tools;

struct TrainingTask {
  std::unique_ptr<train::Environment> environment;
  std::string trained_for;  // in words; a checkpoint resumes only the same task
  learn::PlacementTask placement;
  std::string interference;  // the model of interference
};

std::string duration_text(double seconds) {
  if (seconds < 120) return fixed(std::ceil(seconds), 0) + " s";
  return fixed(std::ceil(seconds / 60), 0) + " min";
}

// Shows a line with the progress and the remaining time, and watches for Ctrl-C.
class TrainingProgress {
 public:
  // `resumed_at`: the episodes before the checkpoint; 0 for a new training.
  TrainingProgress(std::uint64_t episodes, std::uint64_t resumed_at)
      : episodes_(episodes), resumed_at_(resumed_at) {}

  // Shows an episode. False after a signal.
  [[nodiscard]] bool show(const train::EpisodeFigures& figures) {
    const auto done = static_cast<double>(figures.episode - resumed_at_);
    const auto left = static_cast<double>(episodes_ - figures.episode);
    line_.show(fmt::format(
        "episode {} of {}: reward {}, {} % violated, {} requests/s, {} left; Ctrl-C stops it",
        figures.episode, episodes_, shortest(figures.reward, 2), fixed(figures.violation * 100, 2),
        fixed(figures.throughput, 0), duration_text(passed_s() / done * left)));
    interrupted_ = signals_.take().has_value();
    return !interrupted_;
  }

  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] double passed_s() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t episodes_;
  std::uint64_t resumed_at_;
  bool interrupted_ = false;
  Clock::time_point began_ = Clock::now();
  ProgressLine line_;
  SignalWatch signals_{SIGINT, SIGTERM};
};

constexpr int kPlayedEpisodes = 5;

// The files of a training, named after the file of the policy.
struct Files {
  explicit Files(const std::filesystem::path& out)
      : policy(out), checkpoint(out), picture(out), table(out) {
    checkpoint.replace_extension(".checkpoint");
    picture.replace_extension(".svg");
    table.replace_extension(".csv");
  }

  std::filesystem::path policy, checkpoint, picture, table;
};

Result<train::Training> start_training(const TrainOptions& flags, const TrainingTask& task) {
  train::TrainingOptions options;
  options.seed = flags.seed;
  options.learner.threads = flags.threads;
  options.learner.discount = flags.discount;
  options.learner.first_temperature = flags.first_temperature;
  options.steps_per_update = flags.steps_per_update;
  options.trained_for = task.trained_for;
  if (flags.resume.empty()) return train::Training::create(*task.environment, std::move(options));
  GPULET_TRY(const auto checkpoint, learn::read_file(flags.resume));
  auto resumed = train::Training::resume(*task.environment, std::move(options), checkpoint);
  return resumed.ok() ? std::move(resumed)
                      : Result<train::Training>(resumed.status().within(flags.resume));
}

Status write_files(const train::Training& training, const TrainingTask& task,
                   const TrainOptions& flags, const Files& files) {
  Status status = learn::write_file(files.picture, train::curve_svg(training.curve()));
  if (status.ok()) status = learn::write_file(files.table, train::curve_csv(training.curve()));
  if (!status.ok()) return status;
  GPULET_TRY(const auto policy, training.policy());
  return learn::write_policy({task.placement,
                              policy,
                              {{"episodes", std::to_string(training.episode_of_policy())},
                               {"steps", std::to_string(flags.steps)},
                               {"step_seconds", shortest(flags.step_seconds, 6)},
                               {"steps_per_update", std::to_string(flags.steps_per_update)},
                               {"seed", std::to_string(flags.seed)},
                               {"discount", shortest(flags.discount, 6)},
                               {"first_temperature", shortest(flags.first_temperature, 6)},
                               {"headroom", flags.headroom},
                               {"margin", flags.margin ? shortest(*flags.margin, 6) : "default"},
                               {"interference", task.interference}}},
                             files.policy);
}

// Plays the policy deterministically on episodes that it was not trained on.
train::EpisodeFigures play_some(const TrainingTask& task, const learn::Network& policy,
                                std::uint64_t seed) {
  train::EpisodeFigures mean;
  for (int episode = 0; episode < kPlayedEpisodes; ++episode) {
    const auto played = train::play(*task.environment, policy,
                                    stream_seed(seed, "played " + std::to_string(episode)));
    mean.steps += played.steps;
    mean.reward += played.reward / kPlayedEpisodes;
    mean.violation += played.violation / kPlayedEpisodes;
    mean.throughput += played.throughput / kPlayedEpisodes;
  }
  return mean;
}

void print_outcome(const train::Training& training, const train::EpisodeFigures& played,
                   const Files& files, double seconds, bool interrupted, bool json) {
  const std::size_t episodes = training.curve().size();
  if (json) {
    std::cout << json_page(
        nlohmann::ordered_json{{"episodes", episodes},
                               {"episode_of_policy", training.episode_of_policy()},
                               {"interrupted", interrupted},
                               {"seconds", seconds},
                               {"reward", played.reward},
                               {"violation", played.violation},
                               {"throughput_rps", played.throughput},
                               {"policy", files.policy.string()},
                               {"checkpoint", files.checkpoint.string()},
                               {"curve", files.picture.string()},
                               {"curve_table", files.table.string()}});
    return;
  }
  std::cout << fmt::format(
      "{} episodes in {} s{}\nthe best policy, after episode {}, played deterministically on {} "
      "new episodes: reward {}, {} % violated, {} requests/s\n"
      "policy      {}\ncheckpoint  {}\ncurve       {}, {}\n",
      episodes, fixed(seconds, 0),
      interrupted ? ", stopped; continue with --resume " + files.checkpoint.string() : "",
      training.episode_of_policy(), kPlayedEpisodes, shortest(played.reward, 3),
      fixed(played.violation * 100, 3), fixed(played.throughput, 1), files.policy.string(),
      files.checkpoint.string(), files.picture.string(), files.table.string());
}

// Trains until the last episode or Ctrl-C. In both cases writes the checkpoint, the learning curve
// and the best policy, and prints how the policy performs. Returns the exit code.
int train_and_report(const TrainOptions& flags, const TrainingTask& task) {
  auto started = start_training(flags, task);
  if (!started.ok()) return bad_input(started.status());
  train::Training& training = started.value();
  const Files files(flags.out);
  bool interrupted = false;
  double seconds = 0;
  {
    TrainingProgress progress(flags.episodes, training.curve().size());
    train::RunOptions options;
    options.episodes = flags.episodes;
    options.checkpoint = files.checkpoint;
    options.go_on = [&](const train::EpisodeFigures& figures) { return progress.show(figures); };
    if (Status status = train::run(training, options); !status.ok()) return run_failed(status);
    interrupted = progress.interrupted();
    seconds = progress.passed_s();
  }
  if (Status status = write_files(training, task, flags, files); !status.ok())
    return run_failed(status);
  const auto policy = training.policy();
  if (!policy.ok()) return run_failed(policy.status());
  print_outcome(training, play_some(task, policy.value(), flags.seed), files, seconds, interrupted,
                flags.json);
  return kSucceeded;
}

// Describes the task. A checkpoint resumes only if the description is the same.
std::string describe(const learn::PlacementTask& task, const train::PlacementOptions& options) {
  std::string words =
      fmt::format("{} steps of {} s on", options.steps, shortest(options.seconds, 6));
  for (const schedule::Device& device : task.devices)
    words += fmt::format(" {}/{} ({})", device.key.node, device.key.device, device.type);
  words += " for";
  for (const learn::TaskModel& model : task.models) {
    words += fmt::format(" {} ({}/s in {} ms)", model.name, shortest(model.highest_rate, 6),
                         shortest(model.slo_ms, 6));
  }
  return words;
}

int train_placement(const TrainOptions& flags) {
  PlanOptions plan;
  plan.cluster = flags.cluster;
  plan.profiles = flags.profiles;
  plan.demand = flags.demand;
  plan.no_interference = flags.no_interference;
  plan.margin = flags.margin;
  plan.headroom = flags.headroom;
  const auto loaded = load_plan_input(plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const schedule::PlanInput& input = loaded.value().input;
  const auto task = learn::task_of(input);
  if (!task.ok()) return bad_input(task.status());

  simulate::Knowledge knowledge;
  knowledge.profiles = loaded.value().profiles;
  knowledge.believed = loaded.value().interference;
  knowledge.simulated = simulate::simulated_interference(*knowledge.profiles);
  knowledge.policy = loaded.value().policy.get();
  train::PlacementOptions options;
  options.steps = flags.steps;
  options.seconds = flags.step_seconds;
  TrainingTask training;
  training.environment = train::make_placement_environment(
      task.value(), {input.cluster, input.demands, input.options}, std::move(knowledge), options);
  training.trained_for = describe(task.value(), options);
  if (flags.no_interference) training.trained_for += ", without interference";
  training.trained_for += ", headroom " + flags.headroom;
  if (flags.margin) training.trained_for += ", margin " + shortest(*flags.margin, 6);
  training.placement = task.value();
  training.interference = to_string(loaded.value().interference_kind);
  return train_and_report(flags, training);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"gpulet-train trains a placement policy.", "gpulet-train"};
  app.set_version_flag("--version", [] { return version::text("gpulet-train"); });
  TrainOptions flags;
  add_train_options(app, flags);
  return run_main(
      app, [&flags] { return train_placement(flags); }, argc, argv);
}
