// CudaGraphCache: captures batches of a model as CUDA graphs and replays them with one launch,
// which saves the CPU time of a network's many small kernels. A batch between two captured sizes is
// replayed as the larger one, because a size that a thread runs for the first time takes tens of
// milliseconds: cuDNN then plans each convolution anew. A network that cannot be captured (its
// control flow depends on its numbers) runs as it is. Used by one thread at a time, under the
// stream on which everything is replayed. Functions throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/model.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

class CudaGraphCache {
 public:
  using Capture = std::function<std::unique_ptr<CapturedWork>(const std::function<void()>& work)>;

  explicit CudaGraphCache(Capture capture) : capture_(std::move(capture)) {}

  // Captures batches of these sizes, as far as the bounds on the number and the memory of graphs
  // allow. Throws if the network cannot be captured.
  void add(const TorchModel& model, std::span<const std::uint32_t> sizes,
           const c10::Device& device);
  // REQUIRES: called before the model is destroyed.
  void erase(const TorchModel& model);

  // As run_network(). The returned tensors are the caller's own.
  [[nodiscard]] Result<std::vector<at::Tensor>> run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs);

  [[nodiscard]] std::size_t size() const { return graphs_.size(); }

 private:
  // A graph reads and writes the tensors with which it was captured.
  struct Graph {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::unique_ptr<CapturedWork> work;
    std::size_t bytes = 0;  // of inputs and outputs
  };
  using Key = std::pair<const TorchModel*, std::uint32_t>;

  void capture(const TorchModel& model, std::uint32_t size, const c10::Device& device,
               Graph& graph) const;
  [[nodiscard]] std::size_t bytes() const;

  Capture capture_;
  std::map<Key, Graph> graphs_;
};

// Captures into one memory pool, which ends with the last capture.
[[nodiscard]] CudaGraphCache::Capture capture_in_one_pool();

// The sizes whose replays give the outputs of the network, from the smallest on. Empty for networks
// that cannot be captured, and for those that change themselves.
[[nodiscard]] std::vector<std::uint32_t> replayable_sizes(const CudaGraphCache::Capture& capture,
                                                          const TorchModel& model,
                                                          std::span<const std::uint32_t> sizes,
                                                          const c10::Device& device);

}  // namespace gpulet::executor
