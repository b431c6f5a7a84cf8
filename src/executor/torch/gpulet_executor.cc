#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "executor/torch/answer_check.h"
#include "executor/torch/batch_sizes.h"
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

using Clock = std::chrono::steady_clock;
using Outputs = Result<std::vector<at::Tensor>>;

// The executors of a process that may be serving.
class Serving {
 public:
  using Count = std::shared_ptr<std::atomic<std::size_t>>;
  explicit Serving(Count count) : count_(std::move(count)) { ++*count_; }
  ~Serving() { --*count_; }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

 private:
  const Count count_;
};

// The resources that the executors of a device share.
struct SharedResources {
  std::shared_ptr<ModelCache> models;
  std::shared_ptr<Preparer> loader;  // it captures what a gpulet must have before it serves
  std::shared_ptr<Preparer> capturer;
  Serving::Count serving;
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
      : target_{device, configure_process(device)},
        shared_(std::move(shared)),
        capturer_(captures_later() ? own_or_shared_capturer() : nullptr) {}

  void use_memory(std::span<std::byte> memory) override;
  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] partition::DeviceHealth health() const override;
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& request) override;
  [[nodiscard]] partition::LoadStages load_stages() const override { return stages_; }
  void serving() override;
  [[nodiscard]] std::optional<partition::ProcessCondition> condition() const override;
  [[nodiscard]] double error_of(std::uint32_t variant) const override {
    return error_of_variant(variant);
  }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;
  [[nodiscard]] std::string failure_text() const override { return failure_text_; }
  [[nodiscard]] std::size_t depth() const override { return target_.device.is_cpu() ? 1 : kDepth; }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  using ModelPointer = std::shared_ptr<const TorchModel>;
  struct ServedModel {
    ModelPointer model;
    BatchSizes sizes;
  };

  [[nodiscard]] std::shared_ptr<Preparer> own_or_shared_capturer() const {
    return shared_ ? shared_->capturer : std::make_shared<Preparer>();
  }
  [[nodiscard]] std::uint32_t gpu() const {
    return static_cast<std::uint32_t>(target_.device.index());
  }
  // LibTorch 1 cannot capture while other threads use the device.
  [[nodiscard]] bool captures() const {
    return target_.device.is_cuda() && (!shared_ || captures_beside_others());
  }
  // Whether batches can be captured while others run.
  [[nodiscard]] bool captures_later() const {
    return target_.device.is_cuda() && captures_beside_others();
  }
  [[nodiscard]] CaptureTools capture_tools() const {
    if (!captures()) return {};
    return {.make_capture = capture_in_one_pool, .later = capturer_};
  }
  // What load() prepares, and what comes later.
  [[nodiscard]] BatchSizes sizes_for(const ModelToLoad& request) const {
    const std::uint32_t max_batch = std::max(1U, request.max_batch);
    return batch_sizes(captures_later() ? request.planned_batches : std::vector<std::uint32_t>(),
                       max_batch);
  }
  [[nodiscard]] Status initialize_device();
  void move_to_better_sms();
  void use_moved_stream();
  void update_condition();
  [[nodiscard]] Result<std::uint32_t> load_checked(const ModelToLoad& request);
  [[nodiscard]] Result<ModelPointer> load_prepared(const ModelToLoad& request,
                                                   const BatchSizes& sizes);
  [[nodiscard]] Result<TorchModel> load_and_warm_up(const ModelToLoad& request,
                                                    const BatchSizes& sizes);
  [[nodiscard]] Status warm_up_cpu(const ModelToLoad& request, const TorchModel& model) const;
  [[nodiscard]] Status warm_up_all(const ModelToLoad& request, const TorchModel& model);
  [[nodiscard]] bool others_serve() const {
    return shared_ && *shared_->serving > (serving_ ? 1U : 0U);
  }
  [[nodiscard]] Result<const TorchModel*> find(const BatchToRun& batch) const;
  [[nodiscard]] Outputs compute(const TorchModel& model, std::uint32_t count,
                                std::vector<c10::IValue> inputs);
  [[nodiscard]] Outputs compute_in_place(const TorchModel& model, const BatchToRun& batch);
  [[nodiscard]] bool computes_sample(const TorchModel& model, std::uint32_t count);
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin_once(const TorchModel& model,
                                                                 const BatchToRun& batch);

  const ExecutionTarget target_;
  std::optional<SharedResources> shared_;
  const std::shared_ptr<Preparer> capturer_;  // null: everything is captured by load()
  std::optional<gpu::RegisteredMemory> memory_;
  std::map<std::string, ServedModel, std::less<>> models_;
  std::optional<Serving> serving_;  // of a shared device; set once a model is loaded
  std::string failure_text_;
  partition::LoadStages stages_;
  std::uint32_t found_sms_ = 0;
  mutable std::mutex condition_mutex_;
  std::optional<partition::ProcessCondition> condition_;  // guarded by condition_mutex_
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
  found_sms_ = sms.value();
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
    compute_ = std::make_shared<ComputeStream>(target_.device, std::move(green), capture_tools());
    pipeline_ = std::make_unique<DevicePipeline>(target_.device, kDepth);
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::unavailable, short_message(error)).within(where);
  }
}

