#include "tools/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;
using config::JsonCursor;

constexpr std::uint32_t kMost = 1'000'000;  // bounds every count in a document
constexpr double kMillion = 1e6;            // predictions are rounded to a millionth

// By assignment of the gpulet at that index.
std::vector<std::optional<double>> predicted_of(const TimedPlan& made, std::size_t gpulet) {
  if (gpulet < made.predicted.size()) return made.predicted[gpulet];
  return std::vector<std::optional<double>>(made.plan.gpulets[gpulet].assignments.size());
}

Json gpulet_json(const schedule::PlannedGpulet& gpulet,
                 const std::vector<std::optional<double>>& predicted) {
  Json assignments = Json::array();
  for (std::size_t at = 0; at < gpulet.assignments.size(); ++at) {
    const schedule::Assignment& one = gpulet.assignments[at];
    Json assignment{{"model", one.model},       {"rate", one.rate},
                    {"batch", one.batch},       {"latency_ms", one.latency_ms},
                    {"slowdown", one.slowdown}, {"slo_ms", one.slo_ms}};
    if (predicted[at])
      assignment["predicted_violation"] = std::round(*predicted[at] * kMillion) / kMillion;
    assignments.push_back(std::move(assignment));
  }
  Json json{{"node", gpulet.device.node},
            {"device", gpulet.device.device},
            {"size", gpulet.size.percent}};
  if (gpulet.instance) {
    json["profile"] = partition::mig_profile_name(gpulet.instance->slices);
    json["start"] = gpulet.instance->start;
  }
  if (gpulet.service != schedule::Service::rounds)
    json["service"] = schedule::to_string(gpulet.service);
  if (policy_size(gpulet) != gpulet.size) json["policy_size"] = policy_size(gpulet).percent;
  json["duty_cycle_ms"] = gpulet.duty_cycle_ms;
  json["assignments"] = std::move(assignments);
  return json;
}

double read_amount(const JsonCursor& cursor) { return cursor.number(config::at_least(0)); }

schedule::Assignment read_assignment(const JsonCursor& cursor) {
  schedule::Assignment one;
  one.model = cursor.required("model").text("a model's name");
  one.rate = read_amount(cursor.required("rate"));
  one.batch = cursor.required("batch").count(1, kMost);
  one.latency_ms = read_amount(cursor.required("latency_ms"));
  one.slowdown = read_amount(cursor.required("slowdown"));
  one.slo_ms = read_amount(cursor.required("slo_ms"));
  return one;
}

std::optional<partition::MigInstance> read_instance(const JsonCursor& cursor) {
  const auto profile = cursor.find("profile");
  if (!profile) return std::nullopt;
  const auto slices = partition::parse_mig_profile(profile->text("a MIG profile"));
  if (!slices) {
    profile->fail("is not a MIG profile", "write it as \"3g\"");
    return std::nullopt;
  }
  return partition::MigInstance{*slices, cursor.required("start").count(0, kMost)};
}

schedule::Service read_service(const JsonCursor& cursor) {
  constexpr std::array kServices = {schedule::Service::rounds, schedule::Service::by_need,
                                    schedule::Service::controlled};
  const auto service = cursor.find("service");
  if (!service) return schedule::Service::rounds;
  std::vector<std::string_view> names(kServices.size());
  std::transform(kServices.begin(), kServices.end(), names.begin(),
                 [](schedule::Service one) { return to_string(one); });
  return kServices.at(service->choice(names));
}

schedule::PlannedGpulet read_gpulet(const JsonCursor& cursor) {
  schedule::PlannedGpulet gpulet;
  gpulet.device = {cursor.required("node").text("a node's name"),
                   cursor.required("device").count(0, kMost)};
  gpulet.size = Share{static_cast<int>(cursor.required("size").count(1, 100))};
  gpulet.instance = read_instance(cursor);
  gpulet.service = read_service(cursor);
  gpulet.duty_cycle_ms = read_amount(cursor.required("duty_cycle_ms"));
  for (const JsonCursor& one : cursor.required("assignments").elements("a list of assignments"))
    gpulet.assignments.push_back(read_assignment(one));
  return gpulet;
}

