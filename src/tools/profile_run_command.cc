// gpulet profile run: measures models on a device of this machine.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/profile/store.h"
#include "gpulet/profile/update.h"
#include "tools/controller_report.h"
#include "tools/controller_run.h"
#include "tools/counters.h"
#include "tools/measured_device.h"
#include "tools/profile_check.h"
#include "tools/profile_run.h"
#include "tools/profile_support.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct RunOptions : MeasureFlags {
  std::string out;
  std::string name;  // empty: the device's
  std::string ncu;
  std::string kernels;
  std::vector<int> sizes{20, 40, 60, 80, 100};
  std::vector<std::uint32_t> batches{1, 2, 4, 8, 16, 32};
  double seconds_per_cell = 1.0;
  double longest_batch_ms = 2000;
  double control_period_s = 1;
  std::uint32_t control_periods = 60;
  bool replace = false;
  bool keep = false;  // as without --replace
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
  return {StatusCode::invalid,
          "--name \"" + name + "\": is not usable; write letters, digits, '.', '_', '-'"};
}

Result<ProfileRunOptions> make_run_options(const RunOptions& options) {
  ProfileRunOptions run;
  if (Status named = check_name(options.name); !named.ok()) return named;
  auto models = choose_models(options.models, options.only);
  if (!models.ok()) return models.status();
  auto proxy = find_program("gpulet-proxy", options.proxy, "--proxy");
  if (!proxy.ok()) return proxy.status();
  run.models = std::move(models).value();
  run.proxy = std::move(proxy).value();
  for (const int size : options.sizes) run.sizes.push_back(Share{size});
  sort_unique(run.sizes);
  run.batches = options.batches;
  sort_unique(run.batches);
  run.per_cell = from_seconds(options.seconds_per_cell);
  run.longest_batch = from_ms(options.longest_batch_ms);
  return run;
}

// Only a signal is a failure of the whole.
Status no_counters(const Status& why) {
  if (why.code() == StatusCode::cancelled) return why;
  std::cerr << "gpulet: no utilisation of L2 and memory: " << why.message() << '\n';
  return {};
}

// Of every batch that was measured, on the whole GPU. What this does not get, the models of
// interference do without.
Status add_counters(const RunOptions& options, const std::string& gpu, profile::Profile& profile) {
  const auto kernels = find_program("gpulet-kernels", options.kernels, "--kernels");
  if (!kernels.ok()) return no_counters(kernels.status());
  const auto program = CounterProgram::find({options.ncu, kernels.value()});
  Status failure = program.status();
  for (auto& [name, model] : profile.models) {
    std::set<std::uint32_t> batches;
    for (const auto& sample : model.latency.samples()) batches.insert(sample.batch);
    if (failure.ok()) std::cerr << "counters of " << name << '\n';
    for (auto batch = batches.begin(); failure.ok() && batch != batches.end(); ++batch) {
      const auto counters = program.value().measure(options.models, name, *batch, gpu);
      failure = counters.status();
      if (!counters.ok()) break;
      model.utilization.push_back({*batch, Share{100}, counters.value().l2, counters.value().dram});
    }
  }
  if (!failure.ok()) return no_counters(failure);
  profile.provenance["counters"] = "ncu, each kernel by its duration, whole GPU";
  return {};
}

std::filesystem::path place_of(const RunOptions& options, const std::string& name) {
  return std::filesystem::path(options.out) / name;
}

