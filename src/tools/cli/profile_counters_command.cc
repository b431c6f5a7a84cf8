// gpulet profile counters: the utilisation of a GPU's L2 cache and memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <set>
#include <utility>

#include "gpulet/profile/store.h"
#include "tools/cli/profile_commands.h"
#include "tools/measure/counters.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Share kWholeDevice{100};

// Where counters come from: ncu, or the profile of a simulated device.
class CounterSource {
 public:
  [[nodiscard]] static Result<CounterSource> make(const CounterOptions& options,
                                                  const MeasuredDevice& device) {
    CounterSource source(options, device);
    if (device.simulated != nullptr) return source;
    GPULET_TRY(const auto kernels, find_program("gpulet-kernels", options.kernels, "--kernels"));
    GPULET_TRY(auto program, CounterProgram::find({options.ncu, kernels}));
    source.program_ = std::move(program);
    return source;
  }

  [[nodiscard]] Result<Counters> measure(const std::string& model, std::uint32_t batch) const {
    if (program_) return program_->measure(options_.models, model, batch, device_.gpu);
    if (const auto* const known = device_.simulated->profile().find(model)) {
      for (const profile::Utilization& one : known->utilization) {
        if (one.batch == batch && one.share == kWholeDevice)
          return Counters{one.l2, one.dram, known->kernels.value_or(0)};
      }
    }
    return Status(StatusCode::not_found,
                  fmt::format("the simulated device has no utilisation by {} x{}", model, batch));
  }

  [[nodiscard]] std::string method() const {
    return program_ ? "ncu, each kernel by its duration, whole GPU, scaled to sizes by latency"
                    : "simulated, scaled to sizes by latency";
  }

 private:
  CounterSource(const CounterOptions& options, const MeasuredDevice& device)
      : options_(options), device_(device) {}

  const CounterOptions& options_;
  const MeasuredDevice& device_;
  std::optional<CounterProgram> program_;
};

struct CounterTask {
  std::uint32_t batch = 0;
  std::string model;
};

// The batches without utilisation, the larger ones first. A batch size is measured for all models
// before the next smaller one, so that a run that stops early leaves complete batch sizes.
std::vector<CounterTask> tasks_of(const CounterOptions& options, const profile::Profile& profile) {
  std::vector<CounterTask> tasks;
  for (const auto& [name, model] : profile.models) {
    std::set<std::uint32_t> batches;
    for (const auto& sample : model.latency.samples()) batches.insert(sample.batch);
    for (const auto& known : model.utilization) {
      if (known.share == kWholeDevice) batches.erase(known.batch);
    }
    for (const std::uint32_t batch : batches) {
      const auto& chosen = options.batches;
      if (chosen.empty() || std::find(chosen.begin(), chosen.end(), batch) != chosen.end())
        tasks.push_back({batch, name});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const CounterTask& a, const CounterTask& b) { return a.batch > b.batch; });
  return tasks;
}

struct CountersFlags {
  std::string device;
  std::string profile;
  CounterOptions counters;
  double minutes = 10;
};

Status write_back(profile::Profile& profile, const std::filesystem::path& folder) {
  if (profile.interference) {
    const profile::FitOptions fit{.seed = profile.interference->seed,
                                  .train_fraction = profile.interference->train_fraction};
    if (Status fitted = keep_fit(profile, fit); !fitted.ok()) return fitted;
  }
  return profile::write_profile(profile, folder);
}

int run_counters(const CountersFlags& options) {
  const auto named = parse_measured_device(options.device);
  if (!named.ok()) return bad_input(named.status());
  const auto place = std::filesystem::absolute(options.profile).lexically_normal();
  auto read = profile::read_profile(place);
  if (!read.ok()) return bad_input(read.status());
  profile::Profile& profile = read.value();
  const auto device = find_device(named.value());
  if (!device.ok()) return measuring_failed(device.status());
  if (!has_counters(device.value())) {
    return bad_input(
        {StatusCode::invalid, "--device " + options.device + ": only GPUs have counters"});
  }
  // The folder that contains the profile's, which write_profile() takes. A path that ends with a
  // slash has no file name.
  const auto folder =
      place.has_filename() ? place.parent_path() : place.parent_path().parent_path();
  CounterOptions counters = options.counters;
  counters.budget = from_seconds(60 * options.minutes);
  Status stored;
  const Status measured = measure_counters(counters, device.value(), profile, std::cerr,
                                           [&] { stored = write_back(profile, folder); });
  if (!stored.ok()) return run_failed(stored);
  return measured.ok() ? kSucceeded : run_failed(measured);
}

}  // namespace

bool has_counters(const MeasuredDevice& device) {
  return !device.gpu.empty() || device.simulated != nullptr;
}

Status measure_counters(const CounterOptions& options, const MeasuredDevice& device,
                        profile::Profile& profile, std::ostream& progress,
                        const std::function<void()>& after_each) {
  const std::vector<CounterTask> tasks = tasks_of(options, profile);
  if (tasks.empty()) return {};
  GPULET_TRY(const auto source, CounterSource::make(options, device));
  const auto deadline = Clock::now() + options.budget;
  std::size_t done = 0;
  for (const CounterTask& task : tasks) {
    if (options.budget > Duration::zero() && Clock::now() >= deadline) {
      return {StatusCode::timeout,
              fmt::format("the time sufficed for {} of {} batches; run it again for the others",
                          done, tasks.size())};
    }
    progress << "counters of " << task.model << " x" << task.batch << '\n' << std::flush;
    GPULET_TRY(const auto counters, source.measure(task.model, task.batch));
    profile::ModelProfile& model = profile.models.find(task.model)->second;
    const profile::Utilization whole{task.batch, kWholeDevice, counters.l2, counters.dram};
    for (const profile::Utilization& one : scaled_to_sizes(whole, model.latency))
      model.utilization.push_back(one);
    // The number of kernels is nearly the same for all batches: the first one counts.
    if (!model.kernels && counters.kernels > 0) model.kernels = counters.kernels;
    profile.provenance["counters"] = source.method();
    ++done;
    if (after_each) after_each();
  }
  return {};
}

void add_counter_programs(CLI::App& command, std::string& ncu, std::string& kernels) {
  command.add_option("--ncu", ncu,
                     "path of Nsight Compute, which reads a GPU's counters (default: ncu in PATH)");
  command.add_option(
      "--kernels", kernels,
      "path of gpulet-kernels, which runs the kernels (default: beside this program)");
}

void add_profile_counters(CLI::App& profile, Action& chosen) {
  const auto [command, options] =
      add_command(profile, chosen, "counters",
                  "measure the utilisation of a GPU's L2 cache and memory by the models of a "
                  "profile; goes on where an earlier run stopped",
                  run_counters);
  command
      ->add_option("--device", options->device,
                   "cuda:NUMBER or cuda:UUID, or simulated:FOLDER with the folder of a profile")
      ->required();
  command->add_option("--models", options->counters.models, "the models file")->required();
  command
      ->add_option("--profile", options->profile,
                   "folder of the device's profile, which receives the utilisation")
      ->required();
  command
      ->add_option("--batches", options->counters.batches,
                   "batches of the profile to measure (default: all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  add_checked(*command, "--minutes", options->minutes,
              "minutes after which no further batch is measured", CLI::Range(0.001, 1e5));
  add_counter_programs(*command, options->counters.ncu, options->counters.kernels);
}

}  // namespace gpulet::tools
