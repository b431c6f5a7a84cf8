#include "executor/torch/compute_stream.h"

#include <exception>
#include <utility>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {

ComputeStream::ComputeStream(const c10::Device& device, std::optional<gpu::GreenStream> green,
                             bool captures)
    : device_(device), green_(std::move(green)) {
  stream_ = green_ ? stream_from_outside(green_->stream(), device.index()) : new_stream(device);
  if (captures && device.is_cuda()) graphs_.emplace(capture_in_one_pool());
}

void ComputeStream::add(const TorchModel& model) {
  if (!graphs_ || model.replayable_sizes.empty()) return;
  const StreamScope scope(stream_);
  try {
    // The libraries allocate their workspaces of a stream at its first use, which must not be part
    // of a graph.
    (void)run_network(model.network, model, 1, sample_inputs(model.inputs, 1, device_));
    graphs_->add(model, model.replayable_sizes, device_);
  } catch (const std::exception&) {
    graphs_->erase(model);
  }
}

void ComputeStream::erase(const TorchModel& model) {
  if (graphs_) graphs_->erase(model);
}

Result<std::vector<at::Tensor>> ComputeStream::run(const TorchModel& model, std::uint32_t count,
                                                   std::vector<c10::IValue> inputs) {
  if (graphs_) return graphs_->run(model, count, std::move(inputs));
  return run_network(model.network, model, count, std::move(inputs));
}

}  // namespace gpulet::executor
