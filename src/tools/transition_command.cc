// gpulet transition: what must be done, and in which order, to get from one plan to another on
// devices that are divided by MIG, while everything that both need goes on being served.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/schedule/from_config.h"
#include "gpulet/schedule/stages.h"
#include "tools/command.h"
#include "tools/plan_json.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

struct TransitionOptions {
  std::string from;
  std::string to;
  std::string cluster;
  std::string picture;
  bool json = false;
};

// The devices that the plans name, as far as they are divided by MIG: what a share is called tells
// which kind.
Result<schedule::Cluster> cluster_of(const schedule::Plan& from, const schedule::Plan& to) {
  std::map<schedule::DeviceKey, partition::MigGeometry> found;
  for (const schedule::Plan* plan : {&from, &to}) {
    for (const schedule::PlannedGpulet& gpulet : plan->gpulets) {
      if (!gpulet.instance) continue;
      const auto names = {"a100-80", "a30"};
      const auto fits = std::find_if(names.begin(), names.end(), [&](const char* name) {
        const auto geometry = partition::MigGeometry::of(name).value();
        return geometry.slices_of(gpulet.size) == gpulet.instance->slices;
      });
      if (fits == names.end()) {
        return Status(
            StatusCode::invalid,
            "no MIG device has a " + partition::mig_profile_name(gpulet.instance->slices) + " of " +
                std::to_string(gpulet.size.percent) + " %: give the cluster file with --cluster");
      }
      found.emplace(gpulet.device, partition::MigGeometry::of(*fits).value());
    }
  }
  schedule::Cluster cluster;
  for (const auto& [key, geometry] : found) {
    schedule::Device& device = cluster.devices.emplace_back();
    device.key = key;
    device.mig = geometry;
  }
  return cluster;
}

Result<schedule::Cluster> load_devices(const TransitionOptions& options, const schedule::Plan& from,
                                       const schedule::Plan& to) {
  if (options.cluster.empty()) return cluster_of(from, to);
  const auto nodes = config::load_cluster(options.cluster);
  if (!nodes.ok()) return nodes.status();
  return schedule::cluster_from(nodes.value());
}

// ---- what is shown

class Report {
 public:
  Report(const schedule::StagedPlan& staged, const schedule::Cluster& cluster)
      : task_(staged.task), transition_(staged.transition) {
    for (const schedule::Device& device : cluster.devices) {
      if (device.mig) names_.push_back(device.key.node + "/" + std::to_string(device.key.device));
    }
  }

