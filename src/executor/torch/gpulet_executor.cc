#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/cuda_parts.h"
#include "executor/torch/model.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/process.h"
#include "executor/torch/tensors.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/green_streams.h"

namespace gpulet::executor {
namespace {

constexpr double kHeapPerTensorByte = 1.25;  // libraries allocate memory beside tensors
// The copies of one batch overlap the computation of another; a third batch would only wait longer.
constexpr std::size_t kDepth = 2;

constexpr const char* kNoCuda =
    "this gpulet-proxy was built with a LibTorch that has no CUDA; build it with one that has "
    "(CMAKE_PREFIX_PATH), or serve on the CPU";

using Outputs = Result<std::vector<at::Tensor>>;

// The resources that the executors of a device share.
struct SharedResources {
  std::shared_ptr<ModelCache> models;
  std::optional<gpu::PooledGreenStream> green;  // empty: the whole device, as on the CPU
  std::uint32_t device_sms = 0;
};

Status failed(const BatchToRun& batch, const Status& why) {
  return Status(StatusCode::internal, why.message())
      .within("model '" + std::string(batch.model) + "'");
}

c10::Device parse_device(const std::string& text) {
  try {
    const c10::Device device(text);
    return device.is_cpu() || device.has_index() ? device : c10::Device(device.type(), 0);
  } catch (const c10::Error& error) {
    throw std::invalid_argument("device '" + text + "': " + short_message(error));
  }
}

class GpuletExecutor final : public Executor {
 public:
  GpuletExecutor(const c10::Device& device, std::optional<SharedResources> shared)
      : target_{device, configure_process(device)}, shared_(std::move(shared)) {}

  void use_memory(std::span<std::byte> memory) override;
  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] partition::DeviceHealth health() const override;
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& request) override;
  [[nodiscard]] double error_of(std::uint32_t variant) const override {
    return error_of_variant(variant);
  }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;
  [[nodiscard]] std::size_t depth() const override { return target_.device.is_cpu() ? 1 : kDepth; }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  using ModelPointer = std::shared_ptr<const TorchModel>;

  [[nodiscard]] std::uint32_t gpu() const {
    return static_cast<std::uint32_t>(target_.device.index());
  }
  [[nodiscard]] bool shares_sms() const {
    return shared_ && shared_->green && shared_->green->overlaps();
  }
  [[nodiscard]] Status initialize_device();
  void update_stream();
  [[nodiscard]] Result<std::uint32_t> load_checked(const ModelToLoad& request);
  [[nodiscard]] Result<TorchModel> load_and_warm_up(const ModelToLoad& request);
  [[nodiscard]] Status capture_graphs(const TorchModel& model, std::uint32_t largest);
  [[nodiscard]] Result<const TorchModel*> find(const BatchToRun& batch) const;
  [[nodiscard]] Outputs compute(const TorchModel& model, std::uint32_t count,
                                std::vector<c10::IValue> inputs);
  [[nodiscard]] Outputs compute_in_place(const TorchModel& model, const BatchToRun& batch);
  [[nodiscard]] bool computes_sample(const TorchModel& model, std::uint32_t count);
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin_once(const TorchModel& model,
                                                                 const BatchToRun& batch);

  const ExecutionTarget target_;
  std::optional<SharedResources> shared_;
  std::optional<gpu::RegisteredMemory> memory_;
  std::map<std::string, ModelPointer, std::less<>> models_;
  // Set by initialize_device(), on devices that have streams:
  void* green_stream_ = nullptr;  // compute_ wraps it
  std::optional<c10::Stream> compute_;
  std::optional<CudaGraphCache> graphs_;
  std::unique_ptr<DevicePipeline> pipeline_;
};

void GpuletExecutor::use_memory(std::span<std::byte> memory) {
  if (!target_.device.is_cuda() || !built_with_cuda() || memory.empty()) return;
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return;
  auto registered = driver.value().register_memory(gpu(), memory);
  if (registered.ok()) memory_ = std::move(registered).value();
}

// On a GPU without a green stream, the share is held if an MPS daemon has this process or it runs
// in a MIG instance.
Result<partition::FoundShare> GpuletExecutor::found_share() {
  if (target_.device.is_cpu()) return partition::FoundShare{};
  if (Status ready = initialize_device(); !ready.ok()) return ready;
  if (!target_.device.is_cuda()) return partition::FoundShare{};
  if (shared_ && shared_->green) {
    return partition::FoundShare{
        .held = true, .sms = shared_->green->sms(), .device_sms = shared_->device_sms};
  }
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return driver.status();
  const auto held = driver.value().is_held(gpu());
  if (!held.ok()) return held.status();
  const auto sms = driver.value().usable_sms(gpu());
  if (!sms.ok()) return sms.status();
  return partition::FoundShare{.held = held.value(), .sms = sms.value()};
}

partition::DeviceHealth GpuletExecutor::health() const {
  if (!target_.device.is_cuda()) return partition::DeviceHealth::works;
  try {
    return health_of(target_.device.index());
  } catch (const std::exception&) {
    return partition::DeviceHealth::lost;
  }
}