// The profile that the measurement adds to; nothing: it starts one.
Result<std::optional<profile::Profile>> stored_profile(const RunOptions& options,
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

// One of another machine or partitioning has other latencies.
void warn_of_mixture(const profile::Profile& stored, const profile::Provenance& now,
                     const std::filesystem::path& place) {
  for (const std::string key : {"machine", "partitioning"}) {
    const auto before = stored.provenance.find(key);
    const auto found = now.find(key);
    if (before == stored.provenance.end() || found == now.end() || before->second == found->second)
      continue;
    std::cerr << "gpulet: warning: " << place.string() << " was measured with " << key << " \""
              << before->second << "\", this is \"" << found->second
              << "\"; --replace starts over, and --name writes another profile\n";
  }
}

// What stays of a profile that was there.
Result<profile::Profile> add_to(std::optional<profile::Profile> stored, profile::Profile measured,
                                const profile::CellSet& asked) {
  if (!stored) return measured;
  profile::Profile all = profile::updated(std::move(*stored), std::move(measured), asked);
  all.provenance.erase("unsteady");  // earlier versions told doubts there
  if (!all.interference) return all;
  // Solo latencies have changed, and what the pairs say with them.
  const profile::FitOptions fit{.seed = all.interference->seed,
                                .train_fraction = all.interference->train_fraction};
  if (Status fitted = keep_fit(all, fit); !fitted.ok()) return fitted;
  return all;
}

// Returns the backup that was made.
Result<std::filesystem::path> write(const profile::Profile& profile, const RunOptions& options) {
  if (options.replace) return profile::replace_profile(profile, options.out);
  if (Status written = profile::write_profile(profile, options.out); !written.ok()) return written;
  return std::filesystem::path();
}

void warn_of_doubts(const profile::Profile& profile, const ProfileRun& run) {
  bool any = false;
  for (const auto& [name, cells] : run.asked) {
    const profile::ModelProfile* const model = profile.find(name);
    const std::string doubts = model == nullptr ? "" : doubts_of(*model);
    if (doubts.empty()) continue;
    any = true;
    std::cerr << "gpulet: warning: " << name << ": in doubt, by batch: " << doubts << '\n';
  }
  if (!any) return;
  std::cerr << "gpulet: warning: measure these cells again when nothing else uses the machine "
               "(--only, --sizes, --batches); plans take them as they are until then\n";
}

profile::Provenance provenance_of(const RunOptions& options, const MeasuredDevice& device,
                                  const ProfileRun& run) {
  profile::Provenance provenance = device.facts;
  provenance["source"] = "gpulet profile run";
  provenance["date"] = date_now();
  provenance["method"] = "sustained time per batch, back to back, " +
                         shortest(options.seconds_per_cell, 3) +
                         " s a cell and up to five times as long until the median is within " +
                         shortest(100 * device.steady, 1) + " %";
  provenance.insert(run.found.begin(), run.found.end());
  return provenance;
}

// With --controller, in place of all that is measured else.
int run_controllers(const RunOptions& options, const ProfileRunOptions& of,
                    const DeviceName& named) {
  if (named.is_gpu()) {
    return bad_input(
        {StatusCode::invalid,
         "--controller: cores of a CPU are controlled, not GPUs; write --device cpu:0"});
  }
  auto device = open_device(named, options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  const std::string name = options.name.empty() ? device.value().name : options.name;
  auto profile = measured_profile(std::filesystem::path(options.out) / name, of.models);
  if (!profile.ok()) return bad_input(profile.status());
  const ControllerRunOptions control{.models = of.models,
                                     .proxy = of.proxy,
                                     .cores = static_cast<double>(named.cores.size()),
                                     .period = from_seconds(options.control_period_s),
                                     .periods = options.control_periods};
  const auto found = identify_controllers(control, device.value(), std::cerr);
  if (!found.ok()) return measuring_failed(found.status());
  add_plants(found.value(), profile.value());
  profile.value().provenance["controller"] = date_now() + ", " + device.value().facts["machine"] +
                                             ", " + device.value().driver->mechanism();
  if (Status written = profile::write_profile(profile.value(), options.out); !written.ok()) {
    return run_failed(written);
  }
  tell_identified(found.value(), options.json);
  int exit_code = kSucceeded;
  for (const Status& failure : found.value().failures) exit_code = run_failed(failure);
  return exit_code;
}

int run(const RunOptions& options) {
  const auto named = parse_device(options.device);
  if (!named.ok()) return bad_input(named.status());
  const auto run_options = make_run_options(options);
  if (!run_options.ok()) return bad_input(run_options.status());
  if (options.controller) return run_controllers(options, run_options.value(), named.value());
  auto device = open_device(named.value(), options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  profile::Profile profile;
  profile.name = options.name.empty() ? device.value().name : options.name;
  const auto before = stored_profile(options, profile.name);
  if (!before.ok()) return bad_input(before.status());
  if (before.value())
    warn_of_mixture(*before.value(), device.value().facts, place_of(options, profile.name));
  auto measured = measure(run_options.value(), device.value(), std::cerr);
  device.value().driver.reset();  // with its daemon
  if (!measured.ok()) return measuring_failed(measured.status());
  profile.provenance = provenance_of(options, device.value(), measured.value());
  profile.models = std::move(measured.value().models);
  int exit_code = kSucceeded;
  for (const Status& failure : measured.value().failures) exit_code = run_failed(failure);
  if (profile.models.empty()) return kRunFailed;
  if (named.value().is_gpu() && !options.no_counters) {
    Status counted = add_counters(options, device.value().gpu, profile);
    if (!counted.ok()) return run_failed(counted);
  }
  // As it is now: somebody may have written to it meanwhile.
  auto stored = stored_profile(options, profile.name);
  if (!stored.ok()) return run_failed(stored.status());
  const auto all = add_to(std::move(stored).value(), std::move(profile), measured.value().asked);
  if (!all.ok()) return run_failed(all.status());
  const Result<std::filesystem::path> backup = write(all.value(), options);
  if (!backup.ok()) return run_failed(backup.status());
  tell_written(all.value(), options.out, measured.value().failures, options.json, backup.value());
  warn_of_doubts(all.value(), measured.value());
  return exit_code;
}

}  // namespace

void add_profile_run(CLI::App& profile, Run& chosen) {
  CLI::App* const command = profile.add_subcommand(
      "run", "measure models on a device of this machine, in gpulets of several sizes");
  const auto options = std::make_shared<RunOptions>();
  add_measure_flags(*command, *options);
  command->add_option("--out", options->out, "the folder of profiles to write it to")->required();
  command->add_option("--name", options->name,
                      "the profile's name: the device type (default: cpu-core, or after the GPU)");
  command->add_option("--sizes", options->sizes, "percentages of the device")
      ->delimiter(',')
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--batches", options->batches, "up to each model's max_batch")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  CLI::Option* const replace = command->add_flag(
      "--replace", options->replace,
      "start the profile anew, and keep the one that is there as a backup (default: add to it)");
  command
      ->add_flag("--keep", options->keep,
                 "the default: keep what the profile says about all that is not measured now")
      ->excludes(replace);
  command->add_option("--seconds-per-cell", options->seconds_per_cell, "measured time per cell")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--longest-batch-ms", options->longest_batch_ms,
                   "let a size's batches grow until one takes longer")
      ->check(CLI::Range(0.001, 60000.0))
      ->capture_default_str();
  command->add_flag("--controller", options->controller,
                    "find out how response times follow CPU cores that change, for controllers of "
                    "cores, and add it to a profile that was measured before");
  command
      ->add_option("--control-period-s", options->control_period_s,
                   "with --controller: how often cores change")
      ->check(CLI::Range(0.05, 60.0))
      ->capture_default_str();
  command->add_option("--control-periods", options->control_periods, "with --controller: of a run")
      ->check(CLI::Range(10, 3600))
      ->capture_default_str();
  command->add_option("--ncu", options->ncu,
                      "Nsight Compute's program, which reads a GPU's counters (default: in PATH)");
  command->add_option(
      "--kernels", options->kernels,
      "the program whose kernels it looks at (default: gpulet-kernels beside this)");
  command->add_flag("--no-counters", options->no_counters,
                    "do not measure how busy a GPU's L2 cache and memory are");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace gpulet::tools
