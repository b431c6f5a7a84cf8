// gpulet wait: until a frontend is ready, or models of it are.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/signal_watch.h"
#include "tools/table.h"
#include "tools/target_options.h"
#include "tools/told_status.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReadyLookEvery = std::chrono::milliseconds(200);
constexpr Duration kReadyAskTimeout = std::chrono::seconds(2);
constexpr double kLongestWaitSeconds = 86400;

struct WaitOptions {
  TargetOptions target;
  Wanted wanted;
  double timeout_s = 120;
};

// A frontend that starts is not there yet, or does not answer; other failures stay.
bool may_pass(const Status& failure) {
  return failure.code() == StatusCode::unavailable || failure.code() == StatusCode::timeout;
}

Result<std::string> look(const load::Target& target, const Wanted& wanted) {
  const Result<std::string> document = load::fetch_status(target, kReadyAskTimeout);
  if (document.ok()) return waits_for(document.value(), wanted);
  if (!may_pass(document.status())) return document.status();
  return "the frontend: " + document.status().message();
}

int wait(const WaitOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(from_seconds(options.timeout_s));
  SignalWatch interrupt{SIGINT, SIGTERM};
  std::string told;
  for (;;) {
    const Result<std::string> missing = look(target.value(), options.wanted);
    if (!missing.ok()) return run_failed(missing.status());
    if (missing.value().empty()) {
      std::cout << options.target.address << " is ready\n";
      return kSucceeded;
    }
    if (missing.value() != told) std::cerr << "waiting for " << missing.value() << '\n';
    told = missing.value();
    if (interrupt.take()) return run_failed({StatusCode::cancelled, "interrupted"});
    if (Clock::now() >= deadline) {
      return run_failed({StatusCode::timeout, options.target.address + " is not ready after " +
                                                  shortest(options.timeout_s, 1) +
                                                  " s: it waits for " + told});
    }
    std::this_thread::sleep_for(kReadyLookEvery);
  }
}

}  // namespace

void add_wait_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("wait", "wait until a frontend takes requests, or models of it serve");
  const auto options = std::make_shared<WaitOptions>();
  command
      ->add_option("models", options->wanted.models,
                   "wait until these serve; without any, until the frontend takes requests")
      ->type_name(kModelName);
  command->add_flag("--all", options->wanted.all, "wait until every model serves");
  add_target_options(*command, options->target);
  command->add_option("--timeout", options->timeout_s, "seconds after which it gives up")
      ->check(number_within(0, kLongestWaitSeconds))
      ->capture_default_str();
  command->footer(
      "Ends with 0 once what it waits for is there, and with 1 where it is not in time.");
  command->callback([options, &chosen] { chosen = [options] { return wait(*options); }; });
}

}  // namespace gpulet::tools
