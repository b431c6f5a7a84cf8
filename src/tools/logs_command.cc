// gpulet logs: the events of a running frontend.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/load/call.h"
#include "tools/clock_text.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/signal_watch.h"
#include "tools/table.h"
#include "tools/target_options.h"
#include "tools/told_status.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSignalsEvery = std::chrono::milliseconds(100);

struct LogsOptions {
  TargetOptions target;
  bool follow = false;
  bool json = false;
  double interval_s = 1;
};

void print(const ToldEvent& event, bool as_json) {
  if (as_json) {
    nlohmann::ordered_json line{
        {"at_s", event.at_s}, {"text", event.text}, {"warning", event.warning}};
    if (event.unix_s) line["unix_s"] = *event.unix_s;
    std::cout << line.dump() << '\n';
    return;
  }
  const std::string when =
      event.unix_s ? date_and_clock_text(*event.unix_s) : fixed(event.at_s, 1) + " s";
  std::cout << when << "  " << (event.warning ? "warning: " : "") << event.text << '\n';
}

Status show(const load::Target& target, EventTail& tail, bool as_json) {
  const Result<std::string> document = load::fetch_status(target);
  if (!document.ok()) return document.status();
  const Result<std::vector<ToldEvent>> events = tail.fresh(document.value());
  if (!events.ok()) return events.status();
  for (const ToldEvent& event : events.value()) print(event, as_json);
  std::cout << std::flush;
  return {};
}

// False where a signal ended it.
bool pause(SignalWatch& interrupt, double seconds) {
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(from_seconds(seconds));
  while (Clock::now() < until) {
    if (interrupt.take()) return false;
    std::this_thread::sleep_for(kSignalsEvery);
  }
  return true;
}

// A frontend that stops answering may come back: it is said once.
int follow(const LogsOptions& options, const load::Target& target, EventTail& tail) {
  SignalWatch interrupt{SIGINT, SIGTERM};
  bool answers = true;
  while (pause(interrupt, options.interval_s)) {
    const Status shown = show(target, tail, options.json);
    if (!std::cout) return kSucceeded;  // nobody reads it any more
    if (shown.ok() == answers) continue;
    answers = shown.ok();
    std::cerr << "gpulet: "
              << (answers ? options.target.address + ": answers again" : shown.message()) << '\n';
  }
  return kSucceeded;
}

int logs(const LogsOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  EventTail tail;
  if (const Status shown = show(target.value(), tail, options.json); !shown.ok())
    return run_failed(shown);
  return options.follow ? follow(options, target.value(), tail) : kSucceeded;
}

}  // namespace

void add_logs_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("logs", "print what happened at a running frontend: its latest events");
  const auto options = std::make_shared<LogsOptions>();
  add_target_options(*command, options->target);
  command->add_flag("--follow,-f", options->follow, "go on with those that come, until Ctrl-C");
  command->add_option("--interval", options->interval_s, "seconds between two looks, with --follow")
      ->check(number_within(0.1, 3600))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON document a line");
  command->footer("The frontend keeps the latest events; all of them are in its log.");
  command->callback([options, &chosen] { chosen = [options] { return logs(*options); }; });
}

}  // namespace gpulet::tools