void print_unserved(const schedule::Plan& plan, std::ostream& out) {
  for (const schedule::Unserved& one : plan.unserved) {
    out << fmt::format("unserved: {}, {} requests/s: {}\n", one.model, shortest(one.rate, 2),
                       one.reason);
  }
}

std::string device_name(const schedule::DeviceKey& key) {
  return fmt::format("{}/{}", key.node, key.device);
}

// "40", "100 (policy 40)" with spare share, or "42 3g@4" for a MIG instance.
std::string size_text(const schedule::PlannedGpulet& gpulet) {
  std::string percent = std::to_string(gpulet.size.percent);
  if (policy_size(gpulet) != gpulet.size)
    percent += fmt::format(" (policy {})", policy_size(gpulet).percent);
  return gpulet.instance ? percent + " " + to_string(*gpulet.instance) : percent;
}

// "a+b" for models that take turns.
std::string model_names(const schedule::PlannedGpulet& gpulet) {
  if (gpulet.service == schedule::Service::by_need && gpulet.assignments.size() > 1)
    return fmt::format("{} models, by need", gpulet.assignments.size());
  std::string models;
  for (const schedule::Assignment& one : gpulet.assignments)
    models += (models.empty() ? "" : "+") + one.model;
  return models;
}

// An instance has no assigned rates and times: one row for all its models.
std::vector<std::string> instance_row(const schedule::PlannedGpulet& gpulet) {
  const bool controlled = gpulet.service == schedule::Service::controlled;
  const bool one_model = gpulet.assignments.size() == 1;
  return {device_name(gpulet.device),
          controlled ? "controlled" : size_text(gpulet),
          "-",
          model_names(gpulet),
          "-",
          one_model ? std::to_string(gpulet.assignments.front().batch) : "-",
          "-",
          one_model ? shortest(gpulet.assignments.front().slo_ms, 2) : "-",
          "-"};
}

void print_gpulets(const TimedPlan& made) {
  const schedule::Plan& plan = made.plan;
  using enum Table::Align;
  Table table({{"DEVICE", left},
               {"SIZE %"},
               {"CYCLE ms"},
               {"MODEL", left},
               {"RATE /s"},
               {"BATCH"},
               {"LATENCY ms"},
               {"SLO ms"},
               {"LATE %"}});
  for (std::size_t index = 0; index < plan.gpulets.size(); ++index) {
    const schedule::PlannedGpulet& gpulet = plan.gpulets[index];
    if (gpulet.service != schedule::Service::rounds) {
      table.add_row(instance_row(gpulet));
      continue;
    }
    const std::vector<std::optional<double>> predicted = predicted_of(made, index);
    for (std::size_t at = 0; at < gpulet.assignments.size(); ++at) {
      const schedule::Assignment& one = gpulet.assignments[at];
      const bool first = at == 0;
      table.add_row({first ? device_name(gpulet.device) : "", first ? size_text(gpulet) : "",
                     first ? fixed(gpulet.duty_cycle_ms, 2) : "", one.model, shortest(one.rate, 2),
                     std::to_string(one.batch), fixed(one.latency_ms, 2), shortest(one.slo_ms, 2),
                     predicted[at] ? fixed(100 * *predicted[at], 2) : "-"});
    }
  }
  if (!plan.gpulets.empty()) std::cout << table.to_string() << '\n';
}

