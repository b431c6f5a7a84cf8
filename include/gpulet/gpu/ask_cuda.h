// What CUDA tells of this machine's GPUs, for a process that must not use CUDA itself.
//
// Initialising CUDA takes a process into the machine's MPS daemon where there is one, and holds the
// GPUs open until the process ends, also against their removal; a GPU that fails breaks it for
// good. So a child asks, which makes no context, and ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {

struct CudaAnswer {
  Result<std::uint32_t> sms;  // of the whole GPU
  Result<SmGroups> groups;    // fails as CudaDriver::sm_groups
};

struct CudaQuestion {
  std::vector<std::string> uuids;
  std::filesystem::path library = CudaDriver::kLibrary;
  Duration patience = std::chrono::seconds(30);  // waking a GPU takes seconds
};

// One answer per UUID. Forks: to be called while this process has no other thread that may hold a
// lock of the dynamic linker. Blocks.
[[nodiscard]] std::vector<CudaAnswer> ask_cuda(const CudaQuestion& question);

}  // namespace gpulet::gpu
