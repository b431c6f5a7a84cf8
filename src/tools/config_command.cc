// gpulet config check F: finds the errors of a configuration file before a daemon starts with it.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gpulet/config/check_file.h"
#include "tools/command.h"
#include "tools/config_check.h"

namespace gpulet::tools {
namespace {

struct ConfigCheckOptions {
  std::string file;
  bool elsewhere = false;
  bool json = false;
};

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

void print_text(const std::string& file, const std::string& kind, const ConfigReport& report) {
  for (const std::string& error : report.errors) std::cerr << "error: " << error << '\n';
  for (const std::string& warning : report.warnings) std::cerr << "warning: " << warning << '\n';
  if (!report.errors.empty()) {
    std::cerr << "gpulet: " << file << ": " << counted(report.errors.size(), "error") << ", "
              << counted(report.warnings.size(), "warning") << '\n';
    return;
  }
  std::cout << file << ": a valid " << kind << " file";
  if (!report.warnings.empty())
    std::cout << ", with " << counted(report.warnings.size(), "warning");
  std::cout << '\n';
}

int check(const ConfigCheckOptions& options) {
  const Result<config::CheckedFile> checked = config::check_file(options.file);
  if (checked.status().code() == StatusCode::not_found) return bad_input(checked.status());
  std::string kind;
  ConfigReport report;
  if (checked.ok()) {
    std::optional<Machine> machine;
    if (checked.value().backend && !options.elsewhere)
      machine = find_machine(*checked.value().backend);
    kind = checked.value().kind;
    report = check_config(checked.value(), options.file, machine);
  } else {
    report.errors.push_back(checked.status().message());
  }
  if (options.json) {
    std::cout << nlohmann::ordered_json({{"file", options.file},
                                         {"kind", kind},
                                         {"valid", report.errors.empty()},
                                         {"errors", report.errors},
                                         {"warnings", report.warnings}})
                     .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << '\n';
  } else {
    print_text(options.file, kind, report);
  }
  return report.errors.empty() ? kSucceeded : kRunFailed;
}

}  // namespace

void add_config_command(CLI::App& app, Run& chosen) {
  CLI::App* const config = app.add_subcommand("config", "configuration files");
  config->require_subcommand(1);
  CLI::App* const command = config->add_subcommand(
      "check",
      "read a models, cluster, demand, workload, frontend, backend or control file and what it "
      "names, and tell everything that is wrong: errors, with which it exits with 1, and warnings");
  const auto options = std::make_shared<ConfigCheckOptions>();
  command->add_option("file", options->file, "the file")->required();
  command->add_flag("--elsewhere", options->elsewhere,
                    "the file is for another machine: do not hold a backend's devices and folders "
                    "against this one");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return check(*options); }; });
}

}  // namespace gpulet::tools