// "4g net_a, 2g net_b, 1g net_b", largest first. Processes that share an instance count once.
std::string layout_of(const std::vector<const schedule::PlannedGpulet*>& gpulets) {
  std::map<partition::MigInstance, std::string> instances;
  std::vector<std::pair<int, std::string>> parts;
  for (const schedule::PlannedGpulet* gpulet : gpulets) {
    const std::string models = model_names(*gpulet);
    std::string size = fmt::format("{} %", gpulet->size.percent);
    if (gpulet->instance) {
      if (!instances.emplace(*gpulet->instance, models).second) continue;
      size = partition::mig_profile_name(gpulet->instance->slices);
    }
    if (gpulet->service == schedule::Service::controlled) size = "controlled";
    parts.emplace_back(-gpulet->size.percent, fmt::format("{} {}", size, models));
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const auto& [percent, part] : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

void print_layout_counts(const schedule::Plan& plan) {
  std::map<schedule::DeviceKey, std::vector<const schedule::PlannedGpulet*>> by_device;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets)
    by_device[gpulet.device].push_back(&gpulet);
  std::map<std::string, std::size_t> counts;
  for (const auto& [device, gpulets] : by_device) ++counts[layout_of(gpulets)];
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  using enum Table::Align;
  Table table({{"DEVICES"}, {"FILLED WITH", left}});
  for (const auto& [layout, count] : order) table.add_row({std::to_string(count), layout});
  if (!order.empty()) std::cout << table.to_string() << '\n';
}

void print_summary(const TimedPlan& made, std::size_t devices) {
  const schedule::Plan& plan = made.plan;
  std::cout << fmt::format("{}: {}, {} of {} devices, planned in {} us\n", plan.policy,
                           plan.schedulable() ? "schedulable" : "not schedulable",
                           plan.devices_used(), devices, fixed(made.microseconds, 0));
  if (plan.lower_bound) {
    std::cout << "at least " << *plan.lower_bound << " devices are needed for the whole demand";
    if (plan.schedulable()) {
      const std::uint32_t gap = plan.devices_used() - *plan.lower_bound;
      std::cout << (gap == 0
                        ? ": no plan uses fewer"
                        : fmt::format(": this plan uses at most {} more than the optimum", gap));
    }
    std::cout << '\n';
  }
  print_unserved(plan, std::cout);
  for (const std::string& note : plan.notes) std::cout << "note: " << note << '\n';
}

void print_document(const TimedPlan& made) {
  print_unserved(made.plan, std::cerr);
  std::cout << json_page(plan_json(made));
}

// ---- transitions

class TransitionReport {
 public:
  TransitionReport(const schedule::StagedPlan& staged, const schedule::Cluster& cluster)
      : task_(staged.task), transition_(staged.transition) {
    for (const schedule::Device& device : cluster.devices) {
      if (device.mig) names_.push_back(device_name(device.key));
    }
  }

  [[nodiscard]] Json json() const {
    Json stages = Json::array();
    for (std::size_t stage = 0; stage < transition_.stages.size(); ++stage) {
      Json actions = Json::array();
      for (std::size_t at = 0; at < transition_.actions.size(); ++at) {
        const schedule::mig::Action& action = transition_.actions[at];
        if (action.stage != stage) continue;
        Json one{{"number", at + 1},
                 {"action", schedule::mig::to_string(action.kind)},
                 {"device", names_[action.device]},
                 {"what", description(action)}};
        Json after = Json::array();
        for (const std::size_t before : action.after) after.push_back(before + 1);
        one["after"] = std::move(after);
        actions.push_back(std::move(one));
      }
      const schedule::mig::Stage& planned = transition_.stages[stage];
      Json least = Json::object();
      for (std::size_t service = 0; service < task_.services.size(); ++service)
        least[task_.services[service]] = planned.least_rate[service];
      stages.push_back({{"actions", std::move(actions)},
                        {"devices_in_use", planned.devices_in_use},
                        {"least_rate", std::move(least)}});
    }
    const schedule::mig::ActionCounts counts = schedule::mig::count_actions(transition_, task_);
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
    const schedule::mig::ActionCounts counts = schedule::mig::count_actions(transition_, task_);
    return fmt::format(
        "{}{} creations, {} deletions, {} migrations within nodes and {} across, {} repartitions "
        "in {} stages; {} extra devices\n",
        text, counts.created, counts.removed, counts.migrated_within_nodes,
        counts.migrated_across_nodes, counts.repartitions, transition_.stages.size(),
        transition_.extra_devices);
  }

 private:
  [[nodiscard]] std::string model_names(const schedule::mig::ServingInstance& holding) const {
    std::string text;
    for (const schedule::mig::ServiceRate& part : holding.parts)
      text += (text.empty() ? "" : "+") + task_.services[part.service];
    return text;
  }

  static std::string instance_names(const std::vector<partition::MigInstance>& instances) {
    std::string text;
    for (const partition::MigInstance& one : instances)
      text += (text.empty() ? "" : " ") + to_string(one);
    return text.empty() ? "nothing" : text;
  }

  [[nodiscard]] std::string description(const schedule::mig::Action& action) const {
    switch (action.kind) {
      case schedule::mig::ActionKind::repartition:
        return instance_names(action.cut) + " to " + instance_names(action.made);
      case schedule::mig::ActionKind::migrate:
        return fmt::format("{} from {} {} to {}", model_names(action.target),
                           names_[action.from_device], to_string(action.from_instance),
                           to_string(action.target.instance));
      default:
        return to_string(action.target.instance) + " " + model_names(action.target);
    }
  }

  [[nodiscard]] std::string stage_text(std::size_t stage) const {
    const schedule::mig::Stage& planned = transition_.stages[stage];
    using enum Table::Align;
    Table table({{"NO"}, {"ACTION", left}, {"DEVICE", left}, {"WHAT", left}, {"AFTER", left}});
    for (std::size_t at = 0; at < transition_.actions.size(); ++at) {
      const schedule::mig::Action& action = transition_.actions[at];
      if (action.stage != stage) continue;
      std::string after;
      for (const std::size_t before : action.after)
        after += (after.empty() ? "" : ",") + std::to_string(before + 1);
      table.add_row({std::to_string(at + 1), std::string(schedule::mig::to_string(action.kind)),
                     names_[action.device], description(action), after});
    }
    std::string least;
    for (std::size_t service = 0; service < task_.services.size(); ++service) {
      least += fmt::format("{}{} {}", least.empty() ? "" : ", ", task_.services[service],
                           shortest(planned.least_rate[service], 1));
    }
    return fmt::format(
        "stage {} of {}: {} devices in use\n{}at least served, in requests/s: {}\n\n", stage + 1,
        transition_.stages.size(), planned.devices_in_use, table.to_string(), least);
  }

  const schedule::mig::TransitionTask& task_;
  const schedule::mig::Transition& transition_;
  std::vector<std::string> names_;  // of the devices, such as "n0/1"
};

}  // namespace

