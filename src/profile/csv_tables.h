// The three CSV tables of a profile: rows to values and back. Formats: profiles/FORMAT.md. Any
// thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

using LatencyRows = std::map<std::string, std::vector<LatencySample>, std::less<>>;
using UtilizationRows = std::map<std::string, std::vector<Utilization>, std::less<>>;

// Blocking file I/O. Fail with not_found or invalid, naming file, line and mend; also where one
// cell stands in two lines with different values. `mig`: whose instances partitions may name.
[[nodiscard]] Result<LatencyRows> read_latency(const std::filesystem::path& file,
                                               const partition::MigGeometry& mig);
[[nodiscard]] Result<UtilizationRows> read_utilization(const std::filesystem::path& file,
                                                       const partition::MigGeometry& mig);
[[nodiscard]] Result<std::vector<PairSample>> read_interference(const std::filesystem::path& file,
                                                                const partition::MigGeometry& mig);

// Text of the tables. The columns p99_ms and doubt of the latencies appear where any sample has
// one.
[[nodiscard]] std::string latency_text(const Profile& profile);
[[nodiscard]] std::string utilization_text(const Profile& profile);
[[nodiscard]] std::string interference_text(const Profile& profile);

}  // namespace gpulet::profile
