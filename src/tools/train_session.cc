#include "tools/train_session.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpulet/core/random.h"
#include "gpulet/learn/files.h"
#include "gpulet/train/curve.h"
#include "gpulet/train/run.h"
#include "gpulet/train/training.h"
#include "tools/command.h"
#include "tools/table.h"
#include "tools/training_watch.h"

namespace gpulet::tools {
namespace {

constexpr int kPlayedEpisodes = 5;

// What is written, named after the policy's file.
struct Files {
  explicit Files(const std::filesystem::path& out)
      : policy(out), checkpoint(out), picture(out), table(out) {
    checkpoint.replace_extension(".checkpoint");
    picture.replace_extension(".svg");
    table.replace_extension(".csv");
  }

  std::filesystem::path policy, checkpoint, picture, table;
};

Result<train::Training> begin(const TrainFlags& flags, const TrainingTask& task) {
  train::TrainingOptions options;
  options.seed = flags.seed;
  options.learner.threads = flags.threads;
  options.learner.discount = flags.discount;
  options.trained_for = task.trained_for;
  if (flags.resume.empty()) return train::Training::create(*task.environment, std::move(options));
  const auto checkpoint = learn::read_file(flags.resume);
  if (!checkpoint.ok()) return checkpoint.status();
  auto resumed = train::Training::resume(*task.environment, std::move(options), checkpoint.value());
  return resumed.ok() ? std::move(resumed)
                      : Result<train::Training>(resumed.status().within(flags.resume));
}

Status write(const train::Training& training, const TrainingTask& task, const Files& files) {
  Status status = learn::write_file(files.picture, train::curve_svg(training.curve()));
  if (status.ok()) status = learn::write_file(files.table, train::curve_csv(training.curve()));
  if (!status.ok()) return status;
  const auto policy = training.policy();
  return policy.ok() ? task.write_policy(policy.value(), training.episode_of_policy(), files.policy)
                     : policy.status();
}

// The policy without chance, on episodes that it was not trained on.
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

void tell(const train::Training& training, const train::EpisodeFigures& played, const Files& files,
          double seconds, bool interrupted, bool json) {
  const std::size_t episodes = training.curve().size();
  if (json) {
    std::cout << nlohmann::ordered_json{{"episodes", episodes},
                                        {"episode_of_policy", training.episode_of_policy()},
                                        {"interrupted", interrupted},
                                        {"seconds", seconds},
                                        {"reward", played.reward},
                                        {"violation", played.violation},
                                        {"throughput_rps", played.throughput},
                                        {"policy", files.policy.string()},
                                        {"checkpoint", files.checkpoint.string()},
                                        {"curve", files.picture.string()},
                                        {"curve_table", files.table.string()}}
                     .dump(2)
              << '\n';
    return;
  }
  std::cout << episodes << " episodes in " << fixed(seconds, 0) << " s"
            << (interrupted ? ", stopped; go on with --resume " + files.checkpoint.string() : "")
            << "\nthe best policy, after episode " << training.episode_of_policy()
            << ", without chance on " << kPlayedEpisodes << " episodes of its own: reward "
            << shortest(played.reward, 3) << ", " << fixed(played.violation * 100, 3)
            << " % violated, " << fixed(played.throughput, 1) << " requests/s\npolicy      "
            << files.policy.string() << "\ncheckpoint  " << files.checkpoint.string()
            << "\ncurve       " << files.picture.string() << ", " << files.table.string() << '\n';
}

}  // namespace

int train_and_tell(const TrainFlags& flags, const TrainingTask& task) {
  auto begun = begin(flags, task);
  if (!begun.ok()) return bad_input(begun.status());
  train::Training& training = begun.value();
  const Files files(flags.out);
  bool interrupted = false;
  double seconds = 0;
  {
    TrainingWatch watch(flags.episodes, training.curve().size());
    train::RunOptions options;
    options.episodes = flags.episodes;
    options.checkpoint = files.checkpoint;
    options.go_on = [&](const train::EpisodeFigures& figures) { return watch.show(figures); };
    if (Status status = train::run(training, options); !status.ok()) return run_failed(status);
    interrupted = watch.interrupted();
    seconds = watch.passed().count();
  }
  if (Status status = write(training, task, files); !status.ok()) return run_failed(status);
  const auto policy = training.policy();
  if (!policy.ok()) return run_failed(policy.status());
  tell(training, play_some(task, policy.value(), flags.seed), files, seconds, interrupted,
       flags.json);
  return kSucceeded;
}

}  // namespace gpulet::tools
