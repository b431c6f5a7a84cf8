// gpulet profile run: measures the latencies of models on a device of this machine.
#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "gpulet/control/node_control.h"
#include "gpulet/profile/profile.h"
#include "gpulet/profile/store.h"
#include "tools/cli/profile_commands.h"
#include "tools/measure/controller_run.h"
#include "tools/measure/counters.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/profile_run.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

// ---- controllers: what `run --controller` stores and prints

struct Controller {
  control::PiGains gains;
  control::Margins margins;
};

// Empty if no gains have the required margins.
std::optional<Controller> choose_controller(const control::Plant& plant) {
  const auto gains = control::choose_gains(plant, control::Options{}.pole);
  if (!gains.ok()) return std::nullopt;
  return Controller{gains.value(), control::margins(plant, gains.value(), 1)};
}

void print_table(const ControllerRun& run) {
  Table table = Table::of({"model"}, {"rps", "cores", "k s/core", "b", "R squared", "K cores/s",
                                      "a", "gain margin", "phase margin"});
  for (const IdentifiedModel& model : run.models) {
    const control::Plant& plant = model.found.plant;
    std::vector<std::string> row{model.model,
                                 fixed(model.rate_rps, 1),
                                 fixed(plant.at_cores, 2),
                                 fixed(plant.gain_s_per_core, 3),
                                 fixed(plant.zero, 2),
                                 fixed(model.found.explained, 2)};
    const auto chosen = choose_controller(plant);
    for (const std::string& cell :
         chosen
             ? std::vector{fixed(chosen->gains.gain_cores_per_s, 3), fixed(chosen->gains.zero, 2),
                           fixed(chosen->margins.gain, 1), fixed(chosen->margins.phase_deg, 0)}
             : std::vector<std::string>(4, "-")) {
      row.push_back(cell);
    }
    table.add_row(std::move(row));
  }
  std::cout << table.to_string();
}

void print_document(const ControllerRun& run) {
  nlohmann::ordered_json document;
  document["models"] = nlohmann::ordered_json::array();
  for (const IdentifiedModel& model : run.models) {
    const control::Plant& plant = model.found.plant;
    nlohmann::ordered_json row = {{"name", model.model},
                                  {"rate_rps", model.rate_rps},
                                  {"controller",
                                   {{"gain_s_per_core", plant.gain_s_per_core},
                                    {"zero", plant.zero},
                                    {"at_cores", plant.at_cores}}},
                                  {"r_squared", model.found.explained}};
    if (const auto chosen = choose_controller(plant)) {
      row["gains"] = {{"gain_cores_per_s", chosen->gains.gain_cores_per_s},
                      {"zero", chosen->gains.zero}};
      row["margins"] = {{"gain", chosen->margins.gain},
                        {"phase_deg", chosen->margins.phase_deg},
                        {"delay_periods", chosen->margins.delay_periods}};
    }
    for (const control::Sample& sample : model.run)
      row["samples"].push_back({{"cores", sample.cores}, {"response_s", sample.response_s}});
    document["models"].push_back(std::move(row));
  }
  document["failures"] = nlohmann::ordered_json::array();
  for (const Status& failure : run.failures) document["failures"].push_back(failure.message());
  std::cout << json_page(document);
}

// The profile in that folder. It must have the latencies of all models, beside which plants are
// kept.
Result<profile::Profile> measured_profile(const std::filesystem::path& place,
                                          const std::vector<config::ModelConfig>& models) {
  auto profile = profile::read_profile(place);
  if (!profile.ok()) {
    return profile.status().within(
        "--controller adds to a profile; measure it first without --controller");
  }
  for (const config::ModelConfig& model : models) {
    if (profile.value().find(model.name) == nullptr) {
      return Status(StatusCode::invalid,
                    fmt::format("{}: has no latencies of {}; measure it first, or leave it out "
                                "with --only",
                                place.string(), model.name));
    }
  }
  return profile;
}

// ---- run

struct ProfileRunFlags : MeasureOptions {
  std::string out;
  std::string name;  // empty: the default name of the device
  std::string ncu;
  std::string kernels;
  std::vector<int> sizes{20, 40, 60, 80, 100};
  std::vector<std::uint32_t> batches{1, 2, 4, 8, 16, 32};
  double seconds_per_cell = 1.0;
  double longest_batch_ms = 2000;
  double control_period_s = 1;
  std::uint32_t control_periods = 60;
  bool replace = false;
  bool keep = false;  // the default
  bool controller = false;
  bool no_counters = false;
};

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

Status check_name(const std::string& name) {
  if (name.empty() || config::is_name(name)) return {};
  return {
      StatusCode::invalid,
      fmt::format(R"(--name "{}": not a valid name; use letters, digits, '.', '_' and '-')", name)};
}

