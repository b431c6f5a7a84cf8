// Pipeline: batches whose copies overlap each other's execution. A batch's inputs go to the device
// on one stream, its work runs on another, its outputs come back on a third, and each waits for the
// one before it on the device, not in this process. Written against LibTorch's general devices; on
// the CPU, which has no streams, one thing happens after the other.
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
#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// A stream of the device's own; none where it has no streams.
[[nodiscard]] std::optional<c10::Stream> new_stream(const c10::Device& device);

// Makes a stream the calling thread's current one, if there is one.
class Under {
 public:
  explicit Under(const std::optional<c10::Stream>& stream) {
    if (stream) guard_.emplace(*stream);
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

class Pipeline {
 public:
  // Called under the compute stream. The tensors may be written into by the next work on it.
  using Work = std::function<Result<std::vector<at::Tensor>>(std::vector<c10::IValue> inputs)>;

  Pipeline(const c10::Device& device, std::size_t depth);

  // How many batches may be begun and not finished.
  [[nodiscard]] std::size_t depth() const { return slots_.size(); }
  // None is.
  [[nodiscard]] bool empty() const;

  // As Executor::begin, for a batch whose sizes were checked. `compute`: where the work runs; it
  // must be the same while batches are under way. The pipeline must outlive the batch.
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(
      const LoadedModel& model, const BatchToRun& batch, const std::optional<c10::Stream>& compute,
      const Work& work);

 private:
  // What one batch under way has for itself.
  struct Slot {
    std::atomic<bool> taken = false;
    at::Tensor input;                // bytes on the device; grows
    std::optional<c10::Stream> out;  // where nobody else's copies are waited for
    std::optional<c10::Event> arrived;
    std::optional<c10::Event> answered;
  };
  class Running;

  void send(Slot& slot, std::span<const std::byte> bytes,
            const std::optional<c10::Stream>& compute);

  c10::Device device_;
  std::optional<c10::Stream> in_;
  std::list<Slot> slots_;
};

}  // namespace gpulet::executor
