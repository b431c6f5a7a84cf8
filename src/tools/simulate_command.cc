// gpulet simulate: the engine in virtual time, for one demand or for many rate vectors.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "gpulet/config/control_config.h"
#include "gpulet/simulate/simulation.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/plan_options.h"
#include "tools/scenario_runs.h"
#include "tools/simulate_report.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct SimulateOptions {
  PlanFlags plan;
  double seconds = 60;
  std::uint64_t seed = 1;
  std::string trace;
  std::string series;
  std::string scenarios;
  std::string control;
  bool keep_plan = false;
  double period_s = 20;
  double link_ms = 0.1;
  double process_start_ms = 400;
  double model_load_ms = 300;
  unsigned jobs = 0;  // 0: one for each core
  bool json = false;
};

Result<simulate::SimulationOptions> simulation_options(const SimulateOptions& asked) {
  if (!asked.scenarios.empty() && !(asked.trace.empty() && asked.series.empty())) {
    return Status(StatusCode::invalid,
                  "--scenarios makes a run for each row; --trace and --series belong to one run");
  }
  simulate::SimulationOptions options;
  options.seconds = asked.seconds;
  options.seed = asked.seed;
  options.keep_plan = asked.keep_plan;
  options.period = from_seconds(asked.period_s);
  options.world.link = from_ms(asked.link_ms);
  options.world.process_start = from_ms(asked.process_start_ms);
  options.world.model_load = from_ms(asked.model_load_ms);
  if (!asked.control.empty()) {
    const Result<control::Options> control = config::load_control(asked.control);
    if (!control.ok()) return control.status();
    options.control = control.value();
  }
  if (!asked.series.empty()) options.series_step = options.period;
  if (!asked.trace.empty()) {
    Result<simulate::Trace> trace = simulate::read_trace(asked.trace);
    if (!trace.ok()) return trace.status();
    options.trace = std::make_shared<const simulate::Trace>(std::move(trace).value());
  }
  return options;
}

// Bad input or a failed run, as its code says.
int failed(const Status& status) {
  return status.code() == StatusCode::internal ? run_failed(status) : bad_input(status);
}

// How fast it went: for people, apart from the result.
void tell_speed(double requests, double events, double simulated_s,
                std::chrono::steady_clock::time_point began) {
  const double took_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::cerr << "simulated " << shortest(simulated_s, 1) << " s in " << fixed(took_s, 2)
            << " s: " << fixed(requests / took_s / 1e6, 2) << " million requests/s";
  if (events > 0) std::cerr << ", " << fixed(events / took_s / 1e6, 2) << " million events/s";
  std::cerr << '\n';
}

int run_one(const SimulateOptions& asked, const simulate::Knowledge& knowledge,
            const simulate::Scene& scene, const simulate::SimulationOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const Result<simulate::Outcome> outcome = simulate::simulate(knowledge, scene, options);
  if (!outcome.ok()) return failed(outcome.status());
  tell_speed(static_cast<double>(outcome.value().requests),
             static_cast<double>(outcome.value().events), options.seconds, began);
  if (!asked.series.empty()) {
    std::ofstream file(asked.series);
    file << series_csv(outcome.value());
    if (!file.flush()) {
      return run_failed({StatusCode::invalid, "cannot write " + asked.series});
    }
  }
  std::cout << (asked.json ? simulation_json(outcome.value(), asked.plan.policy)
                           : simulation_text(outcome.value(), asked.plan.policy));
  return kSucceeded;
}

int run_many(const SimulateOptions& asked, const simulate::Knowledge& knowledge,
             const simulate::Scene& scene, const simulate::SimulationOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const Result<LoadedScenarios> scenarios = load_scenarios(asked.scenarios, scene.demands);
  if (!scenarios.ok()) return bad_input(scenarios.status());
  const unsigned jobs =
      asked.jobs > 0 ? asked.jobs : std::max(1U, std::thread::hardware_concurrency());
  const auto rows = run_scenarios(knowledge, scene, scenarios.value().rows, options, jobs);
  if (!rows.ok()) return failed(rows.status().within(asked.scenarios));
  double requests = 0;
  double simulated_s = 0;
  for (const ScenarioRow& row : rows.value()) {
    requests += static_cast<double>(row.requests);
    simulated_s += row.schedulable ? options.seconds : 0;
  }
  tell_speed(requests, 0, simulated_s, began);
  std::cout << (asked.json ? scenarios_json(rows.value(), asked.plan.policy)
                           : scenarios_text(rows.value(), asked.plan.policy));
  return kSucceeded;
}

int run(const SimulateOptions& asked) {
  const Result<LoadedPlanInput> loaded = load(asked.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const Result<simulate::SimulationOptions> options = simulation_options(asked);
  if (!options.ok()) return bad_input(options.status());
  simulate::Knowledge knowledge;
  knowledge.profiles = loaded.value().profiles;
  knowledge.believed = loaded.value().interference;
  knowledge.measured = simulate::measured_pairs(*knowledge.profiles);
  knowledge.policy = loaded.value().policy.get();
  const schedule::PlanInput& input = loaded.value().input;
  const simulate::Scene scene{input.cluster, input.demands, input.options};
  return asked.scenarios.empty() ? run_one(asked, knowledge, scene, options.value())
                                 : run_many(asked, knowledge, scene, options.value());
}

void add_load_options(CLI::App& command, SimulateOptions& options) {
  command.add_option("--seconds", options.seconds, "how long the load lasts, in virtual time")
      ->check(number_within(0.001, 1e7))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of the arrivals; the same seed gives the same run")
      ->check(natural_number())
      ->capture_default_str();
  command.add_option("--trace", options.trace,
                     "CSV of the load instead of the demand's rates: time_s,model,count (arrivals) "
                     "or time_s,model,rate (rates from then on)");
  command.add_option("--scenarios", options.scenarios,
                     "CSV of rate vectors: a run for each that is schedulable, its plan kept");
  command.add_option("--jobs", options.jobs, "threads for --scenarios (default: one per core)")
      ->check(natural_number());
}

void add_world_options(CLI::App& command, SimulateOptions& options) {
  command.add_flag("--keep-plan", options.keep_plan,
                   "the first plan stays in force, whatever the load does");
  command.add_option("--period", options.period_s, "the scheduler's period, in seconds")
      ->check(number_within(0.1, 1e6))
      ->capture_default_str();
  command.add_option("--control", options.control,
                     "JSON: how executables are controlled (docs/control.md), with --policy roma "
                     "or where requests spill over to CPUs");
  command.add_option("--series", options.series,
                     "write a CSV: devices, shares and violations of every period");
  command.add_option("--link-ms", options.link_ms, "between frontend and backend, each way")
      ->check(number_within(0, 1000))
      ->capture_default_str();
  command.add_option("--process-start-ms", options.process_start_ms, "of a new gpulet")
      ->check(number_within(0, 60000))
      ->capture_default_str();
  command.add_option("--model-load-ms", options.model_load_ms, "of each model of a new gpulet")
      ->check(number_within(0, 60000))
      ->capture_default_str();
}

}  // namespace

void add_simulate_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "simulate", "serve a demand in virtual time and tell what becomes of the requests");
  const auto options = std::make_shared<SimulateOptions>();
  add_plan_flags(*command, options->plan);
  add_load_options(*command, *options);
  add_world_options(*command, *options);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace gpulet::tools
