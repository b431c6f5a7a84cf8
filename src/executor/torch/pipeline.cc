#include "executor/torch/pipeline.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

// What follows on `later` waits for what `earlier` was given so far.
void then(std::optional<c10::Event>& event, const std::optional<c10::Stream>& earlier,
          const std::optional<c10::Stream>& later) {
  if (!event || !earlier || !later) return;
  event->record(*earlier);
  event->block(*later);
}

void wait_for(const std::optional<c10::Stream>& stream) {
  if (stream) stream->synchronize();
}

// LibTorch knows no tensor over constant memory; this one is only read.
at::Tensor over(std::span<const std::byte> bytes) {
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

// Ends what is under way of a batch, finished or not, before its slot is another's.
class Pipeline::Running final : public RunningBatch {
 public:
  Running(Slot& slot, std::optional<c10::Stream> compute)
      : slot_(slot), compute_(std::move(compute)) {}
  ~Running() override {
    try {
      if (!finished_) wait_for(compute_);
      wait_for(slot_.out);
    } catch (const std::exception&) {
      // The device is lost, and with it what was under way.
    }
    outputs_.clear();
    slot_.taken = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // They stay until they have been read.
  void bring(std::vector<at::Tensor> outputs, std::span<std::byte> to) {
    outputs_ = std::move(outputs);
    const Under guard(slot_.out);
    for (const at::Tensor& output : outputs_) {
      over(to.subspan(written_, output.nbytes())).copy_(output, /*non_blocking=*/true);
      written_ += output.nbytes();
    }
  }

  [[nodiscard]] Result<std::size_t> finish() override {
    try {
      finished_ = true;
      wait_for(slot_.out);
      return written_;
    } catch (const std::exception& error) {
      return Status(StatusCode::internal, own_words(error));
    }
  }

 private:
  Slot& slot_;
  std::optional<c10::Stream> compute_;
  std::vector<at::Tensor> outputs_;
  std::size_t written_ = 0;
  bool finished_ = false;
};

Pipeline::Pipeline(const c10::Device& device, std::size_t depth)
    : device_(device), in_(new_stream(device)) {
  for (std::size_t i = 0; i < depth; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.out = new_stream(device);
    if (!slot.out) continue;
    slot.arrived.emplace(device.type());
    slot.answered.emplace(device.type());
  }
}

bool Pipeline::empty() const {
  return std::none_of(slots_.begin(), slots_.end(),
                      [](const Slot& slot) { return slot.taken.load(); });
}

void Pipeline::send(Slot& slot, std::span<const std::byte> bytes,
                    const std::optional<c10::Stream>& compute) {
  const Under guard(in_);
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (!slot.input.defined() || slot.input.numel() < size)
    slot.input = at::empty({size}, at::TensorOptions(at::kByte).device(device_));
  slot.input.narrow(0, 0, size).copy_(over(bytes), /*non_blocking=*/true);
  then(slot.arrived, in_, compute);
}

Result<std::unique_ptr<RunningBatch>> Pipeline::begin(const LoadedModel& model,
                                                      const BatchToRun& batch,
                                                      const std::optional<c10::Stream>& compute,
                                                      const Work& work) {
  const c10::InferenceMode inference;
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return !slot.taken.load(); });
  if (free == slots_.end())
    return Status(StatusCode::internal, "as many batches are under way as the device takes");
  Slot& slot = *free;
  slot.taken = true;
  auto running = std::make_unique<Running>(slot, compute);
  send(slot, batch.input, compute);
  std::vector<at::Tensor> outputs;
  {
    const Under guard(compute);
    auto answered = work(view_inputs(model.inputs, model.input_sizes, batch.count, slot.input));
    if (!answered.ok()) return answered.status();
    for (const at::Tensor& output : answered.value()) outputs.push_back(as_bytes(output));
    then(slot.answered, compute, slot.out);
  }
  running->bring(std::move(outputs), batch.output);
  return std::unique_ptr<RunningBatch>(std::move(running));
}

}  // namespace gpulet::executor
