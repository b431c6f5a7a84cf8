// What the commands below `gpulet profile` share. One thread.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "tools/cli/command.h"

namespace gpulet::tools {

void add_profile_run(CLI::App& profile, Action& chosen);
void add_profile_interference(CLI::App& profile, Action& chosen);

// What is measured, and on which device.
struct MeasureOptions {
  std::string device;
  std::string partitioning = "mps";
  std::string models;
  std::string proxy;
  std::vector<std::string> only;
  bool json = false;
};
void add_measure_options(CLI::App& command, MeasureOptions& options);

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
