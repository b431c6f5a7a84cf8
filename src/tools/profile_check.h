// How far the models of interference are from pairs that they did not see: `gpulet profile check`,
// and what import and run tell of the fit that they keep. One thread.
#pragma once

#include <string>

#include "gpulet/profile/fit.h"
#include "gpulet/profile/profile.h"
#include "tools/command.h"

namespace gpulet::tools {

// `check` below the command `profile`.
void add_profile_check(CLI::App& profile, Run& chosen);

// Declares --seed and --train-fraction. `options` must outlive the command.
void add_fit_options(CLI::App& command, profile::FitOptions& options);

// Fits the models to the profile's pairs and keeps the fit in it; nothing where it has no pair.
[[nodiscard]] Status keep_fit(profile::Profile& profile, const profile::FitOptions& options);

// One line: the errors at the 90th percentile, or why there are none. Empty without a fit.
[[nodiscard]] std::string fit_line(const profile::Profile& profile);

}  // namespace gpulet::tools
