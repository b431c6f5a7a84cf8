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
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/model.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

// A captured batch of a model. It reads and writes the tensors with which it was captured.
struct CapturedBatch {
  std::vector<at::Tensor> inputs;
  std::shared_ptr<std::vector<at::Tensor>> outputs;  // the work has them, too
  std::unique_ptr<CapturedWork> work;
  std::size_t bytes = 0;  // of inputs and outputs
};

class CudaGraphCache {
 public:
  using Capture = std::function<std::unique_ptr<CapturedWork>(const std::function<void()>& work)>;

  explicit CudaGraphCache(Capture capture) : capture_(std::move(capture)) {}

  // Captures batches of these sizes, as far as the bounds on the number and the memory of graphs
  // allow. Throws if the network cannot be captured.
  void add(const TorchModel& model, std::span<const std::uint32_t> sizes,
           const c10::Device& device);
  // Takes a batch that another thread captured in the same pool. False if the bounds do not allow
  // it, or if its size is captured already.
  bool adopt(const TorchModel& model, std::uint32_t size, CapturedBatch batch);
  // REQUIRES: called before the model is destroyed.
  void erase(const TorchModel& model);

  // As run_network(). The returned tensors are the caller's own.
  [[nodiscard]] Result<std::vector<at::Tensor>> run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs);

  [[nodiscard]] std::size_t size() const { return graphs_.size(); }

 private:
  using Key = std::pair<const TorchModel*, std::uint32_t>;

  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] bool has_room(const TorchModel& model, std::uint32_t size) const;

  Capture capture_;
  std::map<Key, CapturedBatch> graphs_;
};

// Captures a batch of that size on the current stream. Throws if the network cannot be captured.
[[nodiscard]] CapturedBatch capture_batch(const CudaGraphCache::Capture& capture,
                                          const TorchModel& model, std::uint32_t size,
                                          const c10::Device& device);

// Whether a replay of the batch on the current stream gives these outputs for these inputs.
[[nodiscard]] bool replays(const CapturedBatch& batch, std::uint32_t size,
                           const std::vector<c10::IValue>& inputs,
                           const std::vector<at::Tensor>& expected);

// Captures a batch after a run of the network on a sample, whose outputs a replay must give; empty
// if it does not.
[[nodiscard]] std::optional<CapturedBatch> capture_checked(const CudaGraphCache::Capture& capture,
                                                           const TorchModel& model,
                                                           std::uint32_t size,
                                                           const c10::Device& device);

// Captures into one memory pool, which ends with the last capture and cannot be used again then.
[[nodiscard]] CudaGraphCache::Capture capture_in_one_pool();

// The sizes whose replays give the outputs of the network, from the smallest on. Empty for networks
// that cannot be captured, and for those that change themselves.
[[nodiscard]] std::vector<std::uint32_t> replayable_sizes(const CudaGraphCache::Capture& capture,
                                                          const TorchModel& model,
                                                          std::span<const std::uint32_t> sizes,
                                                          const c10::Device& device);

}  // namespace gpulet::executor