Json plan_json(const TimedPlan& made) {
  const schedule::Plan& plan = made.plan;
  Json gpulets = Json::array();
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at)
    gpulets.push_back(gpulet_json(plan.gpulets[at], predicted_of(made, at)));
  Json unserved = Json::array();
  for (const schedule::Unserved& one : plan.unserved)
    unserved.push_back({{"model", one.model}, {"rate", one.rate}});
  Json json{{"policy", plan.policy},
            {"schedulable", plan.schedulable()},
            {"devices_used", plan.devices_used()},
            {"plan_time_us", std::llround(made.microseconds)},
            {"gpulets", std::move(gpulets)},
            {"unserved", std::move(unserved)}};
  if (plan.lower_bound) json["lower_bound"] = *plan.lower_bound;
  return json;
}

Result<schedule::Plan> read_plan(const std::filesystem::path& file) {
  GPULET_TRY(const JsonCursor root, JsonCursor::read_file(file));
  schedule::Plan plan;
  plan.policy = root.required("policy").text("a policy's name");
  for (const JsonCursor& one : root.required("gpulets").elements("a list of gpulets"))
    plan.gpulets.push_back(read_gpulet(one));
  for (const JsonCursor& one : root.required("unserved").elements("a list of unserved models")) {
    plan.unserved.push_back(
        {one.required("model").text("a model's name"), read_amount(one.required("rate")), {}});
  }
  if (Status status = root.status(); !status.ok()) return status;
  return plan;
}

void print_plan(const TimedPlan& made, std::size_t devices, bool json) {
  if (json) return print_document(made);
  print_gpulets(made);
  print_summary(made, devices);
}

void print_layouts(const TimedPlan& made, std::size_t devices, bool json) {
  if (json) return print_document(made);
  print_layout_counts(made.plan);
  print_summary(made, devices);
}

Json transition_json(const schedule::StagedPlan& staged, const schedule::Cluster& cluster) {
  return TransitionReport(staged, cluster).json();
}

std::string transition_text(const schedule::StagedPlan& staged, const schedule::Cluster& cluster) {
  return TransitionReport(staged, cluster).text();
}

}  // namespace gpulet::tools
