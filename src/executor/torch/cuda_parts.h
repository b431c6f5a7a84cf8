// The functions that need CUDA's headers. A build whose LibTorch has no CUDA compiles
// cuda_absent.cc in place of cuda_parts.cc. Functions throw what LibTorch throws, and
// std::runtime_error if there is no CUDA.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "gpulet/partition/traits.h"

namespace gpulet::executor {

[[nodiscard]] bool built_with_cuda();

// From now on, threads that wait for this GPU sleep instead of spinning.
void wait_asleep(c10::DeviceIndex device);

// Wraps a stream that the caller owns and must keep while the result is used.
[[nodiscard]] c10::Stream stream_from_outside(void* stream, c10::DeviceIndex device);

// Returns memory to the device that was used before and is not now, such as that of graphs which
// are gone. Waits for the work of all streams.
void release_unused_memory();

// The state of the device after a failure. Waits for the work in flight.
[[nodiscard]] partition::DeviceHealth health_of(c10::DeviceIndex device);

// A CUDA graph: work that was captured once and is replayed with one launch. It runs on the SMs of
// the stream on which it was captured.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void replay() = 0;  // on the current stream
};

// The memory pool of one executor's captures. They reuse the same memory, so their replays must not
// overlap.
struct CapturePool {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
[[nodiscard]] CapturePool make_capture_pool();

// Whether one thread may capture while others use the device.
[[nodiscard]] bool captures_beside_others();

// Captures the work that `work` submits to the current stream, without running it. Also throws what
// `work` throws; the stream is then as before.
[[nodiscard]] std::unique_ptr<CapturedWork> capture(const CapturePool& pool,
                                                    const std::function<void()>& work);

}  // namespace gpulet::executor
