// A SharedDevice that runs TorchScript models with LibTorch: what lanes load of the same file, with
// the same tensors and numerics, is in memory once.
//
// On a GPU each lane runs on a green stream of its own (gpu/green_lanes.h), and on the CPU as if it
// were alone. What a lane loads that another one holds is there at once; on a GPU the lane's own
// libraries and replays are set up first, in milliseconds. Threads and modes of the process as with
// TorchExecutor. No LibTorch header is needed to use it.
#pragma once

#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/executor/shared_device.h"

namespace gpulet::executor {

// `device` as LibTorch writes it. Fails with invalid (no such device name) or unavailable (this
// process cannot use or divide it).
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(
    const std::string& device);

}  // namespace gpulet::executor
