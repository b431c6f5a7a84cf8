#include "executor/torch/cuda_parts.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <type_traits>

namespace gpulet::executor {
namespace {

using MempoolId = std::decay_t<decltype(at::cuda::graph_pool_handle())>;

// LibTorch 1.13 captures in global mode only, in which calls of other threads to the device fail or
// break the capture.
template <typename Graph>
constexpr bool kHasCaptureModes = requires(Graph& graph, MempoolId pool) {
  graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
};

template <typename Graph>
void begin_capture(Graph& graph, const MempoolId& pool) {
  if constexpr (kHasCaptureModes<Graph>) {
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  } else {
    graph.capture_begin(pool);
  }
}

class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(const MempoolId& pool, const std::function<void()>& work) {
    begin_capture(graph_, pool);
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // Ends the capture and clears its error.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      (void)cudaGetLastError();
    }
  }

  at::cuda::CUDAGraph graph_;
};

bool is_transient(cudaError_t error) {
  return error == cudaErrorMpsConnectionFailed || error == cudaErrorMpsRpcFailure ||
         error == cudaErrorMpsServerNotReady;
}

}  // namespace

bool built_with_cuda() { return true; }

void wait_asleep(c10::DeviceIndex device) {
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
}

c10::Stream stream_from_outside(void* stream, c10::DeviceIndex device) {
  return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), device).unwrap();
}

void release_unused_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

partition::DeviceHealth health_of(c10::DeviceIndex device) {
  cudaError_t error = cudaSetDevice(device);
  (void)cudaGetLastError();  // clears errors that do not persist
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return partition::DeviceHealth::works;
  return is_transient(error) ? partition::DeviceHealth::not_ready : partition::DeviceHealth::lost;
}

CapturePool make_capture_pool() {
  const MempoolId pool = at::cuda::graph_pool_handle();
  return {pool.first, pool.second};
}

bool captures_beside_others() { return kHasCaptureModes<at::cuda::CUDAGraph>; }

std::unique_ptr<CapturedWork> capture(const CapturePool& pool, const std::function<void()>& work) {
  return std::make_unique<CudaGraph>(MempoolId(pool.first, pool.second), work);
}

}  // namespace gpulet::executor
