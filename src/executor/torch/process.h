// What LibTorch does to the process it runs in: threads, execution mode, heap. Private to the room.
// Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>

namespace gpulet::executor {

// What prepare_torch() does.
void prepare_process();

// Threads as the environment has them, and modes. Returns the threads inside one operation. Called
// by every executor.
int set_process_up(const c10::Device& device);

// The most bytes that tensors on the CPU held at once while `work` ran, above what they held
// before.
[[nodiscard]] std::size_t peak_tensor_bytes(const std::function<void()>& work);

// Gives back what loading left behind where that is much, and makes sure that the next `bytes` of
// tensors find memory that the kernel has mapped already.
void settle_heap(std::size_t bytes);

}  // namespace gpulet::executor
