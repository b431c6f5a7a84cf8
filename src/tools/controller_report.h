// What `gpulet profile run --controller` keeps and tells of what it found. One thread.
#pragma once

#include <filesystem>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/status.h"
#include "gpulet/profile/profile.h"
#include "tools/controller_run.h"

namespace gpulet::tools {

// The profile in that folder. Fails where there is none, or where it lacks one of the models: a
// plant belongs to latencies.
[[nodiscard]] Result<profile::Profile> measured_profile(
    const std::filesystem::path& place, const std::vector<config::ModelConfig>& models);

void add_plants(const ControllerRun& run, profile::Profile& profile);

// A table, or a document where `json`: the plants, what of the changes they explain, the gains for
// them and the margins of these, a period late as cores are.
void tell_identified(const ControllerRun& run, bool json);

}  // namespace gpulet::tools