Result<ProfileRunOptions> make_run_options(const ProfileRunFlags& options) {
  ProfileRunOptions run;
  if (Status named = check_name(options.name); !named.ok()) return named;
  GPULET_TRY(auto models, choose_models(options.models, options.only));
  GPULET_TRY(auto proxies, choose_proxies(options));
  run.models = std::move(models);
  run.proxies = std::move(proxies);
  for (const int size : options.sizes) run.sizes.push_back(Share{size});
  sort_unique(run.sizes);
  run.batches = options.batches;
  sort_unique(run.batches);
  run.per_cell = from_seconds(options.seconds_per_cell);
  run.longest_batch = from_ms(options.longest_batch_ms);
  return run;
}

// The bytes of a request, which the model inss needs (docs/interference.md).
void add_bytes(const std::vector<config::ModelConfig>& configured, profile::Profile& profile) {
  for (const config::ModelConfig& model : configured) {
    const auto measured = profile.models.find(model.name);
    const auto input = byte_size(model.inputs);
    const auto output = byte_size(model.outputs);
    if (measured == profile.models.end() || !input.ok() || !output.ok()) continue;
    measured->second.input_bytes = static_cast<double>(input.value());
    measured->second.output_bytes = static_cast<double>(output.value());
  }
}

// Measures the bandwidth from host to GPU.
Status add_bandwidth(const ProfileRunFlags& options, const std::string& gpu,
                     profile::Profile& profile) {
  if (gpu.empty()) return {};  // simulated
  const auto kernels = find_program("gpulet-kernels", options.kernels, "--kernels");
  if (!kernels.ok()) return {};  // measure_counters() reports it
  const auto gbps = measure_bandwidth(kernels.value(), gpu);
  if (gbps.ok()) {
    profile.pcie_gbps = gbps.value();
    return {};
  }
  if (gbps.status().code() == StatusCode::cancelled) return gbps.status();
  std::cerr << "gpulet: no bandwidth between host and GPU: " << gbps.status().message() << '\n';
  return {};
}

std::filesystem::path place_of(const ProfileRunFlags& options, const std::string& name) {
  return std::filesystem::path(options.out) / name;
}

// The profile that the measurement extends; empty: it starts a new one.
Result<std::optional<profile::Profile>> stored_profile(const ProfileRunFlags& options,
                                                       const std::string& name) {
  const std::filesystem::path place = place_of(options, name);
  std::error_code error;
  if (options.replace || !std::filesystem::exists(place, error))
    return std::optional<profile::Profile>();
  auto stored = profile::read_profile(place);
  if (!stored.ok()) {
    return Status(stored.status().code(),
                  stored.status().message() +
                      "; or start a new profile with --replace, which keeps this one as a backup");
  }
  return std::optional(std::move(stored).value());
}

// Latencies of different machines or partitionings do not belong in one profile.
void warn_about_mixture(const profile::Profile& stored, const profile::Provenance& now,
                        const std::filesystem::path& place) {
  for (const std::string key : {"machine", "partitioning"}) {
    const auto before = stored.provenance.find(key);
    const auto found = now.find(key);
    if (before == stored.provenance.end() || found == now.end() || before->second == found->second)
      continue;
    std::cerr << fmt::format(
        R"(gpulet: warning: {} was measured with {} "{}", now it is "{}"; )"
        "start a new profile with --replace, or write another one with --name\n",
        place.string(), key, before->second, found->second);
  }
}

// Merges the measurement into the stored profile.
Result<profile::Profile> merge(std::optional<profile::Profile> stored, profile::Profile measured,
                               const profile::CellSet& requested) {
  if (!stored) return measured;
  profile::Profile all = profile::updated(std::move(*stored), std::move(measured), requested);
  all.provenance.erase("unsteady");  // earlier versions reported doubts there
  if (!all.interference) return all;
  // The solo latencies have changed, so the fit to the pairs has to change.
  const profile::FitOptions fit{.seed = all.interference->seed,
                                .train_fraction = all.interference->train_fraction};
  if (Status fitted = keep_fit(all, fit); !fitted.ok()) return fitted;
  return all;
}

// Stores what a run has measured, as often as it has more.
class RunStore {
 public:
  explicit RunStore(const ProfileRunFlags& options) : options_(options) {}

