#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "executor/torch/answer_check.h"
#include "executor/torch/compute_stream.h"
#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/cuda_parts.h"
#include "executor/torch/model.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/preparer.h"
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
  std::shared_ptr<Preparer> preparer;
  std::optional<gpu::PooledGreenStream> green;  // empty: the whole device, as on the CPU
  std::uint32_t device_sms = 0;
};

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
  [[nodiscard]] std::string failure_text() const override { return failure_text_; }
  [[nodiscard]] std::size_t depth() const override { return target_.device.is_cpu() ? 1 : kDepth; }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  using ModelPointer = std::shared_ptr<const TorchModel>;

  [[nodiscard]] std::uint32_t gpu() const {
    return static_cast<std::uint32_t>(target_.device.index());
  }
  // LibTorch 1 cannot capture while other threads use the device.
  [[nodiscard]] bool captures() const {
    return target_.device.is_cuda() && (!shared_ || captures_beside_others());
  }
  [[nodiscard]] Status initialize_device();
  void move_to_better_sms();
  void use_moved_stream();
  [[nodiscard]] Result<std::uint32_t> load_checked(const ModelToLoad& request);
  [[nodiscard]] Result<ModelPointer> load_prepared(const ModelToLoad& request);
  [[nodiscard]] Result<TorchModel> load_and_warm_up(const ModelToLoad& request);
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
  std::string failure_text_;
  // Set by initialize_device(), on devices that have streams:
  std::shared_ptr<ComputeStream> compute_;
  std::future<std::shared_ptr<ComputeStream>> moved_;  // valid while a move is under way
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
    std::optional<gpu::GreenStream> green;
    if (shared_ && shared_->green) green = shared_->green->stream();
    compute_ = std::make_shared<ComputeStream>(target_.device, std::move(green), captures());
    pipeline_ = std::make_unique<DevicePipeline>(target_.device, kDepth);
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::unavailable, short_message(error)).within(where);
  }
}

// Moves to SMs that fewer other executors use, once there are some. The preparer makes the stream
// and its graphs there while batches run on the present one.
void GpuletExecutor::move_to_better_sms() {
  if (!shared_ || !shared_->green) return;
  if (moved_.valid()) {
    if (moved_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) use_moved_stream();
    return;
  }
  if (!shared_->green->move_due()) return;
  std::vector<ModelPointer> models;
  for (const auto& [name, model] : models_) models.push_back(model);
  moved_ = shared_->preparer->post(
      [green = *shared_->green, models = std::move(models), device = target_.device,
       captures = captures()]() mutable -> std::shared_ptr<ComputeStream> {
        if (!green.move()) return nullptr;
        try {
          auto compute = std::make_shared<ComputeStream>(device, green.stream(), captures);
          for (const ModelPointer& model : models) compute->add(*model);
          return compute;
        } catch (const std::exception&) {
          return nullptr;  // the present stream goes on, on SMs that others may get as well
        }
      });
}

// Waits for the move under way. Batches in flight keep the stream on which they run.
void GpuletExecutor::use_moved_stream() {
  if (!moved_.valid()) return;
  if (auto compute = moved_.get()) compute_ = std::move(compute);
}

Outputs GpuletExecutor::compute(const TorchModel& model, std::uint32_t count,
                                std::vector<c10::IValue> inputs) {
  if (compute_) return compute_->run(model, count, std::move(inputs));
  return run_network(model.network, model, count, std::move(inputs));
}

Outputs GpuletExecutor::compute_in_place(const TorchModel& model, const BatchToRun& batch) {
  std::vector<c10::IValue> inputs =
      wrap_inputs(model.inputs, model.input_sizes, batch.count, batch.input);
  // The batch may run again, and then needs its inputs as they were.
  if (model.network.writes_inputs) {
    for (c10::IValue& input : inputs) input = input.toTensor().clone();
  }
  return compute(model, batch.count, std::move(inputs));
}

// Finds out after a failed batch whether its input is at fault. The exception does not show it: the
// TorchScript interpreter turns every exception into one kind.
bool GpuletExecutor::computes_sample(const TorchModel& model, std::uint32_t count) {
  const auto stream = compute_ ? compute_->stream() : std::nullopt;
  const StreamScope scope(stream);
  const Outputs outputs = compute(model, count, sample_inputs(model.inputs, count, target_.device));
  if (stream) stream->synchronize();
  return outputs.ok();
}