Status GpuletExecutor::initialize_device() {
  if (target_.device.is_cpu() || pipeline_ != nullptr) return {};
  const std::string where = "device '" + target_.device.str() + "'";
  if (target_.device.is_cuda() && !built_with_cuda())
    return Status(StatusCode::unavailable, kNoCuda).within(where);
  try {
    if (target_.device.is_cuda()) wait_asleep(target_.device.index());
    (void)at::zeros({1}, at::TensorOptions(target_.device)).cpu();
    compute_ = new_stream(target_.device);
    if (target_.device.is_cuda() && (!shared_ || captures_beside_others())) {
      graphs_.emplace([pool = make_capture_pool()](const std::function<void()>& work) {
        return capture(pool, work);
      });
    }
    update_stream();
    pipeline_ = std::make_unique<DevicePipeline>(target_.device, kDepth);
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::unavailable, short_message(error)).within(where);
  }
}

// Gets the stream for the next batch. The stream may only change while no batch is in flight.
void GpuletExecutor::update_stream() {
  if (!shared_ || !shared_->green || (pipeline_ != nullptr && !pipeline_->empty())) return;
  // stream() may move to other SMs, which destroys the stream on which the graphs were captured.
  if (graphs_ && shares_sms()) graphs_->clear();
  void* const stream = shared_->green->stream();
  if (stream == green_stream_) return;
  green_stream_ = stream;
  compute_ = stream_from_outside(stream, target_.device.index());
  if (graphs_) graphs_->clear();
}

Outputs GpuletExecutor::compute(const TorchModel& model, std::uint32_t count,
                                std::vector<c10::IValue> inputs) {
  if (!graphs_) return run_network(model.network, model, count, std::move(inputs));
  return graphs_->run(model, count, std::move(inputs), /*may_capture=*/!shares_sms());
}

Outputs GpuletExecutor::compute_in_place(const TorchModel& model, const BatchToRun& batch) {
  return compute(model, batch.count,
                 wrap_inputs(model.inputs, model.input_sizes, batch.count, batch.input));
}

// Finds out after a failed batch whether its input is at fault. The exception does not show it: the
// TorchScript interpreter turns every exception into one kind.
bool GpuletExecutor::computes_sample(const TorchModel& model, std::uint32_t count) {
  const StreamScope scope(compute_);
  const Outputs outputs = compute(model, count, sample_inputs(model.inputs, count, target_.device));
  if (compute_) compute_->synchronize();
  return outputs.ok();
}

// Captures batches of 1, 2, 4, .. `largest`, as far as the model allows it.
Status GpuletExecutor::capture_graphs(const TorchModel& model, std::uint32_t largest) {
  if (!graphs_) return {};
  graphs_->enable(model, largest);
  for (std::uint32_t count = 1;; count = std::min(2 * count, largest)) {
    const Outputs outputs =
        compute(model, count, sample_inputs(model.inputs, count, target_.device));
    if (!outputs.ok()) return outputs.status();
    if (count == largest) return {};
  }
}

Result<TorchModel> GpuletExecutor::load_and_warm_up(const ModelToLoad& request) {
  Result<TorchModel> model = load_model(request, target_);
  if (!model.ok()) return model;
  const bool known = request.variant != 0 && request.variant == model.value().variant;
  const Result<WarmUp> warmed =
      warm_up(model.value(), known ? 1 : 2, std::max(1U, request.max_batch), target_.device);
  if (!warmed.ok()) return warmed.status();
  if (target_.device.is_cpu()) {
    settle_heap(static_cast<std::size_t>(kHeapPerTensorByte *
                                         static_cast<double>(warmed.value().peak_bytes)));
  }
  if (compute_) compute_->synchronize();  // other executors run the model on their own streams
  return model;
}

Result<std::uint32_t> GpuletExecutor::load_checked(const ModelToLoad& request) {
  if (Status ready = initialize_device(); !ready.ok()) return ready;
  update_stream();
  const StreamScope scope(compute_);
  ModelPointer model;
  if (shared_) {
    auto cached = shared_->models->get(request, [&] { return load_and_warm_up(request); });
    if (!cached.ok()) return cached.status();
    model = std::move(cached).value();
  } else {
    auto loaded = load_and_warm_up(request);
    if (!loaded.ok()) return loaded.status();
    model = std::make_shared<const TorchModel>(std::move(loaded).value());
  }
  // On a GPU each executor initializes its own library handles and graphs.
  if (!target_.device.is_cpu()) {
    const Result<WarmUp> warmed =
        warm_up(*model, 1, std::max(1U, request.max_batch), target_.device);
    if (!warmed.ok()) return warmed.status();
    if (Status captured = capture_graphs(*model, warmed.value().largest_batch); !captured.ok())
      return captured;
    if (compute_) compute_->synchronize();
  }
  const std::uint32_t variant = model->variant;
  ModelPointer& served = models_[request.name];
  if (served != nullptr && served != model && graphs_) graphs_->erase(*served);
  served = std::move(model);
  return variant;
}

