// gpulet status: a running frontend's devices, gpulets, models and events.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/status_picture.h"
#include "tools/target_options.h"
#include "tools/terminal.h"

namespace gpulet::tools {
namespace {

struct StatusOptions {
  TargetOptions target;
  bool json = false;
};

int print_json(const std::string& document) {
  const auto parsed = nlohmann::ordered_json::parse(document, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return run_failed(
        Status(StatusCode::malformed, "the frontend's status is not a JSON document"));
  }
  std::cout << parsed.dump(2) << '\n';
  return kSucceeded;
}

int status(const StatusOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  const Result<std::string> document = load::fetch_status(target.value());
  if (!document.ok()) return run_failed(document.status());
  if (options.json) return print_json(document.value());
  const Terminal terminal = describe_terminal(stdout);
  const Result<std::string> picture =
      render_status(document.value(), {.utf8 = terminal.utf8, .colour = terminal.colour});
  if (!picture.ok()) return run_failed(picture.status().within(options.target.address));
  std::cout << picture.value();
  return kSucceeded;
}

}  // namespace

void add_status_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "status", "print a running frontend's devices, gpulets, models and events");
  const auto options = std::make_shared<StatusOptions>();
  add_target_options(*command, options->target);
  command->add_flag("--json", options->json, "print the status document");
  command->callback([options, &chosen] { chosen = [options] { return status(*options); }; });
}

}  // namespace gpulet::tools
