// What the commands below `gpulet profile` share. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "tools/cli/command.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

void add_profile_run(CLI::App& profile, Action& chosen);
void add_profile_interference(CLI::App& profile, Action& chosen);
void add_profile_counters(CLI::App& profile, Action& chosen);

// What is measured, and on which device.
struct MeasureOptions {
  std::string device;
  std::string partitioning = "mps";
  std::string models;
  std::string proxy;
  bool native_models = false;
  std::vector<std::string> only;
  bool json = false;
};
void add_measure_options(CLI::App& command, MeasureOptions& options);

// The programs of find_proxies(), with the rights that the options give them.
[[nodiscard]] Result<ProxyPrograms> choose_proxies(const MeasureOptions& options);

struct CounterOptions {
  std::string models;
  std::string ncu;                       // empty: in PATH
  std::string kernels;                   // empty: beside this program
  std::vector<std::uint32_t> batches{};  // empty: all that the profile has
  Duration budget{};                     // after which no further batch begins; zero: no limit
};

// A GPU, or a simulated device, whose counters are those of its profile.
[[nodiscard]] bool has_counters(const MeasuredDevice& device);

// Measures the utilisation of L2 and memory by each model of the profile at each batch that has
// none yet, the larger batches first. A batch is measured on the whole device, and scaled to the
// sizes of the profile. Calls `after_each` after each batch; it may be empty. Fails with cancelled
// after a signal, with timeout if the budget did not suffice, or if ncu cannot measure.
[[nodiscard]] Status measure_counters(const CounterOptions& options, const MeasuredDevice& device,
                                      profile::Profile& profile, std::ostream& progress,
                                      const std::function<void()>& after_each);
// Declares --ncu and --kernels. The arguments must outlive the command.
void add_counter_programs(CLI::App& command, std::string& ncu, std::string& kernels);

// Returns the exit code of a failed measurement: kBadInput for invalid, otherwise kRunFailed.
[[nodiscard]] int measuring_failed(const Status& status);

// Declares --seed and --train-fraction. `options` must outlive the command.
void add_fit_options(CLI::App& command, profile::FitOptions& options);

// Fits the models of interference to the profile's pairs, if any, and stores the fit in it.
[[nodiscard]] Status keep_fit(profile::Profile& profile, const profile::FitOptions& options);

// "8 at 40 % (busy), 1 at 20 % (unsteady)": the model's cells in doubt; empty if there are none.
[[nodiscard]] std::string doubts_text(const profile::ModelProfile& model);

// Prints what was written and where. `backup`: of the previous profile; empty: none.
void print_written(const profile::Profile& profile, const std::filesystem::path& out,
                   const std::vector<Status>& failures, bool json,
                   const std::filesystem::path& backup = {});

}  // namespace gpulet::tools
