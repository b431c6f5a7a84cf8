// CudaGraphCache: captures the batch sizes that were warmed up as CUDA graphs and replays them with
// one launch, which saves the CPU time of a network's many small kernels. A network that cannot be
// captured (its control flow depends on its numbers) runs as it is. Used by one thread, under the
// stream on which everything is replayed. Functions throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

  // Allows the capture of batches of `largest` requests, and of each smaller power of two.
  void enable(const TorchModel& model, std::uint32_t largest) { largest_[&model] = largest; }
  // REQUIRES: called before the model is destroyed.
  void erase(const TorchModel& model);
  // Drops all graphs, because the stream is destroyed. They are captured again on demand.
  void clear() { graphs_.clear(); }

  // As run_network(). The returned tensors are the caller's own. `may_capture`: capture the batch
  // if it is enabled and has no graph yet.
  [[nodiscard]] Result<std::vector<at::Tensor>> run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs,
                                                    bool may_capture);

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

  [[nodiscard]] bool enabled(const TorchModel& model, std::uint32_t count) const;
  // False if this model cannot be captured at all.
  [[nodiscard]] bool capture(const TorchModel& model, std::uint32_t count,
                             const std::vector<c10::IValue>& inputs,
                             const std::vector<at::Tensor>& expected);

  Capture capture_;
  std::map<const TorchModel*, std::uint32_t> largest_;
  std::map<Key, Graph> graphs_;
};

}  // namespace gpulet::executor