// Moves to SMs that fewer other executors use, or to more of them, once there are some. Another
// thread makes the stream and its graphs there while batches run on the present one.
void GpuletExecutor::move_to_better_sms() {
  if (!shared_ || !shared_->green) return;
  if (moved_.valid()) {
    if (moved_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) use_moved_stream();
    return;
  }
  if (!shared_->green->move_due()) return;
  std::vector<ServedModel> models;
  for (const auto& [name, served] : models_) models.push_back(served);
  moved_ = shared_->capturer->post(
      [green = *shared_->green, models = std::move(models), device = target_.device,
       tools = capture_tools()]() mutable -> std::shared_ptr<ComputeStream> {
        if (!green.move()) return nullptr;
        try {
          auto compute = std::make_shared<ComputeStream>(device, green.stream(), tools);
          for (const ServedModel& served : models) compute->add(served.model, served.sizes);
          return compute;
        } catch (const std::exception&) {
          return nullptr;  // the present stream goes on, on SMs that others may get as well
        }
      });
}

// Waits for the move under way. Batches in flight keep the stream on which they run.
void GpuletExecutor::use_moved_stream() {
  if (!moved_.valid()) return;
  auto compute = moved_.get();
  if (compute == nullptr) return;
  compute_ = std::move(compute);
  compute_->serve();
}

void GpuletExecutor::serving() {
  if (compute_) compute_->serve();
}

std::optional<partition::ProcessCondition> GpuletExecutor::condition() const {
  const std::lock_guard lock(condition_mutex_);
  return condition_;
}

