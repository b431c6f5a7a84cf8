// Control of model instances on GPUs and CPU cores (docs/control.md): the object "control" of
// frontend.json, and the whole file of `gpulet simulate --control F`. docs/configuration.md has the
// keys. Errors as in model_config.h. Values; any thread. load_control() does blocking file I/O.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/control/node_control.h"

namespace gpulet::config {

[[nodiscard]] Result<control::Options> load_control(const std::filesystem::path& file);

// Parses text in memory. `file` names the text in errors. With `errors`, stores all errors there
// and returns what could be read.
[[nodiscard]] Result<control::Options> parse_control(std::string_view text,
                                                     const std::filesystem::path& file,
                                                     std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
