// gpulet profile: what batches cost on a type of device. This file is the command and its `import`.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/profile/store.h"
#include "tools/command.h"
#include "tools/profile_check.h"
#include "tools/profile_support.h"

namespace gpulet::tools {
namespace {

struct ImportOptions {
  std::string name;
  std::string latency;
  std::string utilization;
  std::string interference;
  std::string mig;
  std::string out;
  profile::FitOptions fit;
  bool json = false;
};

std::optional<std::filesystem::path> path_or_none(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return std::filesystem::path(text);
}

int import(const ImportOptions& options) {
  profile::CsvSources sources{.latency = options.latency,
                              .utilization = path_or_none(options.utilization),
                              .interference = path_or_none(options.interference)};
  if (!options.mig.empty()) {
    const auto geometry = partition::MigGeometry::of(options.mig);
    if (!geometry.ok()) return bad_input(geometry.status().within("--mig"));
    sources.mig = geometry.value();
  }
  auto imported = profile::import_csv(options.name, sources);
  if (!imported.ok()) return bad_input(imported.status());
  if (Status fitted = keep_fit(imported.value(), options.fit); !fitted.ok()) {
    return bad_input(fitted);
  }
  if (Status written = profile::write_profile(imported.value(), options.out); !written.ok()) {
    return run_failed(written);
  }
  const auto left_out = imported.value().provenance.find("left_out");
  if (left_out != imported.value().provenance.end()) {
    std::cerr << "gpulet: left out " << left_out->second << '\n';
  }
  tell_written(imported.value(), options.out, {}, options.json);
  return kSucceeded;
}

void add_import(CLI::App& profile, Run& chosen) {
  CLI::App* const command = profile.add_subcommand(
      "import", "make a profile from CSV files (columns: profiles/FORMAT.md)");
  const auto options = std::make_shared<ImportOptions>();
  command->add_option("--name", options->name, "the profile's name: the device type")->required();
  command->add_option("--latency", options->latency, "model,batch,partition,latency_ms")
      ->required();
  command->add_option("--utilization", options->utilization,
                      "model,batch,partition,l2_util,dram_util");
  command->add_option("--interference", options->interference,
                      "model,batch,partition,other_model,other_batch,other_partition,latency_ms");
  command->add_option("--mig", options->mig,
                      "whose instances partitions named 1g, 2g, .. are, for example a30 (default: "
                      "of a device of seven slices)");
  command->add_option("--out", options->out, "the folder of profiles to write it to")->required();
  add_fit_options(*command, options->fit);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return import(*options); }; });
}

}  // namespace

void add_profile_command(CLI::App& app, Run& chosen) {
  CLI::App* const profile =
      app.add_subcommand("profile", "what batches cost on a type of device: import or measure it");
  profile->require_subcommand(1);
  add_import(*profile, chosen);
  add_profile_run(*profile, chosen);
  add_profile_interference(*profile, chosen);
  add_profile_check(*profile, chosen);
}

}  // namespace gpulet::tools