  // `measured` is all that the run has measured so far. Merges it into the stored profile, which is
  // read again because others may have changed it meanwhile. Returns what is stored now.
  [[nodiscard]] Result<profile::Profile> store(profile::Profile measured,
                                               const profile::CellSet& requested) {
    GPULET_TRY(auto stored, stored_profile(options_, measured.name));
    auto all = merge(std::move(stored), std::move(measured), requested);
    if (!all.ok()) return all.status();
    if (Status written = write(all.value()); !written.ok()) return written;
    models_ = all.value().models.size();
    return all;
  }

  // Of the profile that --replace replaced; empty if there is none.
  [[nodiscard]] const std::filesystem::path& backup() const { return backup_; }
  [[nodiscard]] bool stored_any() const { return models_ > 0; }

 private:
  [[nodiscard]] Status write(const profile::Profile& profile) {
    // Only the first profile that this run stores replaces another one.
    if (!options_.replace || stored_any()) return profile::write_profile(profile, options_.out);
    GPULET_TRY(auto backup, profile::replace_profile(profile, options_.out));
    backup_ = std::move(backup);
    return {};
  }

  const ProfileRunFlags& options_;
  std::filesystem::path backup_;
  std::size_t models_ = 0;
};

// Fails if profiles cannot be stored below --out, before anything is measured.
Status check_writable(const std::filesystem::path& folder) {
  const auto failed = [&folder](const std::error_code& error) {
    return Status(StatusCode::invalid,
                  fmt::format("--out {}: cannot be written to: {}; name a folder of your own",
                              folder.string(), error.message()));
  };
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (error) return failed(error);
  std::string trial = (folder / ".trial-XXXXXX").string();
  if (::mkdtemp(trial.data()) == nullptr) return failed({errno, std::generic_category()});
  std::filesystem::remove(trial, error);
  if (made) std::filesystem::remove(folder, error);  // nothing is measured yet
  return {};
}

void warn_about_doubts(const profile::Profile& profile, const ProfileRun& run) {
  bool any = false;
  for (const auto& [name, cells] : run.requested) {
    const profile::ModelProfile* const model = profile.find(name);
    const std::string doubts = model == nullptr ? "" : doubts_text(*model);
    if (doubts.empty()) continue;
    any = true;
    std::cerr << "gpulet: warning: " << name << ": in doubt, by batch: " << doubts << '\n';
  }
  if (!any) return;
  std::cerr << "gpulet: warning: measure these cells again when nothing else uses the machine "
               "(--only, --sizes, --batches); plans use them as they are until then\n";
}

profile::Provenance provenance_of(const ProfileRunFlags& options, const MeasuredDevice& device,
                                  const ProfileRun& run) {
  profile::Provenance provenance = device.facts;
  provenance["source"] = "gpulet profile run";
  provenance["date"] = utc_date_now();
  provenance["method"] = fmt::format(
      "sustained time per batch, back to back, {} s a cell and up to five times as long until the "
      "median is within {} %",
      shortest(options.seconds_per_cell, 3), shortest(100 * device.steady_spread, 1));
  provenance.insert(run.facts.begin(), run.facts.end());
  return provenance;
}

