// ComputeStream: the stream on which an executor's networks run, with the CUDA graphs that were
// captured on it. A graph runs on the SMs of its capture, so an executor that moves to other SMs
// gets another ComputeStream. Used by one thread at a time. Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Stream.h>
#include <torch/script.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/model.h"
#include "gpulet/base/status.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::executor {

class ComputeStream {
 public:
  // On the SMs of `green`, if there is one. Without `captures`, and on devices other than GPUs,
  // there are no graphs.
  ComputeStream(const c10::Device& device, std::optional<gpu::GreenStream> green, bool captures);

  // Empty on the CPU, which has no streams.
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }

  // Captures the batch sizes of the model that can be captured. If that fails, the model runs
  // without graphs.
  void add(const TorchModel& model);
  // REQUIRES: called before the model is destroyed.
  void erase(const TorchModel& model);

  // As CudaGraphCache::run. REQUIRES: stream() is the current stream.
  [[nodiscard]] Result<std::vector<at::Tensor>> run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs);

 private:
  c10::Device device_;
  std::optional<gpu::GreenStream> green_;  // keeps the stream alive
  std::optional<c10::Stream> stream_;
  std::optional<CudaGraphCache> graphs_;
};

}  // namespace gpulet::executor
