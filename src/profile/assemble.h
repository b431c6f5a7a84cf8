// Tables to a Profile: what an import and reading a stored profile have in common. Any thread.
#pragma once

#include <filesystem>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/profile/profile.h"
#include "gpulet/profile/store.h"

namespace gpulet::profile {

// Reads the tables and puts them together, without name and provenance. Models that have
// utilization rows but no latency cannot be served; they are left out and added to `left_out`.
[[nodiscard]] Result<Profile> assemble(const CsvSources& sources,
                                       std::vector<std::string>& left_out);

}  // namespace gpulet::profile
