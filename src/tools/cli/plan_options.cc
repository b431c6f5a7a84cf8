#include "tools/cli/plan_options.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/learn/learned_policy.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/from_config.h"
#include "gpulet/serve/planning.h"

namespace gpulet::tools {
namespace {

Result<schedule::Headroom> parse_headroom(const PlanOptions& options) {
  const Result<schedule::Headroom> parsed = serve::parse_headroom(options.headroom);
  return parsed.ok() ? parsed : parsed.status().within("--headroom");
}

Status load_interference(const PlanOptions& options, LoadedPlanInput& loaded) {
  if (options.no_interference && options.interference && *options.interference != "none") {
    return {StatusCode::invalid, "--no-interference and --interference " + *options.interference +
                                     " contradict each other; give one of them"};
  }
  const std::optional<std::string> requested =
      options.no_interference ? std::optional<std::string>("none") : options.interference;
  std::vector<std::string> types;
  for (const schedule::Device& device : loaded.input.cluster.devices) types.push_back(device.type);
  Result<serve::ChosenInterference> chosen =
      serve::choose_interference(*loaded.profiles, types, requested);
  if (!chosen.ok()) return chosen.status().within("--interference");
  loaded.interference_kind = chosen.value().kind;
  loaded.interference =
      std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  return {};
}

template <typename Options>
void add_input_files(CLI::App& command, Options& options) {
  command.add_option("--cluster", options.cluster, "cluster file: nodes and their devices")
      ->required();
  command.add_option("--profiles", options.profiles, "directory of profiles")->required();
  command.add_option("--demand", options.demand, "demand file: models, rates and SLOs")->required();
}

}  // namespace

void add_plan_options(CLI::App& command, PlanOptions& options) {
  add_input_files(command, options);
  command
      .add_option("--policy", options.policy,
                  "one of " + joined(schedule::policy_names()) + ", or inss:FILE")
      ->capture_default_str();
  command.add_option("--max-devices", options.max_devices, "use at most this many devices");
  command.add_option("--margin", options.margin, "factor on every latency; at least 1")
      ->capture_default_str();
  command.add_option("--interference", options.interference,
                     "model of the interference between gpulets on one device: linear, learned, "
                     "measured, inss or none (default: learned if the profiles have a fit)");
  command.add_flag("--no-interference", options.no_interference, "the same as --interference none");
  command
      .add_option("--headroom", options.headroom,
                  "capacity for random peaks above the mean rates: none or poisson")
      ->capture_default_str();
}

Result<LoadedPlanInput> load_plan_input(const PlanOptions& options) {
  LoadedPlanInput loaded;
  Result<std::unique_ptr<schedule::Policy>> policy = learn::make_policy(options.policy);
  if (!policy.ok()) return policy.status().within("--policy");
  loaded.policy = std::move(policy).value();
  const auto nodes = config::load_cluster(options.cluster);
  if (!nodes.ok()) return nodes.status();
  const auto demands = config::load_demand(options.demand);
  if (!demands.ok()) return demands.status();
  Result<profile::ProfileSet> profiles = profile::read_profiles(options.profiles);
  if (!profiles.ok()) return profiles.status();
  loaded.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles).value());

  loaded.input.cluster = schedule::cluster_from(nodes.value());
  loaded.input.demands = schedule::demands_from(demands.value());
  loaded.input.profiles = loaded.profiles.get();
  loaded.input.options.margin = options.margin;
  loaded.input.options.max_devices = options.max_devices;
  const Result<schedule::Headroom> headroom = parse_headroom(options);
  if (!headroom.ok()) return headroom.status();
  loaded.input.options.headroom = headroom.value();
  if (Status status = schedule::validate(loaded.input); !status.ok()) return status;
  if (Status fit = learn::fits(*loaded.policy, loaded.input); !fit.ok())
    return fit.within("--policy " + options.policy);
  if (Status status = load_interference(options, loaded); !status.ok()) return status;
  loaded.input.interference = loaded.interference.get();
  return loaded;
}

Result<std::vector<std::vector<schedule::ModelDemand>>> load_scenarios(
    const std::string& file, const std::vector<schedule::ModelDemand>& demands) {
  const Result<config::Scenarios> scenarios = config::load_scenarios(file);
  if (!scenarios.ok()) return scenarios.status();
  std::vector<std::size_t> columns;
  for (const std::string& model : scenarios.value().models) {
    const auto found = std::find_if(demands.begin(), demands.end(),
                                    [&](const auto& demand) { return demand.name == model; });
    if (found == demands.end()) {
      return Status(StatusCode::invalid, file + ": the column '" + model +
                                             "' names a model without an SLO; add it to the "
                                             "demand file");
    }
    columns.push_back(static_cast<std::size_t>(found - demands.begin()));
  }
  std::vector<std::vector<schedule::ModelDemand>> rows;
  for (const std::vector<double>& rates : scenarios.value().rates) {
    std::vector<schedule::ModelDemand>& row = rows.emplace_back(demands);
    for (std::size_t column = 0; column < rates.size(); ++column) {
      row[columns[column]].rate = rates[column];
    }
  }
  return rows;
}

void add_train_options(CLI::App& command, TrainOptions& options) {
  add_input_files(command, options);
  command
      .add_option("--episodes", options.episodes,
                  "episodes of the whole training, including those before --resume")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--steps", options.steps, "steps per episode; each is a demand to plan for")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command
      .add_option("--seed", options.seed,
                  "random seed; the same seed gives the same policy on one machine")
      ->capture_default_str();
  command
      .add_option("--discount", options.discount,
                  "weight of the next step relative to the current one; at least 0, below 1")
      ->capture_default_str();
  command.add_option("--resume", options.resume,
                     "continue from this checkpoint of the same training");
  command
      .add_option("--out", options.out,
                  "file of the policy; the checkpoint (.checkpoint) and the learning curve (.svg, "
                  ".csv) have the same name with other extensions")
      ->capture_default_str();
  command
      .add_option("--threads", options.threads,
                  "computing threads; their number does not change the result")
      ->capture_default_str()
      ->check(CLI::Range(1, 2));
  command.add_flag("--no-interference", options.no_interference,
                   "plan without a model of interference");
  command.add_flag("--json", options.json, "print one JSON document at the end");
}

namespace {

// With all digits, so that the program reads the same number.
std::string exact_text(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::vector<std::string> train_arguments(const TrainOptions& options) {
  std::vector<std::string> arguments{"--cluster",  options.cluster,
                                     "--profiles", options.profiles,
                                     "--demand",   options.demand,
                                     "--episodes", std::to_string(options.episodes),
                                     "--steps",    std::to_string(options.steps),
                                     "--seed",     std::to_string(options.seed),
                                     "--out",      options.out,
                                     "--discount", exact_text(options.discount),
                                     "--threads",  std::to_string(options.threads)};
  if (!options.resume.empty()) arguments.insert(arguments.end(), {"--resume", options.resume});
  if (options.no_interference) arguments.emplace_back("--no-interference");
  if (options.json) arguments.emplace_back("--json");
  return arguments;
}

}  // namespace gpulet::tools
