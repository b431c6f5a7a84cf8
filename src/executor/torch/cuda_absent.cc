#include <stdexcept>

#include "executor/torch/cuda_parts.h"

namespace gpulet::executor {
namespace {

[[noreturn]] void fail() { throw std::runtime_error("this LibTorch was built without CUDA"); }

}  // namespace

bool built_with_cuda() { return false; }
void wait_asleep(c10::DeviceIndex) { fail(); }
c10::Stream stream_from_outside(void*, c10::DeviceIndex) { fail(); }
void release_unused_memory() { fail(); }
partition::DeviceHealth health_of(c10::DeviceIndex) { return partition::DeviceHealth::works; }
CapturePool make_capture_pool() { return {}; }
bool captures_beside_others() { return false; }
std::unique_ptr<CapturedWork> capture(const CapturePool&, const std::function<void()>&) { fail(); }

}  // namespace gpulet::executor
