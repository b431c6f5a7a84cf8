#include "executor/torch/cuda_parts.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <type_traits>
#include <utility>

namespace gpulet::executor {
namespace {

using MempoolId = std::decay_t<decltype(at::cuda::graph_pool_handle())>;

// LibTorch 1.13 captures in global mode only, in which whatever another thread asks of the device
// breaks the capture, or fails.
template <typename Graph>
constexpr bool kKnowsModes = requires(Graph& graph, MempoolId pool) {
  graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
};

template <typename Graph>
void begin_capture(Graph& graph, const MempoolId& pool) {
  if constexpr (kKnowsModes<Graph>) {
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
  // The capture ends, whatever became of it, and leaves no error to those who ask next.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      (void)cudaGetLastError();
    }
  }

  at::cuda::CUDAGraph graph_;
};

bool means_later(cudaError_t error) {
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

partition::DeviceHealth health_of(c10::DeviceIndex device) {
  cudaError_t error = cudaSetDevice(device);
  (void)cudaGetLastError();  // those that pass
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return partition::DeviceHealth::works;
  return means_later(error) ? partition::DeviceHealth::not_ready : partition::DeviceHealth::lost;
}

CapturePool make_capture_pool() {
  const MempoolId pool = at::cuda::graph_pool_handle();
  return {pool.first, pool.second};
}

bool captures_beside_others() { return kKnowsModes<at::cuda::CUDAGraph>; }

std::unique_ptr<CapturedWork> capture(const CapturePool& pool, const std::function<void()>& work) {
  return std::make_unique<CudaGraph>(MempoolId(pool.first, pool.second), work);
}

}  // namespace gpulet::executor
