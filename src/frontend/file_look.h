// FileLook: what tells two contents of a file apart without reading them. Blocking file I/O; any
// thread.
#pragma once

#include <filesystem>
#include <optional>

#include "gpulet/frontend/model_file.h"

namespace gpulet::frontend {

// Nothing where the file cannot be looked at.
[[nodiscard]] std::optional<FileLook> look_at(const std::filesystem::path& file);
// Of an open file.
[[nodiscard]] std::optional<FileLook> look_at(int descriptor);

}  // namespace gpulet::frontend