Result<std::uint32_t> GpuletExecutor::load(const ModelToLoad& request) {
  const std::string where = "model '" + request.name + "': " + request.file.string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(request.file, ignored)) {
    return Status(StatusCode::not_found, where + ": no such file; export or fetch it first");
  }
  try {
    Result<std::uint32_t> variant = load_checked(request);
    if (!variant.ok()) return variant.status().within(where);
    return variant;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::overloaded, "not enough memory").within(where);
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, short_message(error)).within(where);
  }
}

Result<const TorchModel*> GpuletExecutor::find(const BatchToRun& batch) const {
  const auto found = models_.find(batch.model);
  if (found == models_.end()) return not_loaded(batch.model);
  const TorchModel& model = *found->second;
  if (Status status = check_sizes(batch, model.input_sizes, model.output_sizes); !status.ok())
    return status;
  return &model;
}

Result<std::size_t> GpuletExecutor::run(const BatchToRun& batch) {
  if (!target_.device.is_cpu()) {
    const auto running = begin(batch);
    return running.ok() ? running.value()->finish() : running.status();
  }
  try {
    const auto found = find(batch);
    if (!found.ok()) return found.status();
    const TorchModel& model = *found.value();
    const Outputs outputs = compute_in_place(model, batch);
    if (outputs.ok()) return copy_outputs(outputs.value(), batch.output);
    if (!computes_sample(model, batch.count)) return failed(batch, outputs.status());
    // A transient failure, such as a lack of memory, does not repeat.
    const Outputs again = compute_in_place(model, batch);
    if (again.ok()) return copy_outputs(again.value(), batch.output);
    return invalid_input(again.status().message());
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, short_message(error));
  }
}

Result<std::unique_ptr<RunningBatch>> GpuletExecutor::begin_once(const TorchModel& model,
                                                                 const BatchToRun& batch) {
  return pipeline_->begin(model, batch, compute_, [&](std::vector<c10::IValue> inputs) {
    return compute(model, batch.count, std::move(inputs));
  });
}

Result<std::unique_ptr<RunningBatch>> GpuletExecutor::begin(const BatchToRun& batch) {
  try {
    const auto model = find(batch);
    if (!model.ok()) return model.status();
    if (pipeline_ == nullptr) return Executor::begin(batch);
    update_stream();
    auto running = begin_once(*model.value(), batch);
    if (running.ok()) return running;
    const bool works = health() == partition::DeviceHealth::works;
    if (!works || !computes_sample(*model.value(), batch.count))
      return failed(batch, running.status());
    auto again = begin_once(*model.value(), batch);
    if (again.ok()) return again;
    return invalid_input(again.status().message());
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, short_message(error));
  }
}

// ---- the shared device

class SharedTorchDevice final : public SharedDevice {
 public:
  SharedTorchDevice(std::string device, std::optional<gpu::GreenStreamPool> green)
      : device_(std::move(device)), green_(std::move(green)) {}

  [[nodiscard]] Result<std::unique_ptr<Executor>> add_executor(Share share) override {
    SharedResources resources{.models = models_, .green = std::nullopt};
    if (green_) {
      auto added = green_->add(share);
      if (!added.ok()) return Status(StatusCode::unavailable, added.status().message());
      resources.green = std::move(added).value();
      resources.device_sms = green_->sizes().sms;
    }
    try {
      return std::unique_ptr<Executor>(
          std::make_unique<GpuletExecutor>(parse_device(device_), std::move(resources)));
    } catch (const std::exception& error) {
      return Status(StatusCode::unavailable, error.what());
    }
  }

 private:
  const std::string device_;
  const std::shared_ptr<ModelCache> models_ = std::make_shared<ModelCache>();
  std::optional<gpu::GreenStreamPool> green_;  // empty: the device is not divided
};

Result<gpu::GreenStreamPool> divide(const c10::Device& device) {
  if (!built_with_cuda()) return Status(StatusCode::unavailable, kNoCuda);
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return driver.status();
  return gpu::GreenStreamPool::make(
      driver.value(), static_cast<std::uint32_t>(device.has_index() ? device.index() : 0));
}

}  // namespace

std::unique_ptr<Executor> make_gpulet_executor(const std::string& device) {
  return std::make_unique<GpuletExecutor>(parse_device(device), std::nullopt);
}

Result<std::unique_ptr<SharedDevice>> make_shared_device(const std::string& text) {
  const std::string where = "device '" + text + "'";
  try {
    const c10::Device device(text);
    std::optional<gpu::GreenStreamPool> green;
    if (device.is_cuda()) {
      auto made = divide(device);
      if (!made.ok()) return made.status().within(where);
      green = std::move(made).value();
    }
    return std::unique_ptr<SharedDevice>(
        std::make_unique<SharedTorchDevice>(text, std::move(green)));
  } catch (const std::exception& error) {
    return Status(StatusCode::invalid, short_message(error)).within(where);
  }
}

}  // namespace gpulet::executor