// Executes --controller, which replaces the measurement of latencies.
int run_controllers(const ProfileRunFlags& options, const ProfileRunOptions& run,
                    const DeviceName& named) {
  if (named.cores.empty()) {
    return bad_input(
        {StatusCode::invalid, "--controller measures CPU cores only; use --device cpu:0"});
  }
  auto device = open_device(named, options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  const std::string name = options.name.empty() ? device.value().name : options.name;
  auto profile = measured_profile(std::filesystem::path(options.out) / name, run.models);
  if (!profile.ok()) return bad_input(profile.status());
  const ControllerRunOptions control{.models = run.models,
                                     .proxies = run.proxies,
                                     .cores = static_cast<double>(named.cores.size()),
                                     .period = from_seconds(options.control_period_s),
                                     .periods = options.control_periods};
  const auto found = identify_controllers(control, device.value(), std::cerr);
  if (!found.ok()) return measuring_failed(found.status());
  for (const IdentifiedModel& model : found.value().models)
    profile.value().models.at(model.model).controller = model.found.plant;
  profile.value().provenance["controller"] =
      fmt::format("{}, {}, {}", utc_date_now(), device.value().facts["machine"],
                  device.value().driver->mechanism());
  if (Status written = profile::write_profile(profile.value(), options.out); !written.ok())
    return run_failed(written);
  if (options.json) {
    print_document(found.value());
  } else if (!found.value().models.empty()) {
    print_table(found.value());
  }
  int exit_code = kSucceeded;
  for (const Status& failure : found.value().failures) exit_code = run_failed(failure);
  return exit_code;
}

int run_profile(const ProfileRunFlags& options) {
  const auto named = parse_measured_device(options.device);
  if (!named.ok()) return bad_input(named.status());
  const auto run_options = make_run_options(options);
  if (!run_options.ok()) return bad_input(run_options.status());
  if (Status writable = check_writable(options.out); !writable.ok()) return bad_input(writable);
  if (options.controller) return run_controllers(options, run_options.value(), named.value());
  auto device = open_device(named.value(), options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  profile::Profile profile;
  profile.name = options.name.empty() ? device.value().name : options.name;
  const auto before = stored_profile(options, profile.name);
  if (!before.ok()) return bad_input(before.status());
  if (before.value())
    warn_about_mixture(*before.value(), device.value().facts, place_of(options, profile.name));
  RunStore store(options);
  const auto measured_so_far = [&](const ProfileRun& run) {
    profile::Profile so_far;
    so_far.name = profile.name;
    so_far.provenance = provenance_of(options, device.value(), run);
    so_far.models = run.models;
    add_bytes(run_options.value().models, so_far);
    return so_far;
  };
  const auto after_model = [&](const std::string& /*model*/, const ProfileRun& run) {
    if (run.models.empty()) return;
    const auto stored = store.store(measured_so_far(run), run.requested);
    if (!stored.ok()) std::cerr << "gpulet: not stored yet: " << stored.status().message() << '\n';
  };
  const auto measured = measure(run_options.value(), device.value(), std::cerr, after_model);
  device.value().driver.reset();  // stops its daemon
  if (!measured.ok()) {
    if (store.stored_any())
      std::cerr << "gpulet: " << place_of(options, profile.name).string()
                << " has the models that were measured before; measure the others with --only\n";
    return measuring_failed(measured.status());
  }
  profile = measured_so_far(measured.value());
  int exit_code = kSucceeded;
  for (const Status& failure : measured.value().failures) exit_code = run_failed(failure);
  if (profile.models.empty()) return kRunFailed;
  if (has_counters(device.value()) && !options.no_counters) {
    Status counted = add_bandwidth(options, device.value().gpu, profile);
    const CounterOptions counters{
        .models = options.models, .ncu = options.ncu, .kernels = options.kernels};
    if (counted.ok()) counted = measure_counters(counters, device.value(), profile, std::cerr, {});
    if (counted.code() == StatusCode::cancelled) return run_failed(counted);
    if (!counted.ok())
      std::cerr << "gpulet: no utilisation of L2 and memory: " << counted.message() << '\n';
  }
  const auto all = store.store(std::move(profile), measured.value().requested);
  if (!all.ok()) return run_failed(all.status());
  print_written(all.value(), options.out, measured.value().failures, options.json, store.backup());
  warn_about_doubts(all.value(), measured.value());
  return exit_code;
}

}  // namespace

void add_profile_run(CLI::App& profile, Action& chosen) {
  const auto [command, options] = add_command(
      profile, chosen, "run",
      "measure models in gpulets of several sizes on a device of this machine", run_profile);
  add_measure_options(*command, *options);
  command->add_option("--out", options->out, "folder of profiles to write to")->required();
  command->add_option(
      "--name", options->name,
      "name of the profile: the device type (default: cpu-core, or the GPU's name)");
  command->add_option("--sizes", options->sizes, "sizes in percent of the device")
      ->delimiter(',')
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command
      ->add_option("--batches", options->batches, "batch sizes, up to the max_batch of each model")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  CLI::Option* const replace = command->add_flag(
      "--replace", options->replace,
      "start a new profile and keep the existing one as a backup (default: add to it)");
  command
      ->add_flag("--keep", options->keep,
                 "keep the cells of the profile that are not measured now (the default)")
      ->excludes(replace);
  add_checked(*command, "--seconds-per-cell", options->seconds_per_cell,
              "seconds to measure each cell, a batch at a size", CLI::Range(0.001, 3600.0));
  add_checked(*command, "--longest-batch-ms", options->longest_batch_ms,
              "after a batch that takes longer than this, skip the larger batches of its size",
              CLI::Range(0.001, 60000.0));
  command->add_flag("--controller", options->controller,
                    "instead of latencies, measure how the response times depend on the number of "
                    "CPU cores; adds the result, which control needs (docs/control.md), to an "
                    "existing profile");
  add_checked(*command, "--control-period-s", options->control_period_s,
              "with --controller: seconds between changes of the cores", CLI::Range(0.05, 60.0));
  add_checked(*command, "--control-periods", options->control_periods,
              "with --controller: number of periods to measure", CLI::Range(10, 3600));
  add_counter_programs(*command, options->ncu, options->kernels);
  command->add_flag("--no-counters", options->no_counters,
                    "do not measure the utilisation of a GPU's L2 cache and memory");
}

}  // namespace gpulet::tools
