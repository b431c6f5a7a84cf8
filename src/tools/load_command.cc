// gpulet load: sends a workload to a running frontend and measures what comes back.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/config/workload_config.h"
#include "gpulet/load/call.h"
#include "gpulet/load/client.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/load_report.h"
#include "tools/progress_line.h"
#include "tools/signal_watch.h"
#include "tools/table.h"
#include "tools/target_options.h"

namespace gpulet::tools {
namespace {

constexpr double kLongestSeconds = 1e6;
constexpr double kLargestScale = 1e6;

struct LoadArguments {
  TargetOptions target;
  std::string workload;
  double seconds = 0;
  load::Scale scale;
  std::uint64_t seed = 1;
  std::string csv;
  std::string report;
  std::uint32_t connections = 4;
  std::uint32_t max_outstanding = 4096;
  bool json = false;
};

// The first SIGINT or SIGTERM ends the sending, and the table is still printed; the second ends the
// program.
class InterruptWatch {
 public:
  [[nodiscard]] bool interrupted() {
    if (watch_ && watch_->take()) watch_.reset();
    return !watch_;
  }

 private:
  std::optional<SignalWatch> watch_{std::in_place, std::initializer_list<int>{SIGINT, SIGTERM}};
};

std::string describe(const load::Progress& progress, Duration elapsed, double seconds) {
  return fixed(to_seconds(elapsed), 0) + " s of " + shortest(seconds, 1) + ": " +
         std::to_string(progress.offered) + " offered, " + std::to_string(progress.served) +
         " served, " + std::to_string(progress.late) + " late, " +
         std::to_string(progress.dropped) + " dropped, " + std::to_string(progress.errors) +
         " errors, " + std::to_string(progress.outstanding) + " under way";
}

int report(const LoadArguments& arguments, const load::LoadReport& outcome) {
  std::cout << (arguments.json ? load_json(outcome) : load_text(outcome)) << std::flush;
  if (!arguments.report.empty()) {
    std::ofstream file(arguments.report, std::ios::trunc);
    file << load_json(outcome) << std::flush;
    if (!file) {
      return run_failed(
          Status(StatusCode::internal, arguments.report + ": cannot be written; check --report"));
    }
  }
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  for (const load::ModelRow& row : outcome.models) {
    offered += row.offered;
    served += row.served;
  }
  if (offered == 0 || served > 0) return kSucceeded;
  return run_failed(
      Status(StatusCode::unavailable, arguments.target.address + ": not one request was served"));
}

int send_load(const LoadArguments& arguments, const load::Target& target,
              const std::vector<load::PreparedModel>& models) {
  std::ofstream csv;
  if (!arguments.csv.empty()) {
    csv.open(arguments.csv, std::ios::trunc);
    csv << request_csv_header();
    if (!csv)
      return bad_input(
          Status(StatusCode::invalid, arguments.csv + ": cannot be written; check --csv"));
  }
  load::LoadOptions options;
  options.target = target;
  options.generator = {.duration = from_seconds(arguments.seconds),
                       .seed = arguments.seed,
                       .max_outstanding = arguments.max_outstanding};
  options.connections = arguments.connections;
  if (csv.is_open()) {
    options.on_settled = [&](const load::RequestRecord& record) {
      csv << request_csv_line(models[record.model].load.name, record);
    };
  }
  InterruptWatch interrupt;
  std::optional<ProgressLine> line(std::in_place);
  options.on_progress = [&](const load::Progress& progress, Duration elapsed) {
    line->show(describe(progress, elapsed, arguments.seconds));
    return !interrupt.interrupted();
  };
  const Result<load::LoadReport> outcome = load::run_load(models, options);
  line.reset();
  if (!outcome.ok()) return run_failed(outcome.status());
  const int code = report(arguments, outcome.value());
  csv.flush();
  if (csv.fail())
    return run_failed(
        Status(StatusCode::internal, arguments.csv + ": writing failed; is the disk full?"));
  return code;
}

int run(const LoadArguments& arguments) {
  const Result<load::Target> target = find_target(arguments.target);
  if (!target.ok()) return bad_input(target.status());
  const auto workload = config::load_workload(arguments.workload);
  if (!workload.ok()) return bad_input(workload.status());
  const Result<std::vector<serve::ModelInfo>> served = load::fetch_models(target.value());
  if (!served.ok()) return run_failed(served.status());
  const Result<std::vector<load::PreparedModel>> models =
      load::prepare(workload.value(), served.value(), arguments.scale, arguments.seed);
  if (!models.ok()) return bad_input(models.status().within(arguments.workload));
  return send_load(arguments, target.value(), models.value());
}

}  // namespace

void add_load_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "load", "send a workload to a running frontend and measure what comes back");
  const auto arguments = std::make_shared<LoadArguments>();
  add_target_options(*command, arguments->target, TargetNeed::required);
  command->add_option("--workload", arguments->workload, "what to send (JSON)")->required();
  command->add_option("--seconds", arguments->seconds, "how many seconds to send")
      ->required()
      ->check(number_above(0, kLongestSeconds));
  command->add_option("--rate-scale", arguments->scale.rate, "multiplies every open loop's rate")
      ->check(number_above(0, kLargestScale))
      ->capture_default_str();
  command->add_option("--slo-scale", arguments->scale.slo, "multiplies the workload's objectives")
      ->check(number_above(0, kLargestScale))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "of arrivals and random inputs")
      ->check(natural_number())
      ->capture_default_str();
  command->add_option("--csv", arguments->csv, "write every request to this file");
  command->add_option("--report", arguments->report,
                      "write what --json prints to this file, whatever is printed");
  command
      ->add_option("--connections", arguments->connections,
                   "connections to the target, used in turn")
      ->check(whole_number_within(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--max-outstanding", arguments->max_outstanding,
                   "requests of one model that may wait for answers")
      ->check(whole_number_within(1, 1000000))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "print one JSON document");
  command->footer("Ends with 1 if not one request was served.");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace gpulet::tools
