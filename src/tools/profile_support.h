// What the commands below `profile` have in common.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/status.h"
#include "gpulet/profile/profile.h"
#include "tools/command.h"

namespace gpulet::tools {

// `run` and `interference` below the command `profile`; `check` is profile_check.h.
void add_profile_run(CLI::App& profile, Run& chosen);
void add_profile_interference(CLI::App& profile, Run& chosen);

// What is measured, and on what.
struct MeasureFlags {
  std::string device;
  std::string partitioning = "mps";
  std::string models;
  std::string proxy;
  std::vector<std::string> only;
  bool json = false;
};
void add_measure_flags(CLI::App& command, MeasureFlags& flags);

// The exit code of a measurement that failed: bad input where that is why.
[[nodiscard]] int measuring_failed(const Status& status);

// Those named by `only`, or all, in the order of the file; their files must be there.
[[nodiscard]] Result<std::vector<config::ModelConfig>> choose_models(
    const std::string& models_file, const std::vector<std::string>& only);

// The program of that name beside this one, or the one that the option named.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::string& name,
                                                         const std::string& given,
                                                         const std::string& option);

// Coordinated universal time: "2026-11-22T03:10:00Z".
[[nodiscard]] std::string date_now();

// "8 at 40 % (busy), 1 at 20 % (unsteady)": the model's cells that are in doubt; empty: none are.
[[nodiscard]] std::string doubts_of(const profile::ModelProfile& model);
[[nodiscard]] nlohmann::ordered_json doubts_json(const profile::Profile& profile);

// What was written, and where: a document where `json`. `backup`: where the profile before it is
// kept; empty: it is not.
void tell_written(const profile::Profile& profile, const std::filesystem::path& out,
                  const std::vector<Status>& failures, bool json,
                  const std::filesystem::path& backup = {});

}  // namespace gpulet::tools
