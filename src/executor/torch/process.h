// The parts behind torch_executor.h: the executors, and the settings of the process in which
// LibTorch runs (threads, execution mode, heap). Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Implements make_torch_executor(). Does not access the device before found_share() or load().
[[nodiscard]] std::unique_ptr<Executor> make_gpulet_executor(const std::string& device);

// Implements make_torch_shared_device().
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_shared_device(const std::string& device);

// Implements prepare_torch().
void prepare_process();

// Sets the number of threads from the environment, and the execution modes. Returns the number of
// threads inside one operation. Every executor calls it.
int configure_process(const c10::Device& device);

// The peak size of the CPU tensors that were allocated while `work` ran, in bytes.
[[nodiscard]] std::size_t peak_tensor_bytes(const std::function<void()>& work);

// Returns free heap memory that loading left behind to the kernel if it is much, and makes the
// kernel map memory for the next `bytes` of tensors.
void settle_heap(std::size_t bytes);

}  // namespace gpulet::executor
