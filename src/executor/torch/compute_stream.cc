#include "executor/torch/compute_stream.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

// A further stream on the SMs of a compute stream.
struct SideStream {
  std::optional<gpu::GreenStream> green;  // keeps the stream alive
  std::optional<c10::Stream> stream;

  SideStream(const c10::Device& device, const std::optional<gpu::GreenStream>& beside) {
    if (!beside) {
      stream = new_stream(device);
      return;
    }
    auto made = beside->beside();
    if (!made.ok()) throw std::runtime_error(made.status().message());
    green = std::move(made).value();
    stream = stream_from_outside(green->stream(), device.index());
  }
};

// Captures batches for a compute stream while that serves. Graphs use the memory of their pool and
// the workspaces of the stream of their capture, which no other work may use at the same time. So
// the network runs on a stream of its own, which makes this thread's plans; batches are captured,
// and nothing else is done, on a second one; and a replay is checked on the compute stream, between
// the batches that it serves.
class SideCaptures {
 public:
  SideCaptures(const c10::Device& device, std::optional<gpu::GreenStream> green,
               std::optional<c10::Stream> compute, CudaGraphCache::Capture capture)
      : device_(device),
        green_(std::move(green)),
        compute_(std::move(compute)),
        capture_(std::move(capture)) {}

  CapturedBatch operator()(const TorchModel& model, std::uint32_t size) {
    open();
    const Sample sample = run_sample_of(model, size);
    CapturedBatch batch = capture(model, size);
    const StreamScope scope(compute_);
    if (!replays(batch, size, sample.inputs, sample.outputs))
      throw std::runtime_error("a replay does not give the outputs of the network");
    return batch;
  }

 private:
  struct Sample {
    std::vector<c10::IValue> inputs;
    std::vector<at::Tensor> outputs;
  };

  void open() {
    if (captures_) return;
    runs_.emplace(device_, green_);
    SideStream captures(device_, green_);
    const StreamScope scope(captures.stream);
    // The libraries allocate their workspaces of a stream at its first use, which must not be part
    // of a graph.
    const at::Tensor any = at::ones({2, 2}, at::TensorOptions(device_));
    (void)at::matmul(any, any).cpu();
    captures_.emplace(std::move(captures));
  }
  // Complete when it returns, so that other streams may use it.
  Sample run_sample_of(const TorchModel& model, std::uint32_t size) {
    const StreamScope scope(runs_->stream);
    Sample sample{.inputs = sample_inputs(model.inputs, size, device_), .outputs = {}};
    auto outputs = run_network(model.network, model, size, sample.inputs);
    if (runs_->stream) runs_->stream->synchronize();
    if (!outputs.ok()) throw std::runtime_error(outputs.status().message());
    sample.outputs = std::move(outputs).value();
    return sample;
  }
  CapturedBatch capture(const TorchModel& model, std::uint32_t size) {
    const StreamScope scope(captures_->stream);
    CapturedBatch batch = capture_batch(capture_, model, size, device_);
    if (captures_->stream) captures_->stream->synchronize();
    return batch;
  }

  const c10::Device device_;
  const std::optional<gpu::GreenStream> green_;  // keeps the compute stream alive
  const std::optional<c10::Stream> compute_;
  const CudaGraphCache::Capture capture_;
  std::optional<SideStream> runs_;
  std::optional<SideStream> captures_;
};

}  // namespace

ComputeStream::ComputeStream(const c10::Device& device, std::optional<gpu::GreenStream> green,
                             const CaptureTools& tools)
    : device_(device), green_(std::move(green)) {
  stream_ = green_ ? stream_from_outside(green_->stream(), device.index()) : new_stream(device);
  if (tools.make_capture == nullptr) return;
  capture_ = tools.make_capture();
  graphs_.emplace(capture_);
  if (tools.later.expired()) return;
  auto side = std::make_shared<SideCaptures>(device_, green_, stream_, capture_);
  background_ = std::make_shared<BackgroundCaptures>(
      tools.later,
      [side](const TorchModel& model, std::uint32_t size) { return (*side)(model, size); });
}

ComputeStream::~ComputeStream() {
  if (background_ != nullptr) background_->close();
}

void ComputeStream::add(const std::shared_ptr<const TorchModel>& model, const BatchSizes& sizes) {
  if (!graphs_ || model->replayable_sizes.empty()) return;
  const StreamScope scope(stream_);
  try {
    // The libraries allocate their workspaces of a stream at its first use, which must not be part
    // of a graph.
    (void)run_network(model->network, *model, 1, sample_inputs(model->inputs, 1, device_));
    const std::vector<std::uint32_t>& checked = model->replayable_sizes;
    for (const std::uint32_t size : sizes.first) {
      if (std::find(checked.begin(), checked.end(), size) != checked.end()) {
        graphs_->add(*model, {{size}}, device_);
      } else if (auto batch = capture_checked(capture_, *model, size, device_)) {
        graphs_->adopt(*model, size, std::move(*batch));
      }
    }
    if (background_ != nullptr) background_->add(model, sizes.later);
  } catch (const std::exception&) {
    erase(*model);
  }
}

void ComputeStream::erase(const TorchModel& model) {
  if (background_ != nullptr) background_->erase(model);
  if (graphs_) graphs_->erase(model);
}

void ComputeStream::serve() {
  if (background_ != nullptr) background_->start();
}

std::size_t ComputeStream::sizes_to_capture() const {
  return background_ == nullptr ? 0 : background_->pending();
}

void ComputeStream::take_captured() {
  for (BackgroundCaptures::Captured& one : background_->take()) {
    // Beyond the bounds of the cache there is no use in more.
    if (!graphs_->adopt(*one.model, one.size, std::move(one.batch))) background_->erase(*one.model);
  }
}

Result<std::vector<at::Tensor>> ComputeStream::run(const TorchModel& model, std::uint32_t count,
                                                   std::vector<c10::IValue> inputs) {
  if (!graphs_) return run_network(model.network, model, count, std::move(inputs));
  if (background_ != nullptr) take_captured();
  return graphs_->run(model, count, std::move(inputs));
}

std::shared_ptr<const void> ComputeStream::hold(std::shared_ptr<ComputeStream> stream) {
  if (stream->background_ == nullptr) return stream;
  stream->background_->batch_begun();
  const ComputeStream* const held = stream.get();
  return {held, [stream = std::move(stream)](const ComputeStream* /*held*/) {
            stream->background_->batch_ended();
          }};
}

}  // namespace gpulet::executor
