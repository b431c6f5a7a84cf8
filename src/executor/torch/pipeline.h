// DevicePipeline: overlaps the copies of one batch with the computation of another. The inputs of a
// batch are copied to the device on one stream, the network runs on a second, and the outputs are
// copied back on a third; the device, not this process, waits between the stages. It works with any
// device of LibTorch; on the CPU, which has no streams, the stages run one after another.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/script.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "executor/torch/model.h"
#include "gpulet/base/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// A new stream of the device; empty if it has no streams.
[[nodiscard]] std::optional<c10::Stream> new_stream(const c10::Device& device);

// Makes a stream, if there is one, the current stream of the calling thread.
class StreamScope {
 public:
  explicit StreamScope(const std::optional<c10::Stream>& stream) {
    if (stream) guard_.emplace(*stream);
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

class DevicePipeline {
 public:
  // Runs under the compute stream. The next work on that stream may overwrite the tensors.
  using Work = std::function<Result<std::vector<at::Tensor>>(std::vector<c10::IValue> inputs)>;

  DevicePipeline(const c10::Device& device, std::size_t depth);

  // The maximum number of batches in flight.
  [[nodiscard]] std::size_t depth() const { return slots_.size(); }
  // No batch is in flight.
  [[nodiscard]] bool empty() const;

  // As Executor::begin. `compute` is the stream of the work; `owner` keeps it alive until the batch
  // has ended. The pipeline must outlive the batch. REQUIRES: the sizes of the batch were checked.
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(
      const TorchModel& model, const BatchToRun& batch, const std::optional<c10::Stream>& compute,
      std::shared_ptr<const void> owner, const Work& work);

 private:
  // The resources of one batch in flight.
  struct Slot {
    std::atomic<bool> in_use = false;
    at::Tensor input;                // bytes on the device; grows as needed
    std::optional<c10::Stream> out;  // for the copies of this batch only
    std::optional<c10::Event> arrived;
    std::optional<c10::Event> computed;
  };
  class Running;

  void copy_input(Slot& slot, std::span<const std::byte> bytes,
                  const std::optional<c10::Stream>& compute);

  c10::Device device_;
  std::optional<c10::Stream> in_;
  std::list<Slot> slots_;
};

}  // namespace gpulet::executor
