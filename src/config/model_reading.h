// How models.json's models and tensors are read; its applications use the same tensors. Errors go
// to the cursor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/config/model_config.h"

namespace gpulet::config {

[[nodiscard]] std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, std::size_t least);

// The list under "models" of the document.
[[nodiscard]] std::vector<ModelConfig> read_models(const JsonCursor& root,
                                                   const std::filesystem::path& file);

}  // namespace gpulet::config
