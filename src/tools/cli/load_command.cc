// gpulet load: sends a workload or a trace to a running frontend.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/load/call.h"
#include "gpulet/load/client.h"
#include "tools/cli/command.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"
#include "tools/report/load_series.h"
#include "tools/report/run_report.h"
#include "tools/report/terminal.h"

namespace gpulet::tools {
namespace {

constexpr double kLongestLoadSeconds = 1e6;
constexpr double kLargestScale = 1e6;
constexpr double kFastestReplay = 1e4;
// Of the gpulets during a replay; a frontend that does not respond leaves the period to others.
constexpr Duration kDeploymentTimeout = std::chrono::seconds(1);
constexpr std::uint32_t kDefaultConnections = 4;
constexpr std::uint32_t kMostThreads = 64;
constexpr std::uint32_t kMostDefaultThreads = 8;

// A quarter of the cores, which the load generator often shares with the daemons.
std::uint32_t default_threads() {
  return std::clamp(std::thread::hardware_concurrency() / 4, 1U, kMostDefaultThreads);
}

struct LoadArguments {
  TargetOptions target;
  std::string workload;
  std::string trace;
  double speed = 1;  // of the trace
  double seconds = 0;
  load::Scale scale;
  std::uint64_t seed = 1;
  std::string csv;
  std::string series;
  double period_s = 20;
  std::string report;
  std::optional<std::uint32_t> threads;
  std::optional<std::uint32_t> connections;
  std::uint32_t max_outstanding = 4096;
  bool synthetic_inputs = false;
  bool json = false;
  std::vector<std::string> also;
};

// The first SIGINT or SIGTERM ends the load with its report; the second ends the program.
class InterruptOnce {
 public:
  [[nodiscard]] bool interrupted() {
    if (watch_ && watch_->take()) watch_.reset();
    return !watch_;
  }

 private:
  std::optional<SignalWatch> watch_{std::in_place, std::initializer_list<int>{SIGINT, SIGTERM}};
};

std::string describe(const load::Progress& progress, Duration elapsed, double seconds) {
  return fmt::format(
      "{} s of {}: {} offered, {} served, {} late, {} dropped, {} errors, {} in flight",
      fixed(to_seconds(elapsed), 0), shortest(seconds, 1), progress.offered, progress.served,
      progress.late, progress.dropped, progress.errors, progress.outstanding);
}

// Writes all of the text, or says which option to check.
Status write_whole(const std::string& file, const std::string& text, const std::string& option) {
  std::ofstream stream(file, std::ios::trunc);
  stream << text << std::flush;
  if (stream) return {};
  return {StatusCode::internal, fmt::format("{}: cannot be written; check {}", file, option)};
}

// `series` may be null.
int report(const LoadArguments& arguments, const load::LoadReport& outcome,
           const LoadSeries* series) {
  std::cout << (arguments.json ? load_json(outcome, series) : load_text(outcome, series))
            << std::flush;
  Status written;
  if (!arguments.report.empty())
    written = write_whole(arguments.report, load_json(outcome, series), "--report");
  if (written.ok() && !arguments.series.empty())
    written = write_whole(arguments.series, series->csv(), "--series");
  if (!written.ok()) return run_failed(written);
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  for (const load::ModelRow& row : outcome.models) {
    offered += row.offered;
    served += row.served;
  }
  if (offered == 0 || served > 0) return kSucceeded;
  return run_failed(
      Status(StatusCode::unavailable, arguments.target.address + ": no request was served"));
}

// ---- traces

// What clients send: the workload, and the trace that they follow; null: none.
struct LoadPlan {
  std::vector<config::WorkloadModel> models;
  std::shared_ptr<const config::Trace> trace;
};

std::vector<std::string> names_in(const config::Trace& trace) {
  std::vector<std::string> names;
  for (const auto& [name, arrivals] : trace.arrivals) names.push_back(name);
  for (const auto& [name, steps] : trace.rates) names.push_back(name);
  return names;
}

// Of a row at time 0. The simulator's demand has a rate then, too, which takes the first random
// number of the arrivals.
double rate_at_start(const config::Trace& trace, const std::string& name) {
  const auto found = trace.rates.find(name);
  if (found == trace.rates.end() || found->second.front().at_s > 0) return 0;
  return found->second.front().rate;
}

Status check_traced_workload(const LoadArguments& arguments, const LoadPlan& plan) {
  for (const config::WorkloadModel& model : plan.models) {
    if (model.arrivals != config::Arrivals::closed) continue;
    return {StatusCode::invalid,
            fmt::format("{}: {} is a closed loop, which has no rate that --trace could change; "
                        "give it a rate or take it out",
                        arguments.workload, model.name)};
  }
  for (const std::string& name : names_in(*plan.trace)) {
    const bool known = std::any_of(plan.models.begin(), plan.models.end(),
                                   [&name](const auto& model) { return model.name == name; });
    if (known) continue;
    return {StatusCode::invalid,
            fmt::format("{}: names {}, which {} lacks; add it there with the rate before its first "
                        "row, or leave --workload out",
                        arguments.trace, name, arguments.workload)};
  }
  return {};
}

Result<LoadPlan> load_plan(const LoadArguments& arguments) {
  LoadPlan plan;
  if (arguments.workload.empty() && arguments.trace.empty()) {
    return Status(StatusCode::invalid,
                  "nothing says what to send; give --workload, --trace or both");
  }
  if (!arguments.workload.empty()) {
    GPULET_TRY(plan.models, config::load_workload(arguments.workload));
  }
  if (arguments.trace.empty()) return plan;
  GPULET_TRY(config::Trace trace, config::read_trace(arguments.trace));
  if (!trace.arrivals.empty() && arguments.scale.rate != 1) {
    return Status(StatusCode::invalid,
                  "--rate-scale: a trace of arrivals has no rates; --speed sends them faster");
  }
  plan.trace = std::make_shared<const config::Trace>(config::scaled_trace(
      std::move(trace), arguments.speed, arguments.speed * arguments.scale.rate));
  if (!arguments.workload.empty()) {
    const Status status = check_traced_workload(arguments, plan);
    return status.ok() ? Result<LoadPlan>(std::move(plan)) : status;
  }
  for (const std::string& name : names_in(*plan.trace)) {
    config::WorkloadModel& model = plan.models.emplace_back();
    model.name = name;
    model.rate = rate_at_start(*plan.trace, name);
  }
  return plan;
}

// ---- running

// Sums up the run by period; also what serves, which the frontend says.
class SeriesWatch {
 public:
  SeriesWatch(const LoadArguments& arguments, const load::Target& target,
              const std::vector<load::PreparedModel>& models)
      : target_(target),
        series_(models_of(models), from_seconds(arguments.period_s),
                from_seconds(arguments.seconds)) {}

