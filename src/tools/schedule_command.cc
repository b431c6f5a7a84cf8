// gpulet schedule: plan offline, for one demand or for many rate vectors.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "tools/command.h"
#include "tools/plan_options.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

struct ScheduleOptions {
  PlanFlags plan;
  std::string scenarios;
  bool json = false;
};

// A plan that passed check(), and how long it took to make.
struct TimedPlan {
  schedule::Plan plan;
  double microseconds = 0;
};

Result<TimedPlan> make_plan(const schedule::Policy& policy, const schedule::PlanInput& input) {
  TimedPlan made;
  const auto begin = std::chrono::steady_clock::now();
  made.plan = policy.plan(input);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  made.microseconds = took.count();
  const std::vector<std::string> violations = schedule::check(made.plan, input);
  if (violations.empty()) return made;
  std::string message = "the plan of policy '" + made.plan.policy + "' breaks the rules (a bug):";
  for (const std::string& violation : violations) message += "\n  " + violation;
  return Status(StatusCode::internal, message);
}

Json to_json(const schedule::PlannedGpulet& gpulet) {
  Json assignments = Json::array();
  for (const schedule::Assignment& one : gpulet.assignments) {
    assignments.push_back({{"model", one.model},
                           {"rate", one.rate},
                           {"batch", one.batch},
                           {"latency_ms", one.latency_ms},
                           {"slowdown", one.slowdown},
                           {"slo_ms", one.slo_ms}});
  }
  return {{"node", gpulet.device.node},
          {"device", gpulet.device.device},
          {"size", gpulet.size.percent},
          {"duty_cycle_ms", gpulet.duty_cycle_ms},
          {"assignments", std::move(assignments)}};
}

Json to_json(const TimedPlan& made) {
  Json gpulets = Json::array();
  for (const schedule::PlannedGpulet& gpulet : made.plan.gpulets)
    gpulets.push_back(to_json(gpulet));
  Json unserved = Json::array();
  for (const schedule::Unserved& one : made.plan.unserved) {
    unserved.push_back({{"model", one.model}, {"rate", one.rate}});
  }
  Json json{{"policy", made.plan.policy},
            {"schedulable", made.plan.schedulable()},
            {"devices_used", made.plan.devices_used()},
            {"plan_time_us", std::llround(made.microseconds)},
            {"gpulets", std::move(gpulets)},
            {"unserved", std::move(unserved)}};
  if (made.plan.lower_bound) json["lower_bound"] = *made.plan.lower_bound;
  return json;
}

void print_unserved(const schedule::Plan& plan, std::ostream& out) {
  for (const schedule::Unserved& one : plan.unserved) {
    out << "unserved: " << one.model << ", " << shortest(one.rate, 2)
        << " requests/s: " << one.reason << '\n';
  }
}

void print_text(const TimedPlan& made, std::size_t devices) {
  const schedule::Plan& plan = made.plan;
  using enum Table::Align;
  Table table({{"DEVICE", left},
               {"SIZE %"},
               {"CYCLE ms"},
               {"MODEL", left},
               {"RATE /s"},
               {"BATCH"},
               {"LATENCY ms"},
               {"SLO ms"}});
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    bool first = true;
    for (const schedule::Assignment& one : gpulet.assignments) {
      table.add_row({first ? gpulet.device.node + "/" + std::to_string(gpulet.device.device) : "",
                     first ? std::to_string(gpulet.size.percent) : "",
                     first ? fixed(gpulet.duty_cycle_ms, 2) : "", one.model, shortest(one.rate, 2),
                     std::to_string(one.batch), fixed(one.latency_ms, 2), shortest(one.slo_ms, 2)});
      first = false;
    }
  }
  if (!plan.gpulets.empty()) std::cout << table.to_string() << '\n';
  std::cout << plan.policy << ": " << (plan.schedulable() ? "schedulable" : "not schedulable")
            << ", " << plan.devices_used() << " of " << devices << " devices, planned in "
            << fixed(made.microseconds, 0) << " us\n";
  if (plan.lower_bound) {
    std::cout << "at least " << *plan.lower_bound << " devices are needed for the whole demand";
    if (plan.schedulable()) {
      const std::uint32_t gap = plan.devices_used() - *plan.lower_bound;
      std::cout << (gap == 0 ? ": no plan uses fewer"
                             : ": this plan uses at most " + std::to_string(gap) +
                                   " more than the best could");
    }
    std::cout << '\n';
  }
  print_unserved(plan, std::cout);
  for (const std::string& note : plan.notes) std::cout << "note: " << note << '\n';
}

int plan_once(const ScheduleOptions& options, const schedule::Policy& policy,
              const schedule::PlanInput& input) {
  const Result<TimedPlan> made = make_plan(policy, input);
  if (!made.ok()) return run_failed(made.status());
  if (options.json) {
    print_unserved(made.value().plan, std::cerr);
    std::cout << to_json(made.value()).dump(2) << '\n';
  } else {
    print_text(made.value(), input.cluster.devices.size());
  }
  return kSucceeded;
}

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  const auto rank =
      static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

int plan_scenarios(const ScheduleOptions& options, const schedule::Policy& policy,
                   schedule::PlanInput input) {
  const Result<LoadedScenarios> scenarios = load_scenarios(options.scenarios, input.demands);
  if (!scenarios.ok()) return bad_input(scenarios.status());
  std::vector<bool> rows;
  std::vector<double> times;
  for (const std::vector<schedule::ModelDemand>& demands : scenarios.value().rows) {
    const std::string where = options.scenarios + ": row " + std::to_string(rows.size() + 1);
    input.demands = demands;
    if (Status status = schedule::validate(input); !status.ok())
      return bad_input(status.within(where));
    const Result<TimedPlan> made = make_plan(policy, input);
    if (!made.ok()) return run_failed(made.status().within(where));
    rows.push_back(made.value().plan.schedulable());
    times.push_back(made.value().microseconds);
  }
  const auto schedulable = std::count(rows.begin(), rows.end(), true);
  const double p50_us = percentile(times, 0.5);
  const double p99_us = percentile(times, 0.99);
  if (options.json) {
    std::cout << Json{{"policy", policy.name()},
                      {"scenarios", rows.size()},
                      {"schedulable", schedulable},
                      {"plan_time_us",
                       {{"p50", std::llround(p50_us)}, {"p99", std::llround(p99_us)}}},
                      {"rows", rows}}
                     .dump(2)
              << '\n';
  } else {
    std::cout << policy.name() << ": " << schedulable << " of " << rows.size()
              << " scenarios are schedulable, planned in " << fixed(p50_us, 0) << " us (p50) and "
              << fixed(p99_us, 0) << " us (p99) each\n";
  }
  return kSucceeded;
}

int plan(const ScheduleOptions& options) {
  const Result<LoadedPlanInput> loaded = load(options.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const schedule::Policy& policy = *loaded.value().policy;
  const schedule::PlanInput& input = loaded.value().input;
  return options.scenarios.empty() ? plan_once(options, policy, input)
                                   : plan_scenarios(options, policy, input);
}

}  // namespace

void add_schedule_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("schedule", "plan which gpulets serve a demand, without serving it");
  const auto options = std::make_shared<ScheduleOptions>();
  add_plan_flags(*command, options->plan);
  command->add_option("--scenarios", options->scenarios,
                      "CSV of rate vectors: count those that are schedulable (a model without a "
                      "column keeps its rate of the demand file)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return plan(*options); }; });
}

}  // namespace gpulet::tools
