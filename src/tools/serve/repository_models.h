// The models of a repository as they are served: what config.pbtxt says, and the model's file says
// of the rest. Blocking file I/O; any thread.
#pragma once

#include <cstdint>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "tools/serve/model_repository.h"
#include "tools/serve/model_tensors.h"

namespace gpulet::tools {

// `max_batch`: of a model whose batch nothing limits. Fails with invalid where config.pbtxt and the
// file contradict each other, naming both, and where the model cannot be served.
[[nodiscard]] Result<config::ModelConfig> describe_entry(const RepositoryEntry& entry,
                                                         std::uint32_t max_batch,
                                                         const TensorOptions& options);

}  // namespace gpulet::tools
