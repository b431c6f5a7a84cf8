#include "tools/profile_support.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "tools/profile_check.h"

namespace gpulet::tools {
namespace {

std::size_t count_cells(const profile::Profile& profile) {
  std::size_t cells = 0;
  for (const auto& [name, model] : profile.models) cells += model.latency.samples().size();
  return cells;
}

}  // namespace

void add_measure_flags(CLI::App& command, MeasureFlags& flags) {
  command
      .add_option("--device", flags.device,
                  "cpu:CORE[,CORE...]: the cores of one device; cuda:NUMBER or cuda:UUID: a GPU")
      ->required();
  command
      .add_option("--partitioning", flags.partitioning, "of a GPU, as it will serve: mps or green")
      ->capture_default_str();
  command.add_option("--models", flags.models, "the models file")->required();
  command.add_option("--only", flags.only, "measure these models of the file")->delimiter(',');
  command.add_option("--proxy", flags.proxy, "the proxy program (default: beside this one)");
  command.add_flag("--json", flags.json, "print one JSON document");
}

int measuring_failed(const Status& status) {
  return status.code() == StatusCode::invalid ? bad_input(status) : run_failed(status);
}

Result<std::vector<config::ModelConfig>> choose_models(const std::string& models_file,
                                                       const std::vector<std::string>& only) {
  auto loaded = config::load_models(models_file);
  if (!loaded.ok()) return loaded.status();
  std::set<std::string> wanted(only.begin(), only.end());
  std::vector<config::ModelConfig> chosen;
  for (config::ModelConfig& model : loaded.value()) {
    if (only.empty() || wanted.erase(model.name) > 0) chosen.push_back(std::move(model));
  }
  if (!wanted.empty()) {
    return Status(StatusCode::invalid, "--only: " + models_file + " has no model called \"" +
                                           *wanted.begin() + "\"; name some that it has");
  }
  for (const config::ModelConfig& model : chosen) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(model.file, error)) {
      return Status(StatusCode::not_found,
                    models_file + ": " + model.name + ": " + model.file.string() +
                        " does not exist; export it (scripts/export_models.py makes the example "
                        "models) or leave the model out with --only");
    }
  }
  return chosen;
}

Result<std::filesystem::path> find_program(const std::string& name, const std::string& given,
                                           const std::string& option) {
  std::error_code error;
  const std::filesystem::path program =
      given.empty() ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / name
                    : std::filesystem::absolute(given, error);
  if (!std::filesystem::is_regular_file(program, error)) {
    return Status(StatusCode::not_found, "there is no program " + program.string() + "; build " +
                                             name + ", or name one with " + option);
  }
  return program;
}

std::string date_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  std::ostringstream text;
  if (::gmtime_r(&now, &utc) != nullptr) text << std::put_time(&utc, "%Y-%m-%dT%H:%M:%SZ");
  return text.str();
}

std::string doubts_of(const profile::ModelProfile& model) {
  std::string text;
  for (const profile::LatencySample& sample : model.latency.samples()) {
    if (sample.doubt == profile::Doubt::none) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(sample.batch) + " at " +
            std::to_string(sample.share.percent) + " % (" +
            std::string(profile::to_string(sample.doubt)) + ")";
  }
  return text;
}

nlohmann::ordered_json doubts_json(const profile::Profile& profile) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, model] : profile.models) {
    for (const profile::LatencySample& sample : model.latency.samples()) {
      if (sample.doubt == profile::Doubt::none) continue;
      list.push_back({{"model", name},
                      {"batch", sample.batch},
                      {"partition", sample.share.percent},
                      {"latency_ms", sample.latency_ms},
                      {"doubt", profile::to_string(sample.doubt)}});
    }
  }
  return list;
}

void tell_written(const profile::Profile& profile, const std::filesystem::path& out,
                  const std::vector<Status>& failures, bool json,
                  const std::filesystem::path& backup) {
  const std::string place = (out / profile.name).string();
  if (!json) {
    std::cout << place << ": " << profile.models.size() << " models, " << count_cells(profile)
              << " cells of latency, " << profile.pairs.size() << " pairs\n";
    if (const std::string fit = fit_line(profile); !fit.empty()) std::cout << fit << '\n';
    if (!backup.empty())
      std::cout << "the profile before it is kept as " << backup.string() << '\n';
    return;
  }
  nlohmann::ordered_json document;
  document["profile"] = profile.name;
  document["directory"] = place;
  document["cells"] = count_cells(profile);
  document["pairs"] = profile.pairs.size();
  if (const std::string fit = fit_line(profile); !fit.empty()) document["fit"] = fit;
  document["provenance"] = profile.provenance;
  document["models"] = nlohmann::ordered_json::array();
  for (const auto& [name, model] : profile.models) {
    nlohmann::ordered_json& row = document["models"].emplace_back();
    row["name"] = name;
    row["cells"] = model.latency.samples().size();
    if (model.memory_mb) row["memory_mb"] = *model.memory_mb;
  }
  document["in_doubt"] = doubts_json(profile);
  if (!backup.empty()) document["backup"] = backup.string();
  document["failures"] = nlohmann::ordered_json::array();
  for (const Status& failure : failures) document["failures"].push_back(failure.message());
  std::cout << document.dump(2) << '\n';
}

}  // namespace gpulet::tools