  [[nodiscard]] Json json() const {
    Json stages = Json::array();
    for (std::size_t stage = 0; stage < transition_.stages.size(); ++stage) {
      Json actions = Json::array();
      for (std::size_t at = 0; at < transition_.actions.size(); ++at) {
        const mig::Action& action = transition_.actions[at];
        if (action.stage != stage) continue;
        Json one{{"number", at + 1},
                 {"action", mig::to_string(action.kind)},
                 {"device", names_[action.device]},
                 {"what", what(action)}};
        Json after = Json::array();
        for (const std::size_t before : action.after) after.push_back(before + 1);
        one["after"] = std::move(after);
        actions.push_back(std::move(one));
      }
      const mig::Stage& known = transition_.stages[stage];
      Json least = Json::object();
      for (std::size_t service = 0; service < task_.services.size(); ++service)
        least[task_.services[service]] = known.least_rate[service];
      stages.push_back({{"actions", std::move(actions)},
                        {"devices_in_use", known.devices_in_use},
                        {"least_rate", std::move(least)}});
    }
    const mig::ActionCounts counts = mig::count_actions(transition_, task_);
    return {{"stages", std::move(stages)},
            {"counts",
             {{"created", counts.created},
              {"removed", counts.removed},
              {"migrated_within_nodes", counts.migrated_within_nodes},
              {"migrated_across_nodes", counts.migrated_across_nodes},
              {"repartitions", counts.repartitions}}},
            {"extra_devices", transition_.extra_devices}};
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t stage = 0; stage < transition_.stages.size(); ++stage)
      text += stage_text(stage);
    const mig::ActionCounts counts = mig::count_actions(transition_, task_);
    return text + std::to_string(counts.created) + " creations, " + std::to_string(counts.removed) +
           " deletions, " + std::to_string(counts.migrated_within_nodes) +
           " migrations within nodes and " + std::to_string(counts.migrated_across_nodes) +
           " across, " + std::to_string(counts.repartitions) + " repartitions in " +
           std::to_string(transition_.stages.size()) + " stages; " +
           std::to_string(transition_.extra_devices) + " extra devices\n";
  }

 private:
  [[nodiscard]] std::string models(const mig::Holding& holding) const {
    std::string text;
    for (const mig::Part& part : holding.parts)
      text += (text.empty() ? "" : "+") + task_.services[part.service];
    return text;
  }

  static std::string names(const std::vector<partition::MigInstance>& instances) {
    std::string text;
    for (const partition::MigInstance& one : instances)
      text += (text.empty() ? "" : " ") + to_string(one);
    return text.empty() ? "nothing" : text;
  }

  [[nodiscard]] std::string what(const mig::Action& action) const {
    switch (action.kind) {
      case mig::ActionKind::repartition:
        return names(action.cut) + " to " + names(action.made);
      case mig::ActionKind::migrate:
        return models(action.holding) + " from " + names_[action.from_device] + " " +
               to_string(action.from_instance) + " to " + to_string(action.holding.instance);
      default:
        return to_string(action.holding.instance) + " " + models(action.holding);
    }
  }

  [[nodiscard]] std::string stage_text(std::size_t stage) const {
    const mig::Stage& known = transition_.stages[stage];
    using enum Table::Align;
    Table table({{"NO"}, {"ACTION", left}, {"DEVICE", left}, {"WHAT", left}, {"AFTER", left}});
    for (std::size_t at = 0; at < transition_.actions.size(); ++at) {
      const mig::Action& action = transition_.actions[at];
      if (action.stage != stage) continue;
      std::string after;
      for (const std::size_t before : action.after)
        after += (after.empty() ? "" : ",") + std::to_string(before + 1);
      table.add_row({std::to_string(at + 1), std::string(mig::to_string(action.kind)),
                     names_[action.device], what(action), after});
    }
    std::string least;
    for (std::size_t service = 0; service < task_.services.size(); ++service) {
      least += (least.empty() ? "" : ", ") + task_.services[service] + " " +
               shortest(known.least_rate[service], 1);
    }
    return "stage " + std::to_string(stage + 1) + " of " +
           std::to_string(transition_.stages.size()) + ": " + std::to_string(known.devices_in_use) +
           " devices in use\n" + table.to_string() + "at least served, in requests/s: " + least +
           "\n\n";
  }

  const mig::TransitionTask& task_;
  const mig::Transition& transition_;
  std::vector<std::string> names_;
};

int draw(const schedule::StagedPlan& staged, const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  file << mig::picture_of(staged.transition, staged.task) << std::flush;
  if (file) return kSucceeded;
  return run_failed({StatusCode::unavailable, "--picture: " + path + " cannot be written"});
}

int transition(const TransitionOptions& options) {
  const Result<schedule::Plan> from = read_plan(options.from);
  if (!from.ok()) return bad_input(from.status());
  const Result<schedule::Plan> to = read_plan(options.to);
  if (!to.ok()) return bad_input(to.status());
  const Result<schedule::Cluster> cluster = load_devices(options, from.value(), to.value());
  if (!cluster.ok()) return bad_input(cluster.status());
  const auto staged = schedule::stage_plan(from.value(), to.value(), cluster.value());
  if (!staged.ok()) {
    const bool full = staged.status().code() == StatusCode::unavailable;
    return full ? run_failed(staged.status()) : bad_input(staged.status());
  }
  const Report report(staged.value(), cluster.value());
  if (options.json) {
    std::cout << report.json().dump(2) << '\n';
  } else {
    std::cout << report.text();
  }
  return options.picture.empty() ? kSucceeded : draw(staged.value(), options.picture);
}

}  // namespace

void add_transition_command(CLI::App& app, Run& chosen) {
  auto options = std::make_shared<TransitionOptions>();
  CLI::App* const command = app.add_subcommand(
      "transition", "plan the way from one plan to another on devices that are divided by MIG");
  command->add_option("--from", options->from, "plan in force, as `schedule --json` prints it")
      ->required();
  command->add_option("--to", options->to, "plan that is wanted")->required();
  command->add_option("--cluster", options->cluster,
                      "cluster file: its other devices may be used on the way (default: only those "
                      "that the plans use)");
  command->add_option("--picture", options->picture, "draw the devices on the way (SVG)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return transition(*options); }; });
}

}  // namespace gpulet::tools
