// Small text files, and those whose text nobody else is to know. Private to net. Blocking file I/O.
#pragma once

#include <filesystem>
#include <string>

#include "gpulet/core/status.h"

namespace gpulet::net {

// Fails with not_found (no such file, cannot be read) or invalid (larger than 1 MiB).
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);
// Besides, with invalid where others than its owner and group may read it, or its group write it.
[[nodiscard]] Result<std::string> read_secret(const std::filesystem::path& file);

}  // namespace gpulet::net
