// The executor of one gpulet with LibTorch, either alone in its process or one of several that
// share a device and its loaded models; and that device. No LibTorch header is needed to use it.
#pragma once

#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Implements make_torch_executor(). Does not access the device before found_share() or load().
[[nodiscard]] std::unique_ptr<Executor> make_gpulet_executor(const std::string& device);

// Implements make_torch_shared_device().
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_shared_device(const std::string& device);

}  // namespace gpulet::executor
