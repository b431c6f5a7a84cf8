// gpulet simulate: runs the engine in virtual time, for one demand or for many.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/text.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/profile/store.h"
#include "gpulet/simulate/simulation.h"
#include "tools/cli/command.h"
#include "tools/cli/parallel_for.h"
#include "tools/cli/plan_options.h"
#include "tools/report/format.h"
#include "tools/report/run_report.h"

namespace gpulet::tools {
namespace {

constexpr double kMostNoise = 2;  // coefficient of variation

struct SimulateOptions {
  PlanOptions plan;
  double seconds = 60;
  std::uint64_t seed = 1;
  std::string trace;
  std::string series;
  std::string scenarios;
  std::string offered;    // rates of the scenarios' requests; empty: as planned
  std::string simulated;  // profiles of the simulated interference; empty: those of the plans
  std::string control;
  bool keep_plan = false;
  double period_s = 20;
  double link_ms = 0.1;
  double process_start_ms = 400;
  double model_load_ms = 300;
  double pace = 1;
  std::string noise = "profile";
  std::uint32_t frontends = 1;
  unsigned jobs = 0;  // 0: one for each core
  bool json = false;
};

Result<simulate::SimulationOptions> simulation_options(const SimulateOptions& flags) {
  if (!flags.scenarios.empty() && !(flags.trace.empty() && flags.series.empty())) {
    return Status(
        StatusCode::invalid,
        "--scenarios simulates each row; --trace and --series apply to a single simulation");
  }
  if (flags.scenarios.empty() && !flags.offered.empty())
    return Status(StatusCode::invalid, "--offered has the rates of --scenarios' rows; add it");
  simulate::SimulationOptions options;
  options.seconds = flags.seconds;
  options.seed = flags.seed;
  options.keep_plan = flags.keep_plan;
  options.period = from_seconds(flags.period_s);
  options.timings.link = from_ms(flags.link_ms);
  options.timings.process_start = from_ms(flags.process_start_ms);
  options.timings.model_load = from_ms(flags.model_load_ms);
  options.timings.pace = flags.pace;
  options.frontends = flags.frontends;
  if (flags.noise != "profile") {
    const std::optional<double> cv = flags.noise == "none" ? 0 : parse_number<double>(flags.noise);
    if (!cv || !(*cv >= 0 && *cv <= kMostNoise)) {
      return Status(StatusCode::invalid,
                    fmt::format("--noise: \"{}\" is no coefficient of variation; write profile, "
                                "none or a number from 0 to {}",
                                flags.noise, kMostNoise));
    }
    options.timings.batch_cv = cv;
  }
  if (!flags.control.empty()) {
    GPULET_TRY(const control::Options control, config::load_control(flags.control));
    options.control = control;
  }
  if (!flags.series.empty()) options.series_step = options.period;
  if (!flags.trace.empty()) {
    GPULET_TRY(config::Trace trace, config::read_trace(flags.trace));
    options.trace = std::make_shared<const config::Trace>(std::move(trace));
  }
  return options;
}

ScenarioRow row_of(const simulate::Outcome& outcome) {
  ScenarioRow row;
  row.schedulable = outcome.first_plan.schedulable();
  row.violation = outcome.violation;
  row.devices = outcome.devices_used;
  row.requests = outcome.requests;
  const auto see = [&row](const simulate::ModelOutcome& one) {
    if (one.violation <= row.worst) return;
    row.worst = one.violation;
    row.worst_model = one.name;
  };
  std::for_each(outcome.models.begin(), outcome.models.end(), see);
  std::for_each(outcome.applications.begin(), outcome.applications.end(), see);
  return row;
}

using Rows = std::vector<simulate::Load>;

std::shared_ptr<const config::Trace> constant_load(const simulate::Load& load) {
  config::Trace trace;
  for (const auto& one : load.models) trace.rates[one.name] = {{0, one.rate}};
  for (const auto& one : load.applications) trace.rates[one.name] = {{0, one.rate}};
  return std::make_shared<const config::Trace>(std::move(trace));
}

// Simulates each row that its plan covers, without further plans. `offered`: the rates
// of its requests; empty: as planned. Fails like the first row that fails; the message has its
// number, counted from 1.
Result<std::vector<ScenarioRow>> run_scenarios(const simulate::Knowledge& knowledge,
                                               const simulate::SimulationInput& scene,
                                               const Rows& rows, const Rows& offered,
                                               const simulate::SimulationOptions& options,
                                               unsigned jobs) {
  std::vector<std::optional<Result<simulate::Outcome>>> outcomes(rows.size());
  parallel_for(jobs, rows.size(), [&](std::size_t i) {
    simulate::SimulationInput row_scene = scene;
    row_scene.demands = rows[i].models;
    row_scene.applications = rows[i].applications;
    simulate::SimulationOptions row_options = options;
    // A seed of its own, so that neither the threads nor the other rows change the result.
    row_options.seed = stream_seed(options.seed, "row " + std::to_string(i + 1));
    row_options.keep_plan = true;
    row_options.only_schedulable = true;
    if (!offered.empty()) row_options.trace = constant_load(offered[i]);
    outcomes[i] = simulate::simulate(knowledge, row_scene, row_options);
  });
  std::vector<ScenarioRow> done;
  for (const auto& outcome : outcomes) {
    if (!outcome->ok()) return outcome->status().within("row " + std::to_string(done.size() + 1));
    done.push_back(row_of(outcome->value()));
  }
  return done;
}

// The exit code for the kind of failure.
int failed(const Status& status) {
  return status.code() == StatusCode::internal ? run_failed(status) : bad_input(status);
}

// Prints the speed on standard error, because it differs between runs with the same result.
void print_speed(double requests, double events, double simulated_s,
                 std::chrono::steady_clock::time_point began) {
  const double took_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::cerr << "simulated " << shortest(simulated_s, 1) << " s in " << fixed(took_s, 2)
            << " s: " << fixed(requests / took_s / 1e6, 2) << " million requests/s";
  if (events > 0) std::cerr << ", " << fixed(events / took_s / 1e6, 2) << " million events/s";
  std::cerr << '\n';
}

int run_one(const SimulateOptions& flags, const simulate::Knowledge& knowledge,
            const simulate::SimulationInput& scene, const simulate::SimulationOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const Result<simulate::Outcome> outcome = simulate::simulate(knowledge, scene, options);
  if (!outcome.ok()) return failed(outcome.status());
  print_speed(static_cast<double>(outcome.value().requests),
              static_cast<double>(outcome.value().events), options.seconds, began);
  if (!flags.series.empty()) {
    std::ofstream file(flags.series);
    file << series_csv(outcome.value());
    if (!file.flush()) return run_failed({StatusCode::invalid, "cannot write " + flags.series});
  }
  std::cout << (flags.json ? simulation_json(outcome.value(), flags.plan.policy)
                           : simulation_text(outcome.value(), flags.plan.policy));
  return kSucceeded;
}

int run_many(const SimulateOptions& flags, const simulate::Knowledge& knowledge,
             const simulate::SimulationInput& scene, const simulate::SimulationOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const simulate::Load load{scene.demands, scene.applications};
  const auto scenarios = load_scenarios(flags.scenarios, load);
  if (!scenarios.ok()) return bad_input(scenarios.status());
  Rows offered;
  if (!flags.offered.empty()) {
    auto loaded = load_scenarios(flags.offered, load);
    if (!loaded.ok()) return bad_input(loaded.status());
    offered = std::move(loaded).value();
    if (offered.size() != scenarios.value().size()) {
      return bad_input(
          {StatusCode::invalid,
           fmt::format(
               "--offered {}: it has {} rows and --scenarios has {}; write one row for each",
               flags.offered, offered.size(), scenarios.value().size())});
    }
  }
  const unsigned jobs =
      flags.jobs > 0 ? flags.jobs : std::max(1U, std::thread::hardware_concurrency());
  const auto rows = run_scenarios(knowledge, scene, scenarios.value(), offered, options, jobs);
  if (!rows.ok()) return failed(rows.status().within(flags.scenarios));
  double requests = 0;
  double simulated_s = 0;
  for (const ScenarioRow& row : rows.value()) {
    requests += static_cast<double>(row.requests);
    simulated_s += row.schedulable ? options.seconds : 0;
  }
  print_speed(requests, 0, simulated_s, began);
  std::cout << (flags.json ? scenarios_json(rows.value(), flags.plan.policy)
                           : scenarios_text(rows.value(), flags.plan.policy));
  return kSucceeded;
}

int run_simulation(const SimulateOptions& flags) {
  const Result<LoadedPlanInput> loaded = load_plan_input(flags.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const Result<simulate::SimulationOptions> options = simulation_options(flags);
  if (!options.ok()) return bad_input(options.status());
  simulate::Knowledge knowledge;
  knowledge.profiles = loaded.value().profiles;
  knowledge.believed = loaded.value().interference;
  profile::ProfileSet simulated;  // outlives the knowledge's references
  if (!flags.simulated.empty()) {
    Result<profile::ProfileSet> read = profile::read_profiles(flags.simulated);
    if (!read.ok()) return bad_input(read.status().within("--simulated-interference"));
    simulated = std::move(read).value();
  }
  knowledge.simulated =
      simulate::simulated_interference(flags.simulated.empty() ? *knowledge.profiles : simulated);
  knowledge.policy = loaded.value().policy.get();
  const schedule::PlanInput& input = loaded.value().input;
  const simulate::Load& load = loaded.value().load;
  const simulate::SimulationInput scene{input.cluster, load.models, input.options,
                                        load.applications};
  return flags.scenarios.empty() ? run_one(flags, knowledge, scene, options.value())
                                 : run_many(flags, knowledge, scene, options.value());
}

void add_load_options(CLI::App& command, SimulateOptions& options) {
  add_checked(command, "--seconds", options.seconds, "seconds of load to simulate",
              number_within(0.001, 1e7));
  add_checked(command, "--seed", options.seed,
              "random seed of the arrivals; the same seed gives the same run", natural_number());
  command.add_option("--trace", options.trace,
                     "CSV of the load, which replaces the rates of the demand file; columns: "
                     "time_s,model,count (arrivals) or time_s,model,rate (rate from then on); a "
                     "row may name an application");
  command.add_option("--scenarios", options.scenarios,
                     "CSV of rates of models and applications; simulates each row that is "
                     "schedulable, with its first plan");
  command.add_option("--offered", options.offered,
                     "CSV of the rates at which requests arrive in each row of --scenarios "
                     "(default: the planned rates)");
  command.add_option("--jobs", options.jobs, "threads for --scenarios (default: one per core)")
      ->check(natural_number());
}

void add_world_options(CLI::App& command, SimulateOptions& options) {
  command.add_flag("--keep-plan", options.keep_plan, "keep the first plan under any load");
  command.add_option("--simulated-interference", options.simulated,
                     "directory of profiles: gpulets slow each other down as these profiles say, "
                     "which plans do not know (default: --profiles)");
  add_checked(command, "--period", options.period_s, "seconds between plans",
              number_within(0.1, 1e6));
  command.add_option(
      "--control", options.control,
      "control file (JSON, docs/control.md): options of --policy roma and of requests that "
      "overflow to CPUs");
  command.add_option("--series", options.series,
                     "write a CSV with the devices, shares and violations of every period");
  add_checked(command, "--link-ms", options.link_ms,
              "milliseconds that a message takes between frontend and backend",
              number_within(0, 1000));
  add_checked(command, "--process-start-ms", options.process_start_ms,
              "milliseconds to start the process of a new gpulet", number_within(0, 60000));
  add_checked(command, "--model-load-ms", options.model_load_ms,
              "milliseconds to load each model of a new gpulet", number_within(0, 60000));
  add_checked(command, "--pace", options.pace,
              "batches take this multiple of what the profile says, which plans do not know",
              number_within(0.01, 100));
  add_checked(command, "--frontends", options.frontends,
              "frontends of one cluster, to which requests arrive in turn",
              whole_number_within(1, 1000));
  command
      .add_option("--noise", options.noise,
                  "how much the time of equal batches varies: a coefficient of variation, profile "
                  "for that of the profiles, or none")
      ->capture_default_str();
}

}  // namespace

void add_simulate_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "simulate", "simulate serving a demand and report the latencies and violations",
      run_simulation);
  add_plan_options(*command, options->plan);
  add_verify_option(*command, options->plan);
  add_load_options(*command, *options);
  add_world_options(*command, *options);
  command->add_flag("--json", options->json, "print one JSON document");
}

}  // namespace gpulet::tools
