// ComputeStream: the stream on which an executor's networks run, with the CUDA graphs that were
// captured on its SMs. An executor that moves to other SMs gets another ComputeStream. Used by one
// thread at a time, except for the functions that say otherwise. Functions throw what LibTorch
// throws.
#pragma once

#include <c10/core/Stream.h>
#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/torch/background_captures.h"
#include "executor/torch/batch_sizes.h"
#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/model.h"
#include "executor/torch/preparer.h"
#include "gpulet/base/status.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::executor {

// How graphs are captured.
struct CaptureTools {
  // Makes a capture into a new pool, as capture_in_one_pool(). Empty: there are no graphs.
  std::function<CudaGraphCache::Capture()> make_capture;
  // Captures further sizes while batches are served. Null: they are captured before.
  std::weak_ptr<Preparer> later;
};

class ComputeStream {
 public:
  // On the SMs of `green`, if there is one.
  ComputeStream(const c10::Device& device, std::optional<gpu::GreenStream> green,
                const CaptureTools& tools);
  ~ComputeStream();
  ComputeStream(const ComputeStream&) = delete;
  ComputeStream& operator=(const ComputeStream&) = delete;

  // Empty on the CPU, which has no streams.
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }

  // Captures the first sizes of a model that can be captured, and the others after serve(). If the
  // first cannot be captured, the model runs without graphs.
  void add(const std::shared_ptr<const TorchModel>& model, const BatchSizes& sizes);
  // REQUIRES: called before the model is destroyed.
  void erase(const TorchModel& model);
  // Batches may come.
  void serve();
  // The number of sizes that will still be captured.
  [[nodiscard]] std::size_t sizes_to_capture() const;

  // As CudaGraphCache::run. REQUIRES: stream() is the current stream.
  [[nodiscard]] Result<std::vector<at::Tensor>> run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs);

  // The device works for a batch while the result, which keeps this stream, is held. Any thread may
  // drop it.
  [[nodiscard]] static std::shared_ptr<const void> hold(std::shared_ptr<ComputeStream> stream);

 private:
  void take_captured();

  const c10::Device device_;
  const std::optional<gpu::GreenStream> green_;  // keeps the stream alive
  std::optional<c10::Stream> stream_;
  CudaGraphCache::Capture capture_;  // into the pool of graphs_
  std::optional<CudaGraphCache> graphs_;
  std::shared_ptr<BackgroundCaptures> background_;  // null: all sizes are captured at once
};

}  // namespace gpulet::executor
