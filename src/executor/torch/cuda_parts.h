// What LibTorch does on NVIDIA's GPUs only, and what takes CUDA's headers. A build whose LibTorch
// has no CUDA has cuda_absent.cc in its place. Functions throw what LibTorch throws, and
// std::runtime_error where there is no CUDA.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "gpulet/partition/found_device.h"

namespace gpulet::executor {

[[nodiscard]] bool built_with_cuda();

// From now on threads that wait for that GPU sleep.
void wait_asleep(c10::DeviceIndex device);

// A stream that somebody else made, and keeps for as long as this is used.
[[nodiscard]] c10::Stream stream_from_outside(void* stream, c10::DeviceIndex device);

// As CUDA tells it after a failure; waits for what is under way.
[[nodiscard]] partition::DeviceHealth health_of(c10::DeviceIndex device);

// Work on the current stream, taken down once and done again by one launch. It belongs to the SMs
// of the stream that it was taken down on.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void replay() = 0;  // on the current stream
};

// Where captures of one lane keep their tensors, one after another in the same memory: replays of
// them may not overlap.
struct CapturePool {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
[[nodiscard]] CapturePool make_capture_pool();

// Whether one thread may capture while others use the device.
[[nodiscard]] bool captures_beside_others();

// Takes down what `work` does, without doing it. Throws also what `work` throws; the stream is as
// before then.
[[nodiscard]] std::unique_ptr<CapturedWork> capture(const CapturePool& pool,
                                                    const std::function<void()>& work);

}  // namespace gpulet::executor
