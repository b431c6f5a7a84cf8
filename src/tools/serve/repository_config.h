// One config.pbtxt of a model repository: which of its fields are honoured, which refuse the model,
// and which only tune how Triton runs it. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "tools/serve/model_repository.h"

namespace gpulet::tools {

inline constexpr const char* kRepositoryConfig = "config.pbtxt";
inline constexpr std::uintmax_t kLargestRepositoryConfig = 1U << 20U;  // bytes

// What chooses the version to serve.
struct VersionPolicy {
  std::vector<std::uint64_t> versions{};  // empty: the latest
  std::uint32_t latest = 1;               // how many of the latest; 0: all
};

struct RepositoryConfig {
  // All of the entry but its file, its format and its version.
  RepositoryEntry entry;
  VersionPolicy policy;
  std::string file_name;                       // of the model's file; empty: the default one
  std::optional<config::FileFormat> format{};  // as the platform or the backend says
};

// Fails with invalid, naming the field and the fix, or with not_found.
[[nodiscard]] Result<RepositoryConfig> read_repository_config(const std::filesystem::path& file);

// The format that the file name has in Triton's repositories, such as "a TensorRT engine"; empty:
// it is none of those that are not served.
[[nodiscard]] std::string foreign_model(const std::string& file_name);

}  // namespace gpulet::tools