  void settled(const load::RequestRecord& record) { series_.add(record); }
  void look(Duration elapsed) {
    const Result<std::string> document = load::fetch_status(target_, kDeploymentTimeout);
    if (!document.ok()) return;
    const Result<Deployment> deployment = deployment_of(document.value());
    if (deployment.ok()) series_.deployed(deployment.value(), elapsed);
  }
  [[nodiscard]] const LoadSeries& series() const { return series_; }

 private:
  static std::vector<LoadSeries::Model> models_of(const std::vector<load::PreparedModel>& models) {
    std::vector<LoadSeries::Model> names;
    names.reserve(models.size());
    for (const load::PreparedModel& model : models)
      names.push_back({model.load.name, model.load.slo});
    return names;
  }

  const load::Target& target_;
  LoadSeries series_;
};

Result<load::LoadOptions> load_options(const LoadArguments& arguments, const load::Target& target,
                                       const LoadPlan& plan) {
  load::LoadOptions options;
  for (const std::string& address : arguments.also) {
    const Result<config::Endpoint> endpoint = config::parse_endpoint(address);
    if (!endpoint.ok()) return endpoint.status().within("--also");
    options.others.push_back(endpoint.value());
  }
  options.target = target;
  options.generator = {.duration = from_seconds(arguments.seconds),
                       .seed = arguments.seed,
                       .max_outstanding = arguments.max_outstanding,
                       .trace = plan.trace};
  options.threads = arguments.threads.value_or(default_threads());
  options.connections =
      arguments.connections.value_or(std::max(kDefaultConnections, options.threads));
  options.synthetic_inputs = arguments.synthetic_inputs;
  return options;
}

// Fails before the load rather than after it.
Status check_outputs(const LoadArguments& arguments, std::ofstream& csv) {
  if (!arguments.csv.empty()) {
    csv.open(arguments.csv, std::ios::trunc);
    csv << request_csv_header();
    if (!csv) return {StatusCode::invalid, arguments.csv + ": cannot be written; check --csv"};
  }
  if (arguments.series.empty()) return {};
  const Status status = write_whole(arguments.series, {}, "--series");
  return status.ok() ? status : Status(StatusCode::invalid, status.message());
}

int send_load(const LoadArguments& arguments, const load::Target& target, const LoadPlan& plan,
              const std::vector<load::PreparedModel>& models) {
  Result<load::LoadOptions> made = load_options(arguments, target, plan);
  if (!made.ok()) return bad_input(made.status());
  load::LoadOptions& options = made.value();
  std::ofstream csv;
  if (const Status status = check_outputs(arguments, csv); !status.ok()) return bad_input(status);
  std::optional<SeriesWatch> watch;
  if (plan.trace != nullptr || !arguments.series.empty()) watch.emplace(arguments, target, models);
  options.on_settled = [&](const load::RequestRecord& record) {
    if (csv.is_open()) csv << request_csv_line(models[record.model].load.name, record);
    if (watch) watch->settled(record);
  };
  InterruptOnce interrupt;
  std::optional<ProgressLine> line(std::in_place);
  options.on_progress = [&](const load::Progress& progress, Duration elapsed) {
    line->show(describe(progress, elapsed, arguments.seconds));
    if (watch) watch->look(elapsed);
    return !interrupt.interrupted();
  };
  const Result<load::LoadReport> outcome = load::run_load(models, options);
  line.reset();
  if (!outcome.ok()) return run_failed(outcome.status());
  const int code = report(arguments, outcome.value(), watch ? &watch->series() : nullptr);
  csv.flush();
  if (csv.fail())
    return run_failed(
        Status(StatusCode::internal, arguments.csv + ": writing failed; is the disk full?"));
  return code;
}

// Where the names of the models come from.
const std::string& source_of_models(const LoadArguments& arguments) {
  return arguments.workload.empty() ? arguments.trace : arguments.workload;
}

int run_load(const LoadArguments& arguments, const load::Target& target) {
  const Result<LoadPlan> plan = load_plan(arguments);
  if (!plan.ok()) return bad_input(plan.status());
  const Result<std::vector<ModelInfo>> served = load::fetch_models(target);
  if (!served.ok()) return run_failed(served.status());
  load::Scale scale = arguments.scale;
  scale.rate *= arguments.speed;
  const Result<std::vector<load::PreparedModel>> models =
      load::prepare(plan.value().models, served.value(), scale, arguments.seed);
  if (!models.ok()) return bad_input(models.status().within(source_of_models(arguments)));
  for (const load::PreparedModel& model : models.value()) {
    if (!arguments.synthetic_inputs || !model.load.labelled) continue;
    return bad_input({StatusCode::invalid,
                      fmt::format("--synthetic-inputs: the inputs of {} have labels; take the "
                                  "option or the labels out",
                                  model.load.name)});
  }
  return send_load(arguments, target, plan.value(), models.value());
}

}  // namespace

void add_load_command(CLI::App& app, Action& chosen) {
  const auto [command, arguments] =
      add_command(app, chosen, "load",
                  "send a workload to a running frontend and measure the responses", run_load);
  add_target_options(*command, arguments->target);
  command->add_option("--workload", arguments->workload,
                      "workload file (JSON); without it --trace says what to send, with random "
                      "inputs and the objectives of the models");
  CLI::Option* const trace = command->add_option(
      "--trace", arguments->trace,
      "CSV of the load, as for gpulet simulate, which replaces the rates of the workload; columns: "
      "time_s,model,count (arrivals) or time_s,model,rate (rate from then on)");
  add_checked(*command, "--speed", arguments->speed,
              "replay the trace this many times as fast: at its rates times this",
              number_above(0, kFastestReplay))
      ->needs(trace);
  command->add_option("--seconds", arguments->seconds, "seconds to send requests")
      ->required()
      ->check(number_above(0, kLongestLoadSeconds));
  add_checked(
      *command, "--rate-scale", arguments->scale.rate,
      "multiply the rate of every open loop in the workload, and those of the trace, by this",
      number_above(0, kLargestScale));
  add_checked(*command, "--slo-scale", arguments->scale.slo,
              "multiply the latency objectives in the workload by this",
              number_above(0, kLargestScale));
  add_checked(*command, "--seed", arguments->seed, "random seed of arrivals and inputs",
              natural_number());
  command->add_flag("--synthetic-inputs", arguments->synthetic_inputs,
                    "send the shapes of the inputs alone, which the models' processes make; for "
                    "experiments, where the frontend's file has \"synthetic_inputs\": true");
  command->add_option("--csv", arguments->csv,
                      "write a CSV with one line per request to this file");
  command->add_option("--series", arguments->series,
                      "write a CSV with the devices, shares and violations of every period");
  add_checked(*command, "--period", arguments->period_s,
              "seconds of a row of --series and of the report of --trace", number_within(0.1, 1e6));
  command->add_option("--report", arguments->report, "also write the JSON document to this file");
  command->add_option("--also", arguments->also,
                      "further frontends of the same cluster: the connections are spread over all, "
                      "and a lost one is opened again at the next");
  command
      ->add_option("--connections", arguments->connections,
                   fmt::format("connections to the target, used in turn (default: {}, or one per "
                               "thread)",
                               kDefaultConnections))
      ->check(whole_number_within(1, 1024));
  command
      ->add_option("--threads", arguments->threads,
                   fmt::format("threads that send, each with its part of the load and of the "
                               "connections; not more than connections are used. The same number "
                               "and seed give the same requests (default: a quarter of the cores, "
                               "1 to {})",
                               kMostDefaultThreads))
      ->check(whole_number_within(1, kMostThreads));
  add_checked(*command, "--max-outstanding", arguments->max_outstanding,
              "send no request of a model while this many of it are unanswered",
              whole_number_within(1, 1000000));
  command->add_flag("--json", arguments->json, "print one JSON document");
  command->footer("Exits with 1 if no request was served.");
}

}  // namespace gpulet::tools
