#include "tools/plan_options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <utility>

#include "gpulet/learn/inss_policy.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/from_config.h"
#include "gpulet/serve/planning.h"

namespace gpulet::tools {
namespace {

std::string policies() {
  std::string text;
  for (const std::string_view name : schedule::policy_names()) {
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

Result<schedule::Headroom> headroom_of(const PlanFlags& flags) {
  const Result<schedule::Headroom> parsed = serve::parse_headroom(flags.headroom);
  return parsed.ok() ? parsed : parsed.status().within("--headroom");
}

Status load_interference(const PlanFlags& flags, LoadedPlanInput& loaded) {
  if (flags.no_interference && flags.interference && *flags.interference != "none") {
    return {StatusCode::invalid, "--no-interference and --interference " + *flags.interference +
                                     " contradict each other; give one of them"};
  }
  const std::optional<std::string> asked =
      flags.no_interference ? std::optional<std::string>("none") : flags.interference;
  std::vector<std::string> types;
  for (const schedule::Device& device : loaded.input.cluster.devices) types.push_back(device.type);
  Result<serve::ChosenInterference> chosen =
      serve::choose_interference(*loaded.profiles, types, asked);
  if (!chosen.ok()) return chosen.status().within("--interference");
  loaded.interference_kind = chosen.value().kind;
  loaded.interference =
      std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  return {};
}

}  // namespace

void add_plan_flags(CLI::App& command, PlanFlags& flags) {
  command.add_option("--cluster", flags.cluster, "cluster file: nodes and their devices")
      ->required();
  command.add_option("--profiles", flags.profiles, "directory of profiles")->required();
  command.add_option("--demand", flags.demand, "demand file: models, rates and SLOs")->required();
  command.add_option("--policy", flags.policy, "one of " + policies() + ", or inss:FILE")
      ->capture_default_str();
  command.add_option("--max-devices", flags.max_devices, "use at most so many devices");
  command.add_option("--margin", flags.margin, "every latency is multiplied by it; at least 1")
      ->capture_default_str();
  command.add_option("--interference", flags.interference,
                     "what the plan believes of gpulets that share a device: linear, learned, "
                     "measured, inss or none (default: learned where the profiles hold a fit)");
  command.add_flag("--no-interference", flags.no_interference, "the same as --interference none");
  command
      .add_option("--headroom", flags.headroom,
                  "none, or poisson: room for what chance adds to the mean rates")
      ->capture_default_str();
}

Result<LoadedPlanInput> load(const PlanFlags& flags) {
  LoadedPlanInput loaded;
  Result<std::unique_ptr<schedule::Policy>> policy = learn::make_policy(flags.policy);
  if (!policy.ok()) return policy.status().within("--policy");
  loaded.policy = std::move(policy).value();
  const auto nodes = config::load_cluster(flags.cluster);
  if (!nodes.ok()) return nodes.status();
  const auto demands = config::load_demand(flags.demand);
  if (!demands.ok()) return demands.status();
  Result<profile::ProfileSet> profiles = profile::read_profiles(flags.profiles);
  if (!profiles.ok()) return profiles.status();
  loaded.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles).value());

  loaded.input.cluster = schedule::cluster_from(nodes.value());
  loaded.input.demands = schedule::demands_from(demands.value());
  loaded.input.profiles = loaded.profiles.get();
  loaded.input.options.margin = flags.margin;
  loaded.input.options.max_devices = flags.max_devices;
  const Result<schedule::Headroom> headroom = headroom_of(flags);
  if (!headroom.ok()) return headroom.status();
  loaded.input.options.headroom = headroom.value();
  if (Status status = schedule::validate(loaded.input); !status.ok()) return status;
  if (Status fit = learn::fits(*loaded.policy, loaded.input); !fit.ok())
    return fit.within("--policy " + flags.policy);
  if (Status status = load_interference(flags, loaded); !status.ok()) return status;
  loaded.input.interference = loaded.interference.get();
  return loaded;
}

Result<LoadedScenarios> load_scenarios(const std::string& file,
                                       const std::vector<schedule::ModelDemand>& demands) {
  const Result<config::Scenarios> scenarios = config::load_scenarios(file);
  if (!scenarios.ok()) return scenarios.status();
  std::vector<std::size_t> columns;
  for (const std::string& model : scenarios.value().models) {
    const auto found = std::find_if(demands.begin(), demands.end(),
                                    [&](const auto& demand) { return demand.name == model; });
    if (found == demands.end()) {
      return Status(StatusCode::invalid, file + ": the column '" + model +
                                             "' names a model without an SLO: add it to the "
                                             "demand file");
    }
    columns.push_back(static_cast<std::size_t>(found - demands.begin()));
  }
  LoadedScenarios loaded;
  for (const std::vector<double>& rates : scenarios.value().rates) {
    std::vector<schedule::ModelDemand>& row = loaded.rows.emplace_back(demands);
    for (std::size_t column = 0; column < rates.size(); ++column) {
      row[columns[column]].rate = rates[column];
    }
  }
  return loaded;
}

}  // namespace gpulet::tools
