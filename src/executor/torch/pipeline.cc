#include "executor/torch/pipeline.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

// Later work on `later` waits for the work that `earlier` has so far.
void order(std::optional<c10::Event>& event, const std::optional<c10::Stream>& earlier,
           const std::optional<c10::Stream>& later) {
  if (!event || !earlier || !later) return;
  event->record(*earlier);
  event->block(*later);
}

void wait_for(const std::optional<c10::Stream>& stream) {
  if (stream) stream->synchronize();
}

// LibTorch has no tensors over constant memory; this one is only read.
at::Tensor bytes_tensor(std::span<const std::byte> bytes) {
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
      {static_cast<std::int64_t>(bytes.size())}, at::TensorOptions(at::kByte));
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.contiguous().reshape({-1}).view(at::kByte);
}

}  // namespace

std::optional<c10::Stream> new_stream(const c10::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// Its destructor waits for the batch, finished or not, before the slot is reused.
class DevicePipeline::Running final : public RunningBatch {
 public:
  Running(Slot& slot, std::optional<c10::Stream> compute, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), slot_(slot), compute_(std::move(compute)) {}
  ~Running() override {
    try {
      if (!finished_) wait_for(compute_);
      wait_for(slot_.out);
    } catch (const std::exception&) {
      // The device is lost, and the batch with it.
    }
    outputs_.clear();
    slot_.in_use = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Keeps the outputs until they have been copied.
  void copy_outputs(std::vector<at::Tensor> outputs, std::span<std::byte> to) {
    outputs_ = std::move(outputs);
    const StreamScope scope(slot_.out);
    for (const at::Tensor& output : outputs_) {
      bytes_tensor(to.subspan(written_, output.nbytes())).copy_(output, /*non_blocking=*/true);
      written_ += output.nbytes();
    }
  }

  [[nodiscard]] Result<std::size_t> finish() override {
    try {
      finished_ = true;
      wait_for(slot_.out);
      return written_;
    } catch (const std::exception& error) {
      return Status(StatusCode::internal, short_message(error));
    }
  }

 private:
  std::shared_ptr<const void> owner_;  // of compute_
  Slot& slot_;
  std::optional<c10::Stream> compute_;
  std::vector<at::Tensor> outputs_;
  std::size_t written_ = 0;
  bool finished_ = false;
};

DevicePipeline::DevicePipeline(const c10::Device& device, std::size_t depth)
    : device_(device), in_(new_stream(device)) {
  for (std::size_t i = 0; i < depth; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.out = new_stream(device);
    if (!slot.out) continue;
    slot.arrived.emplace(device.type());
    slot.computed.emplace(device.type());
  }
}

bool DevicePipeline::empty() const {
  return std::none_of(slots_.begin(), slots_.end(),
                      [](const Slot& slot) { return slot.in_use.load(); });
}

void DevicePipeline::copy_input(Slot& slot, std::span<const std::byte> bytes,
                                const std::optional<c10::Stream>& compute) {
  const StreamScope scope(in_);
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (!slot.input.defined() || slot.input.numel() < size)
    slot.input = at::empty({size}, at::TensorOptions(at::kByte).device(device_));
  slot.input.narrow(0, 0, size).copy_(bytes_tensor(bytes), /*non_blocking=*/true);
  order(slot.arrived, in_, compute);
}

Result<std::unique_ptr<RunningBatch>> DevicePipeline::begin(
    const TorchModel& model, const BatchToRun& batch, const std::optional<c10::Stream>& compute,
    std::shared_ptr<const void> owner, const Work& work) {
  const c10::InferenceMode inference;
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return !slot.in_use.load(); });
  if (free == slots_.end())
    return Status(StatusCode::internal,
                  "the pipeline already has its maximum number of batches in flight");
  Slot& slot = *free;
  slot.in_use = true;
  auto running = std::make_unique<Running>(slot, compute, std::move(owner));
  copy_input(slot, batch.input, compute);
  std::vector<at::Tensor> outputs;
  {
    const StreamScope scope(compute);
    auto computed = work(view_inputs(model.inputs, model.input_sizes, batch.count, slot.input));
    if (!computed.ok()) return computed.status();
    for (const at::Tensor& output : computed.value()) outputs.push_back(as_bytes(output));
    order(slot.computed, compute, slot.out);
  }
  running->copy_outputs(std::move(outputs), batch.output);
  return std::unique_ptr<RunningBatch>(std::move(running));
}

}  // namespace gpulet::executor
