// gpulet profile import|run: make profiles, from CSV files or by measuring this machine (and check:
// profile_check.h).
#include <sys/utsname.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/config/model_config.h"
#include "gpulet/profile/store.h"
#include "tools/command.h"
#include "tools/profile_check.h"
#include "tools/profile_run.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct ImportOptions {
  std::string name;
  std::string latency;
  std::string utilization;
  std::string interference;
  std::string out;
  profile::FitOptions fit;
  bool json = false;
};

struct RunOptions {
  std::string device;
  std::string models;
  std::string out;
  std::string name = "cpu-core";
  std::string proxy;
  std::vector<int> sizes{20, 40, 60, 80, 100};
  std::vector<std::uint32_t> batches{1, 2, 4, 8, 16, 32};
  std::vector<std::string> only;
  double seconds_per_cell = 1.0;
  double longest_batch_ms = 2000;
  bool keep = false;
  bool json = false;
};

std::optional<std::filesystem::path> path_or_none(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return std::filesystem::path(text);
}

std::size_t count_cells(const profile::Profile& profile) {
  std::size_t cells = 0;
  for (const auto& [name, model] : profile.models) cells += model.latency.samples().size();
  return cells;
}

void tell_written(const profile::Profile& profile, const std::filesystem::path& out,
                  const std::vector<Status>& failures, bool json) {
  const std::string place = (out / profile.name).string();
  if (!json) {
    std::cout << place << ": " << profile.models.size() << " models, " << count_cells(profile)
              << " cells of latency, " << profile.pairs.size() << " pairs\n";
    if (const std::string fit = fit_line(profile); !fit.empty()) std::cout << fit << '\n';
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
  document["failures"] = nlohmann::ordered_json::array();
  for (const Status& failure : failures) document["failures"].push_back(failure.message());
  std::cout << document.dump(2) << '\n';
}

int import(const ImportOptions& options) {
  const profile::CsvSources sources{.latency = options.latency,
                                    .utilization = path_or_none(options.utilization),
                                    .interference = path_or_none(options.interference)};
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

// "cpu:0,1" to its cores.
Result<std::vector<std::uint32_t>> parse_device(const std::string& device) {
  const Status wrong(StatusCode::invalid, "--device \"" + device +
                                              "\": this program measures CPU devices; write the "
                                              "cores of one, for example cpu:0 or cpu:0,1");
  constexpr std::string_view kKind = "cpu:";
  if (!device.starts_with(kKind)) return wrong;
  std::vector<std::uint32_t> cores;
  const char* at = device.data() + kKind.size();
  const char* const end = device.data() + device.size();
  while (true) {
    std::uint32_t core = 0;
    const auto read = std::from_chars(at, end, core);
    if (read.ec != std::errc()) return wrong;
    if (std::find(cores.begin(), cores.end(), core) != cores.end()) return wrong;
    cores.push_back(core);
    if (read.ptr == end) return cores;
    if (*read.ptr != ',') return wrong;
    at = read.ptr + 1;
  }
}

// Those named by --only, or all, in the order of the file; their files must be there.
Result<std::vector<config::ModelConfig>> choose_models(const RunOptions& options) {
  auto loaded = config::load_models(options.models);
  if (!loaded.ok()) return loaded.status();
  std::set<std::string> wanted(options.only.begin(), options.only.end());
  std::vector<config::ModelConfig> chosen;
  for (config::ModelConfig& model : loaded.value()) {
    if (options.only.empty() || wanted.erase(model.name) > 0) chosen.push_back(std::move(model));
  }
  if (!wanted.empty()) {
    return Status(StatusCode::invalid, "--only: " + options.models + " has no model called \"" +
                                           *wanted.begin() + "\"; name some that it has");
  }
  for (const config::ModelConfig& model : chosen) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(model.file, error)) {
      return Status(StatusCode::not_found,
                    options.models + ": " + model.name + ": " + model.file.string() +
                        " does not exist; export it (scripts/export_models.py makes the example "
                        "models) or leave the model out with --only");
    }
  }
  return chosen;
}

Result<std::filesystem::path> find_proxy(const std::string& given) {
  std::error_code error;
  const std::filesystem::path program =
      given.empty()
          ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "gpulet-proxy"
          : std::filesystem::absolute(given, error);
  if (!std::filesystem::is_regular_file(program, error)) {
    return Status(StatusCode::not_found, "there is no proxy program " + program.string() +
                                             "; build gpulet-proxy, or name one with --proxy");
  }
  return program;
}