Result<TorchModel> GpuletExecutor::load_and_warm_up(const ModelToLoad& request) {
  Result<TorchModel> loaded = load_model(request, target_);
  if (!loaded.ok()) return loaded;
  TorchModel& model = loaded.value();
  const std::uint32_t max_batch = std::max(1U, request.max_batch);
  if (target_.device.is_cpu()) {
    const bool known = request.variant != 0 && request.variant == model.variant;
    const Result<WarmUp> warmed = warm_up(model, known ? 1 : 2, max_batch);
    if (!warmed.ok()) return warmed.status();
    if (Status status = check_answers(model, target_, max_batch, warmed.value().largest_batch);
        !status.ok())
      return status;
    settle_heap(static_cast<std::size_t>(kHeapPerTensorByte *
                                         static_cast<double>(warmed.value().peak_bytes)));
    return loaded;
  }
  const auto sizes = warm_up_sizes(model, sizes_to_prepare(max_batch), target_.device);
  if (!sizes.ok()) return sizes.status();
  if (Status status = check_answers(model, target_, max_batch, sizes.value().back()); !status.ok())
    return status;
  if (captures()) {
    model.replayable_sizes =
        replayable_sizes(capture_in_one_pool(), model, sizes.value(), target_.device);
    release_unused_memory();
  }
  compute_->stream()->synchronize();  // other executors run the model on their own streams
  return loaded;
}

// The model, with its graphs on compute_. On a shared device with streams, the preparer calls it.
Result<GpuletExecutor::ModelPointer> GpuletExecutor::load_prepared(const ModelToLoad& request) {
  const StreamScope scope(compute_ ? compute_->stream() : std::nullopt);
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
  if (compute_) compute_->add(*model);
  return model;
}

Result<std::uint32_t> GpuletExecutor::load_checked(const ModelToLoad& request) {
  if (Status ready = initialize_device(); !ready.ok()) return ready;
  use_moved_stream();
  const auto load = [this, &request] { return load_prepared(request); };
  Result<ModelPointer> loaded = shared_ && compute_ ? shared_->preparer->post(load).get() : load();
  if (!loaded.ok()) return loaded.status();
  ModelPointer model = std::move(loaded).value();
  // Without graphs this thread runs the network, and makes its own plans for each size.
  if (shared_ && compute_ && model->replayable_sizes.empty()) {
    const StreamScope scope(compute_->stream());
    const auto warm =
        warm_up_sizes(*model, sizes_to_prepare(std::max(1U, request.max_batch)), target_.device);
    if (!warm.ok()) return warm.status();
  }
  const std::uint32_t variant = model->variant;
  ModelPointer& served = models_[request.name];
  if (served != nullptr && served != model && compute_) compute_->erase(*served);
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
  failure_text_.clear();
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
    failure_text_ = outputs.status().message();
    if (!computes_sample(model, batch.count)) return model_at_fault(batch.model);
    // A transient failure, such as a lack of memory, does not repeat.
    const Outputs again = compute_in_place(model, batch);
    if (!again.ok()) return invalid_input(again.status().message());
    failure_text_.clear();
    return copy_outputs(again.value(), batch.output);
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, short_message(error));
  }
}

Result<std::unique_ptr<RunningBatch>> GpuletExecutor::begin_once(const TorchModel& model,
                                                                 const BatchToRun& batch) {
  return pipeline_->begin(model, batch, compute_->stream(), compute_,
                          [&](std::vector<c10::IValue> inputs) {
                            return compute(model, batch.count, std::move(inputs));
                          });
}

Result<std::unique_ptr<RunningBatch>> GpuletExecutor::begin(const BatchToRun& batch) {
  failure_text_.clear();
  try {
    const auto model = find(batch);
    if (!model.ok()) return model.status();
    if (pipeline_ == nullptr) return Executor::begin(batch);
    move_to_better_sms();
    auto running = begin_once(*model.value(), batch);
    if (running.ok()) return running;
    failure_text_ = running.status().message();
    const bool works = health() == partition::DeviceHealth::works;
    if (!works || !computes_sample(*model.value(), batch.count)) return model_at_fault(batch.model);
    auto again = begin_once(*model.value(), batch);
    if (!again.ok()) return invalid_input(again.status().message());
    failure_text_.clear();
    return again;
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
    SharedResources resources{.models = models_, .preparer = preparer_, .green = std::nullopt};
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
  const std::shared_ptr<Preparer> preparer_ = std::make_shared<Preparer>();
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