// Leaves the SMs as they were while a move is under way, which another thread makes.
void GpuletExecutor::update_condition() {
  if (compute_ == nullptr) return;
  const std::lock_guard lock(condition_mutex_);
  if (!condition_) condition_.emplace().sms = found_sms_;
  condition_->sizes_to_capture = static_cast<std::uint32_t>(compute_->sizes_to_capture());
  if (!shared_ || !shared_->green || moved_.valid()) return;
  condition_->sms = shared_->green->sms();
  condition_->shared_sms = shared_->green->shared_sms();
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

Status GpuletExecutor::warm_up_cpu(const ModelToLoad& request, const TorchModel& model) const {
  const std::uint32_t max_batch = std::max(1U, request.max_batch);
  const bool known = request.variant != 0 && request.variant == model.variant;
  const Result<WarmUp> warmed = warm_up(model, known ? 1 : 2, request.planned_batches, max_batch);
  if (!warmed.ok()) return warmed.status();
  if (Status status = check_answers(model, target_, max_batch, warmed.value().largest_batch);
      !status.ok())
    return status;
  settle_heap(static_cast<std::size_t>(kHeapPerTensorByte *
                                       static_cast<double>(warmed.value().peak_bytes)));
  return {};
}

Result<TorchModel> GpuletExecutor::load_and_warm_up(const ModelToLoad& request,
                                                    const BatchSizes& sizes) {
  Result<TorchModel> loaded = load_model(request, target_, stages_);
  if (!loaded.ok()) return loaded;
  TorchModel& model = loaded.value();
  const Clock::time_point begin = Clock::now();
  if (target_.device.is_cpu()) {
    if (Status status = warm_up_cpu(request, model); !status.ok()) return status;
    stages_.warm += Clock::now() - begin;
    return loaded;
  }
  const auto warm = warm_up_sizes(model, sizes.first, target_.device);
  if (!warm.ok()) return warm.status();
  if (Status status =
          check_answers(model, target_, std::max(1U, request.max_batch), warm.value().back());
      !status.ok())
    return status;
  const Clock::time_point ran = Clock::now();
  if (captures()) {
    model.replayable_sizes =
        replayable_sizes(capture_in_one_pool(), model, warm.value(), target_.device);
    // It would stop the streams that serve.
    if (!others_serve()) release_unused_memory();
  }
  compute_->stream()->synchronize();  // other executors run the model on their own streams
  stages_.warm += ran - begin;
  stages_.capture += Clock::now() - ran;
  return loaded;
}

// The model, with its graphs on compute_. On a shared device with streams, the loader calls it.
Result<GpuletExecutor::ModelPointer> GpuletExecutor::load_prepared(const ModelToLoad& request,
                                                                   const BatchSizes& sizes) {
  const StreamScope scope(compute_ ? compute_->stream() : std::nullopt);
  ModelPointer model;
  if (shared_) {
    auto cached = shared_->models->get(request, [&] { return load_and_warm_up(request, sizes); });
    if (!cached.ok()) return cached.status();
    model = std::move(cached).value();
    // Here, so that the next load() on this thread counts it.
    if (!serving_) serving_.emplace(shared_->serving);
  } else {
    auto loaded = load_and_warm_up(request, sizes);
    if (!loaded.ok()) return loaded.status();
    model = std::make_shared<const TorchModel>(std::move(loaded).value());
  }
  const Clock::time_point begin = Clock::now();
  if (compute_) compute_->add(model, sizes);
  stages_.capture += Clock::now() - begin;
  return model;
}

// Without graphs this thread runs the network, and makes its own plans for each size.
Status GpuletExecutor::warm_up_all(const ModelToLoad& request, const TorchModel& model) {
  const Clock::time_point begin = Clock::now();
  const StreamScope scope(compute_->stream());
  std::vector<std::uint32_t> sizes = sizes_for(request).first;  // the budget is for these first
  const auto later = sizes_for(request).later;
  sizes.insert(sizes.end(), later.begin(), later.end());
  const auto warm = warm_up_sizes(model, sizes, target_.device);
  stages_.warm += Clock::now() - begin;
  return warm.status();
}

Result<std::uint32_t> GpuletExecutor::load_checked(const ModelToLoad& request) {
  stages_ = {};
  if (Status ready = initialize_device(); !ready.ok()) return ready;
  use_moved_stream();
  const BatchSizes sizes = sizes_for(request);
  const auto load = [this, &request, &sizes] { return load_prepared(request, sizes); };
  Result<ModelPointer> loaded = shared_ && compute_ ? shared_->loader->post(load).get() : load();
  if (!loaded.ok()) return loaded.status();
  ModelPointer model = std::move(loaded).value();
  if (compute_ && model->replayable_sizes.empty() && (shared_ || !sizes.later.empty())) {
    if (Status warm = warm_up_all(request, *model); !warm.ok()) return warm;
  }
  const std::uint32_t variant = model->variant;
  ServedModel& served = models_[request.name];
  if (served.model != nullptr && served.model != model && compute_) compute_->erase(*served.model);
  served = {std::move(model), sizes};
  update_condition();
  return variant;
}

Result<std::uint32_t> GpuletExecutor::load(const ModelToLoad& request) {
  const std::string where = "model '" + request.name + "': " + request.file;
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
  const TorchModel& model = *found->second.model;
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
  return pipeline_->begin(model, batch, compute_->stream(), ComputeStream::hold(compute_),
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
    update_condition();
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

  [[nodiscard]] Result<std::unique_ptr<Executor>> add_executor(
      Share share, std::span<const std::string> models) override {
    SharedResources resources{.models = models_,
                              .loader = loader_,
                              .capturer = capturer_,
                              .serving = serving_,
                              .green = std::nullopt};
    if (green_) {
      auto added = green_->add(share, models);
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
  const std::shared_ptr<Preparer> loader_ = std::make_shared<Preparer>();
  const std::shared_ptr<Preparer> capturer_ = std::make_shared<Preparer>();
  const Serving::Count serving_ = std::make_shared<std::atomic<std::size_t>>(0);
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
