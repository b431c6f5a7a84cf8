#include "tools/train_options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <cstdio>

namespace gpulet::tools {

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  command.add_option("--cluster", flags.cluster, "cluster file: nodes and their devices")
      ->required();
  command.add_option("--profiles", flags.profiles, "directory of profiles")->required();
  command.add_option("--demand", flags.demand, "demand file: models, rates and SLOs")->required();
  command
      .add_option("--episodes", flags.episodes,
                  "of the whole training, those before a --resume among them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--steps", flags.steps, "of an episode: demands that are planned for")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command.add_option("--seed", flags.seed, "the same seed gives the same policy on one machine")
      ->capture_default_str();
  command
      .add_option("--discount", flags.discount,
                  "what the next step counts beside this one; at least 0, below 1")
      ->capture_default_str();
  command.add_option("--resume", flags.resume, "go on from this checkpoint of the same training");
  command
      .add_option("--out", flags.out,
                  "the policy's file; beside it, by other endings, the checkpoint "
                  "(.checkpoint) and the curve (.svg, .csv)")
      ->capture_default_str();
  command
      .add_option("--threads", flags.threads, "that compute; they do not change what is learned")
      ->capture_default_str()
      ->check(CLI::Range(1, 2));
  command.add_flag("--no-interference", flags.no_interference,
                   "plans know nothing of what neighbours cost");
  command.add_flag("--json", flags.json, "print one JSON document at the end");
}

namespace {

// So that the program reads the same number.
std::string digits(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::vector<std::string> arguments_of(const TrainFlags& flags) {
  std::vector<std::string> arguments{"--cluster",  flags.cluster,
                                     "--profiles", flags.profiles,
                                     "--demand",   flags.demand,
                                     "--episodes", std::to_string(flags.episodes),
                                     "--steps",    std::to_string(flags.steps),
                                     "--seed",     std::to_string(flags.seed),
                                     "--out",      flags.out,
                                     "--discount", digits(flags.discount),
                                     "--threads",  std::to_string(flags.threads)};
  if (!flags.resume.empty()) arguments.insert(arguments.end(), {"--resume", flags.resume});
  if (flags.no_interference) arguments.emplace_back("--no-interference");
  if (flags.json) arguments.emplace_back("--json");
  return arguments;
}

}  // namespace gpulet::tools
