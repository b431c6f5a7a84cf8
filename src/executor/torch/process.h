// The settings of the process in which LibTorch runs: threads, execution mode, heap. Functions
// throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>

namespace gpulet::executor {

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
