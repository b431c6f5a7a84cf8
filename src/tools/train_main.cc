// gpulet-train: what `gpulet train` starts. See tools/train_session.h.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <exception>
#include <iostream>
#include <utility>

#include "gpulet/learn/learned_policy.h"
#include "gpulet/learn/placement_task.h"
#include "gpulet/train/placement_environment.h"
#include "tools/command.h"
#include "tools/plan_options.h"
#include "tools/table.h"
#include "tools/train_options.h"
#include "tools/train_session.h"

namespace {

using namespace gpulet;
using namespace gpulet::tools;

// What decides whether a checkpoint is of the same training.
std::string in_words(const learn::PlacementTask& task, const train::PlacementOptions& options) {
  std::string words =
      std::to_string(options.steps) + " steps of " + shortest(options.seconds, 6) + " s on";
  for (const schedule::Device& device : task.devices)
    words +=
        " " + device.key.node + "/" + std::to_string(device.key.device) + " (" + device.type + ")";
  words += " for";
  for (const learn::TaskModel& model : task.models) {
    words += " " + model.name + " (" + shortest(model.highest_rate, 6) + "/s in " +
             shortest(model.slo_ms, 6) + " ms)";
  }
  return words;
}

int train_placement(const TrainFlags& flags) {
  PlanFlags plan;
  plan.cluster = flags.cluster;
  plan.profiles = flags.profiles;
  plan.demand = flags.demand;
  plan.no_interference = flags.no_interference;
  const auto loaded = load(plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const schedule::PlanInput& input = loaded.value().input;
  const auto task = learn::task_of(input);
  if (!task.ok()) return bad_input(task.status());

  simulate::Knowledge knowledge;
  knowledge.profiles = loaded.value().profiles;
  knowledge.believed = loaded.value().interference;
  knowledge.measured = simulate::measured_pairs(*knowledge.profiles);
  knowledge.policy = loaded.value().policy.get();
  train::PlacementOptions options;
  options.steps = flags.steps;
  TrainingTask training;
  training.environment = train::make_placement_environment(
      task.value(), {input.cluster, input.demands, input.options}, std::move(knowledge), options);
  training.trained_for = in_words(task.value(), options);
  if (flags.no_interference) training.trained_for += ", without interference";
  training.write_policy = [&](const learn::Network& network, std::uint64_t episodes,
                              const std::filesystem::path& file) {
    return learn::write_policy(
        {task.value(),
         network,
         {{"episodes", std::to_string(episodes)},
          {"steps", std::to_string(flags.steps)},
          {"seed", std::to_string(flags.seed)},
          {"discount", shortest(flags.discount, 6)},
          {"interference", std::string(to_string(loaded.value().interference_kind))}}},
        file);
  };
  return train_and_tell(flags, training);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CLI::App app{"gpulet-train trains a policy that places models.", "gpulet-train"};
    TrainFlags flags;
    add_train_flags(app, flags);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? kSucceeded : kBadInput;
    }
    return train_placement(flags);
  } catch (const std::exception& error) {
    std::cerr << "gpulet: unexpected failure: " << error.what() << '\n';
    return kRunFailed;
  }
}
