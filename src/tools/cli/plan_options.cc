#include "tools/cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/store.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::tools {
namespace {

Status load_interference(const PlanOptions& options, LoadedPlanInput& loaded) {
  if (options.no_interference && options.interference && *options.interference != "none") {
    return {StatusCode::invalid,
            fmt::format("--no-interference and --interference {} contradict each other; give one "
                        "of them",
                        *options.interference)};
  }
  const std::optional<std::string> requested =
      options.no_interference ? std::optional<std::string>("none") : options.interference;
  std::vector<std::string> types;
  for (const schedule::Device& device : loaded.input.cluster.devices) types.push_back(device.type);
  Result<planning::ChosenInterference> chosen =
      planning::choose_interference(*loaded.profiles, types, requested, research::fit_pair_model());
  if (!chosen.ok()) return chosen.status().within("--interference");
  loaded.interference_kind = chosen.value().kind;
  loaded.interference =
      std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  return {};
}

// The number of a model or application of the load, models first; empty: it has none of that name.
std::optional<std::size_t> number_in(const simulate::Load& load, const std::string& name) {
  std::size_t number = 0;
  for (const schedule::ModelDemand& one : load.models) {
    if (one.name == name) return number;
    ++number;
  }
  for (const config::ApplicationDemand& one : load.applications) {
    if (one.name == name) return number;
    ++number;
  }
  return std::nullopt;
}

double& rate_at(simulate::Load& load, std::size_t number) {
  return number < load.models.size() ? load.models[number].rate
                                     : load.applications[number - load.models.size()].rate;
}

template <typename Options>
void add_input_files(CLI::App& command, Options& options) {
  command.add_option("--cluster", options.cluster, "cluster file: nodes and their devices")
      ->required();
  command.add_option("--profiles", options.profiles, "directory of profiles")->required();
  command
      .add_option("--demand", options.demand, "demand file: models, applications, rates and SLOs")
      ->required();
}

void add_margin(CLI::App& command, std::optional<double>& margin) {
  command.add_option(
      "--margin", margin,
      fmt::format("plan with latencies that are multiplied by this; at least 1 (default: 1 for "
                  "models whose profile has the spread of latencies, {} for the others)",
                  schedule::kDefaultMargin));
}

void add_headroom(CLI::App& command, std::string& headroom) {
  command
      .add_option("--headroom", headroom,
                  "spare capacity for random peaks above the mean rates: none or poisson")
      ->capture_default_str();
}

}  // namespace

void add_plan_options(CLI::App& command, PlanOptions& options) {
  add_input_files(command, options);
  command
      .add_option("--policy", options.policy,
                  fmt::format("one of {}{}", research::policies().choices(),
                              research::included() ? " for a policy made by `gpulet train`" : ""))
      ->capture_default_str();
  command
      .add_option("--budget-ms", options.budget_ms,
                  "how long the policy auto may search, counted as work; 0: elastic's plan")
      ->capture_default_str();
  command.add_option("--max-devices", options.max_devices, "use at most this many devices");
  add_margin(command, options.margin);
  command.add_option(
      "--interference", options.interference,
      "model of the interference between gpulets on one device: combined, linear, learned, "
      "measured, inss or none (default: combined for every profile that knows its interference)");
  command.add_flag("--no-interference", options.no_interference, "the same as --interference none");
  add_headroom(command, options.headroom);
  command.add_flag(
      "--no-spare", options.no_spare,
      "leave the share of devices free that no gpulet needs, instead of making gpulets "
      "larger and faster");
}

void add_verify_option(CLI::App& command, PlanOptions& options) {
  command.add_flag("--unverified", options.unverified,
                   "take the policy's plan even where a model's queue, simulated, has more than "
                   "1 % of its requests late");
}

Result<LoadedPlanInput> load_plan_input(const PlanOptions& options) {
  LoadedPlanInput loaded;
  Result<std::unique_ptr<schedule::Policy>> policy = research::policies().make(options.policy);
  if (!policy.ok()) return policy.status().within("--policy");
  loaded.policy = std::move(policy).value();
  GPULET_TRY(const auto nodes, config::load_cluster(options.cluster));
  auto demand = config::load_demand(options.demand);
  if (!demand.ok()) return demand.status();
  GPULET_TRY(profile::ProfileSet profiles, profile::read_profiles(options.profiles));
  loaded.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles));

  loaded.input.cluster = schedule::cluster_from(nodes);
  loaded.load = {schedule::demands_from(demand.value().models),
                 std::move(demand.value().applications)};
  auto planned = simulate::planned_demands(loaded.load, *loaded.profiles);
  if (!planned.ok()) return planned.status().within(options.demand);
  loaded.input.demands = std::move(planned).value();
  loaded.input.profiles = loaded.profiles.get();
  loaded.input.options.margin = options.margin;
  loaded.input.options.budget_ms = options.budget_ms;
  loaded.input.options.max_devices = options.max_devices;
  loaded.input.options.use_spare = !options.no_spare;
  loaded.input.options.verify = !options.unverified;
  const Result<schedule::Headroom> headroom = planning::parse_headroom(options.headroom);
  if (!headroom.ok()) return headroom.status().within("--headroom");
  loaded.input.options.headroom = headroom.value();
  if (Status status = schedule::validate(loaded.input); !status.ok()) return status;
  if (Status fit = loaded.policy->fits(loaded.input); !fit.ok())
    return fit.within("--policy " + options.policy);
  if (Status status = load_interference(options, loaded); !status.ok()) return status;
  loaded.input.interference = loaded.interference.get();
  return loaded;
}

