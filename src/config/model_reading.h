// How models.json's models and tensors are read; its applications use the same tensors. Errors go
// to the cursor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/queue_rules.h"

namespace gpulet::config {

[[nodiscard]] std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, std::size_t least);

// The list under "models" of the document.
[[nodiscard]] std::vector<ModelConfig> read_models(const JsonCursor& root,
                                                   const std::filesystem::path& file);

// A model's "queue"; nothing where it has none, or one that says nothing.
[[nodiscard]] std::optional<QueueRules> read_queue(const JsonCursor& model);

}  // namespace gpulet::config
