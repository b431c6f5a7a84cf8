// Whole files, as trainings and policies are kept. Blocking file I/O; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet::learn {

// The file is the old one or all of the new one, never a part: it is written beside its place and
// renamed. Fails (internal), naming it.
[[nodiscard]] Status write_file(const std::filesystem::path& file, std::string_view content);
// Fails (not_found), naming it.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& file);

}  // namespace gpulet::learn
