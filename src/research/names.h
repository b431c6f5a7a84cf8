// The names of this library's policies, which a program without it refuses. Any thread.
#pragma once

#include <string_view>

namespace gpulet::research {

inline constexpr std::string_view kElasticBatchSearch = "elastic-batch-search";
inline constexpr std::string_view kIgniter = "igniter";
inline constexpr std::string_view kInss = "inss";
inline constexpr std::string_view kMigMix = "mig-mix";
inline constexpr std::string_view kMigSmall = "mig-7x1";
inline constexpr std::string_view kMigWhole = "mig-whole";

}  // namespace gpulet::research
