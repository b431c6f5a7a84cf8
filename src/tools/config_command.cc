// gpulet config check F: finds the errors of a configuration file before a daemon starts with it.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gpulet/config/daemon_config.h"
#include "tools/command.h"

namespace gpulet::tools {
namespace {

struct CheckOptions {
  std::string file;
  bool json = false;
};

int check(const CheckOptions& options) {
  const Result<std::string> kind = config::check_file(options.file);
  if (!kind.ok()) return bad_input(kind.status());
  if (options.json) {
    std::cout << nlohmann::json({{"file", options.file}, {"kind", kind.value()}}).dump(2) << '\n';
  } else {
    std::cout << options.file << ": a valid " << kind.value() << " file\n";
  }
  return kSucceeded;
}

}  // namespace

void add_config_command(CLI::App& app, Run& chosen) {
  CLI::App* const config = app.add_subcommand("config", "configuration files");
  config->require_subcommand(1);
  CLI::App* const command = config->add_subcommand(
      "check",
      "load a models, cluster, demand, workload, frontend, backend or control file "
      "and what it names; tell what is wrong");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("file", options->file, "the file")->required();
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return check(*options); }; });
}

}  // namespace gpulet::tools
