// The files of a stored profile (profiles/FORMAT.md): values to text and back. Reading is blocking
// file I/O and fails with not_found or invalid, naming the file, the place and the fix. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/profile/profile.h"
#include "gpulet/profile/store.h"

namespace gpulet::profile {
inline constexpr std::int64_t kFormat = 1;
inline constexpr const char* kMetadataFile = "profile.json";
inline constexpr const char* kLatencyFile = "latency.csv";
inline constexpr const char* kUtilizationFile = "utilization.csv";
inline constexpr const char* kInterferenceFile = "interference.csv";
inline constexpr const char* kFitFile = "interference.json";

using LatencyRows = std::map<std::string, std::vector<LatencySample>, std::less<>>;
using UtilizationRows = std::map<std::string, std::vector<Utilization>, std::less<>>;

// Two lines with different values for one cell are an error. Partitions may name instances of
// `mig`.
[[nodiscard]] Result<LatencyRows> read_latency(const std::filesystem::path& file,
                                               const partition::MigGeometry& mig);
[[nodiscard]] Result<UtilizationRows> read_utilization(const std::filesystem::path& file,
                                                       const partition::MigGeometry& mig);
[[nodiscard]] Result<std::vector<PairSample>> read_interference(const std::filesystem::path& file,
                                                                const partition::MigGeometry& mig);

// The columns p99_ms, cv and doubt of the latencies are written where any sample has such a value,
// and the column processes where one has more than one.
[[nodiscard]] std::string latency_text(const Profile& profile);
[[nodiscard]] std::string utilization_text(const Profile& profile);
[[nodiscard]] std::string interference_text(const Profile& profile);

// A fit that was read predicts finite numbers.
[[nodiscard]] Result<InterferenceFit> read_fit(const std::filesystem::path& file);

[[nodiscard]] std::string fit_text(const InterferenceFit& fit);

// Reads the tables into a profile without name and provenance. Models with utilisation but no
// latency cannot be served; they are left out and added to `left_out`.
[[nodiscard]] Result<Profile> assemble(const CsvSources& sources,
                                       std::vector<std::string>& left_out);

}  // namespace gpulet::profile
