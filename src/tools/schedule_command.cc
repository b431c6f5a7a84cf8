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
#include <utility>
#include <vector>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "tools/command.h"
#include "tools/plan_json.h"
#include "tools/plan_options.h"
#include "tools/plan_output.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

struct ScheduleOptions {
  PlanFlags plan;
  std::string scenarios;
  bool json = false;
};

int plan_once(const ScheduleOptions& options, const schedule::Policy& policy,
              const schedule::PlanInput& input) {
  Result<TimedPlan> made = make_plan(policy, input);
  if (made.ok()) made = share_shortage(policy, input, std::move(made).value());
  if (!made.ok()) return run_failed(made.status());
  print_plan(made.value(), input.cluster.devices.size(), options.json);
  return made.value().plan.schedulable() ? kSucceeded : kRunFailed;
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
      app.add_subcommand("schedule",
                         "plan which gpulets serve a demand, without serving it; exits "
                         "with 1 where they cannot serve all of it");
  const auto options = std::make_shared<ScheduleOptions>();
  add_plan_flags(*command, options->plan);
  command->add_option("--scenarios", options->scenarios,
                      "CSV of rate vectors: count those that are schedulable (a model without a "
                      "column keeps its rate of the demand file)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return plan(*options); }; });
}

}  // namespace gpulet::tools