Result<ProfileRunOptions> make_run_options(const RunOptions& options) {
  ProfileRunOptions run;
  if (!config::is_name(options.name)) {
    return Status(
        StatusCode::invalid,
        "--name \"" + options.name + "\": is not usable; write letters, digits, '.', '_', '-'");
  }
  auto cores = parse_device(options.device);
  if (!cores.ok()) return cores.status();
  auto models = choose_models(options);
  if (!models.ok()) return models.status();
  auto proxy = find_proxy(options.proxy);
  if (!proxy.ok()) return proxy.status();
  run.cores = std::move(cores).value();
  run.models = std::move(models).value();
  run.proxy = std::move(proxy).value();
  for (const int size : options.sizes) run.sizes.push_back(Share{size});
  run.batches = options.batches;
  std::sort(run.batches.begin(), run.batches.end());
  run.per_cell = from_seconds(options.seconds_per_cell);
  run.longest_batch = from_ms(options.longest_batch_ms);
  return run;
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::string date_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  std::ostringstream text;
  if (::gmtime_r(&now, &utc) != nullptr) text << std::put_time(&utc, "%Y-%m-%dT%H:%M:%SZ");
  return text.str();
}

profile::Provenance provenance_of(const RunOptions& options, const ProfileRun& run) {
  profile::Provenance provenance{
      {"source", "gpulet profile run"},
      {"machine", cpu_model()},
      {"device", options.device},
      {"date", date_now()},
      {"partitioning", run.mechanism},
      {"method", "sustained time per batch, back to back, " +
                     shortest(options.seconds_per_cell, 3) + " s a cell"},
  };
  if (!run.libtorch.empty()) provenance["libtorch"] = run.libtorch;
  return provenance;
}

// With --keep, the models of the stored profile that were not measured now.
Status add_kept(const RunOptions& options, profile::Profile& profile) {
  const std::filesystem::path place = std::filesystem::path(options.out) / options.name;
  std::error_code error;
  if (!options.keep || !std::filesystem::exists(place, error)) return {};
  auto stored = profile::read_profile(place);
  if (!stored.ok()) return stored.status();
  profile.models.merge(stored.value().models);
  profile.pairs = std::move(stored.value().pairs);
  // Solo latencies have changed, and what the pairs say with them.
  const auto& fit = stored.value().interference;
  if (!fit) return {};
  return keep_fit(profile, {.seed = fit->seed, .train_fraction = fit->train_fraction});
}

int run(const RunOptions& options) {
  const auto run_options = make_run_options(options);
  if (!run_options.ok()) return bad_input(run_options.status());
  auto measured = measure(run_options.value(), std::cerr);
  if (!measured.ok()) {
    return measured.status().code() == StatusCode::invalid ? bad_input(measured.status())
                                                           : run_failed(measured.status());
  }
  profile::Profile profile;
  profile.name = options.name;
  profile.provenance = provenance_of(options, measured.value());
  profile.models = std::move(measured.value().models);
  int exit_code = kSucceeded;
  for (const Status& failure : measured.value().failures) exit_code = run_failed(failure);
  if (profile.models.empty()) return kRunFailed;
  if (Status kept = add_kept(options, profile); !kept.ok()) return run_failed(kept);
  if (Status written = profile::write_profile(profile, options.out); !written.ok()) {
    return run_failed(written);
  }
  tell_written(profile, options.out, measured.value().failures, options.json);
  return exit_code;
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
  command->add_option("--out", options->out, "the folder of profiles to write it to")->required();
  add_fit_options(*command, options->fit);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return import(*options); }; });
}

void add_run(CLI::App& profile, Run& chosen) {
  CLI::App* const command = profile.add_subcommand(
      "run", "measure models on a device of this machine, in gpulets of several sizes");
  const auto options = std::make_shared<RunOptions>();
  command->add_option("--device", options->device, "cpu:CORE[,CORE...]: the cores of one device")
      ->required();
  command->add_option("--models", options->models, "the models file")->required();
  command->add_option("--out", options->out, "the folder of profiles to write it to")->required();
  command->add_option("--name", options->name, "the profile's name: the device type")
      ->capture_default_str();
  command->add_option("--sizes", options->sizes, "percentages of the device")
      ->delimiter(',')
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--batches", options->batches, "up to each model's max_batch")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--only", options->only, "measure these models of the file")->delimiter(',');
  command->add_flag("--keep", options->keep,
                    "keep what the profile says about models that are not measured now");
  command->add_option("--seconds-per-cell", options->seconds_per_cell, "measured time per cell")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--longest-batch-ms", options->longest_batch_ms,
                   "let a size's batches grow until one takes longer")
      ->check(CLI::Range(0.001, 60000.0))
      ->capture_default_str();
  command->add_option("--proxy", options->proxy, "the proxy program (default: beside this one)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace

void add_profile_command(CLI::App& app, Run& chosen) {
  CLI::App* const profile =
      app.add_subcommand("profile", "what batches cost on a type of device: import or measure it");
  profile->require_subcommand(1);
  add_import(*profile, chosen);
  add_run(*profile, chosen);
  add_profile_check(*profile, chosen);
}

}  // namespace gpulet::tools