Result<std::vector<simulate::Load>> load_scenarios(const std::string& file,
                                                   const simulate::Load& load) {
  GPULET_TRY(const config::Scenarios scenarios, config::load_scenarios(file));
  std::vector<simulate::Load> rows(scenarios.rates.size(), load);
  for (std::size_t column = 0; column < scenarios.models.size(); ++column) {
    const std::string& name = scenarios.models[column];
    const auto number = number_in(load, name);
    if (!number) {
      return Status(StatusCode::invalid,
                    fmt::format("{}: the column '{}' names no model or application of the demand "
                                "file; add it there with its SLO",
                                file, name));
    }
    for (std::size_t row = 0; row < rows.size(); ++row)
      rate_at(rows[row], *number) = scenarios.rates[row][column];
  }
  return rows;
}

void add_train_options(CLI::App& command, TrainOptions& options) {
  add_input_files(command, options);
  add_checked(command, "--episodes", options.episodes,
              "episodes in all; with --resume this includes the earlier ones",
              CLI::Range(1, 1'000'000));
  add_checked(command, "--steps", options.steps,
              "steps per episode; each step plans for one demand", CLI::Range(1, 100'000));
  add_checked(command, "--step-seconds", options.step_seconds,
              "simulated seconds per step; requests that wait at its end wait in the next step",
              CLI::Range(0.01, 3600.0));
  add_checked(command, "--steps-per-update", options.steps_per_update,
              "steps for each update of the networks", CLI::Range(1, 100'000));
  command
      .add_option("--seed", options.seed,
                  "random seed; the same seed gives the same policy on one machine")
      ->capture_default_str();
  command
      .add_option("--discount", options.discount,
                  "weight of the next step's reward relative to the current one's; at least 0, "
                  "below 1")
      ->capture_default_str();
  add_checked(command, "--first-temperature", options.first_temperature,
              "weight of the policy's entropy at the first update, in standard deviations of the "
              "rewards; a short training needs less than 1, because each update changes it little",
              CLI::Range(1e-6, 1e6));
  command.add_option("--resume", options.resume,
                     "continue from this checkpoint of the same training");
  command
      .add_option("--out", options.out,
                  "file to write the policy to; the checkpoint (.checkpoint) and the learning "
                  "curve (.svg, .csv) get the same name with their own extensions")
      ->capture_default_str();
  add_checked(command, "--threads", options.threads,
              "computing threads; their number does not change the result", CLI::Range(1, 2));
  command.add_flag("--no-interference", options.no_interference,
                   "plan without a model of interference");
  add_margin(command, options.margin);
  add_headroom(command, options.headroom);
  command.add_flag("--json", options.json, "print one JSON document at the end");
}

std::vector<std::string> train_arguments(const TrainOptions& options) {
  std::vector<std::string> arguments{"--cluster",
                                     options.cluster,
                                     "--profiles",
                                     options.profiles,
                                     "--demand",
                                     options.demand,
                                     "--episodes",
                                     std::to_string(options.episodes),
                                     "--steps",
                                     std::to_string(options.steps),
                                     "--seed",
                                     std::to_string(options.seed),
                                     "--out",
                                     options.out,
                                     "--discount",
                                     fmt::format("{}", options.discount),
                                     "--first-temperature",
                                     fmt::format("{}", options.first_temperature),
                                     "--headroom",
                                     options.headroom,
                                     "--step-seconds",
                                     fmt::format("{}", options.step_seconds),
                                     "--steps-per-update",
                                     std::to_string(options.steps_per_update),
                                     "--threads",
                                     std::to_string(options.threads)};
  if (!options.resume.empty()) arguments.insert(arguments.end(), {"--resume", options.resume});
  if (options.no_interference) arguments.emplace_back("--no-interference");
  if (options.margin)
    arguments.insert(arguments.end(), {"--margin", fmt::format("{}", *options.margin)});
  if (options.json) arguments.emplace_back("--json");
  return arguments;
}

}  // namespace gpulet::tools
