// Names of the files of a stored profile (profiles/FORMAT.md).
#pragma once

#include <cstdint>

namespace gpulet::profile {

inline constexpr std::int64_t kFormat = 1;
inline constexpr const char* kMetadataFile = "profile.json";
inline constexpr const char* kLatencyFile = "latency.csv";
inline constexpr const char* kUtilizationFile = "utilization.csv";
inline constexpr const char* kInterferenceFile = "interference.csv";
inline constexpr const char* kFitFile = "interference.json";

}  // namespace gpulet::profile
