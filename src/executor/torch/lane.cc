#include "executor/torch/lane.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "executor/batch_layout.h"
#include "executor/torch/cuda_parts.h"
#include "executor/torch/loading.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/process.h"
#include "executor/torch/replays.h"
#include "executor/torch/shelf.h"
#include "executor/torch/tensors.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::executor {
namespace {

constexpr double kBeyondTensors = 1.25;  // what libraries take beside tensors
// One batch's copies hide behind another's execution; a third would only wait longer.
constexpr std::size_t kDepth = 2;

using Answers = Result<std::vector<at::Tensor>>;

Status failed(const BatchToRun& batch, const Status& why) {
  return Status(StatusCode::internal, why.message())
      .within("model '" + std::string(batch.model) + "'");
}

c10::Device parsed(const std::string& text) {
  try {
    const c10::Device device(text);
    return device.is_cpu() || device.has_index() ? device : c10::Device(device.type(), 0);
  } catch (const c10::Error& error) {
    throw std::invalid_argument("device '" + text + "': " + own_words(error));
  }
}

class Lane final : public Executor {
 public:
  Lane(const c10::Device& device, std::optional<SharedParts> shared)
      : place_{device, set_process_up(device)}, shared_(std::move(shared)) {}

  void use_memory(std::span<std::byte> memory) override;
  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] partition::DeviceHealth health() const override;
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& request) override;
  [[nodiscard]] double error_of(std::uint32_t form) const override { return error_of_form(form); }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;
  [[nodiscard]] std::size_t depth() const override { return place_.device.is_cpu() ? 1 : kDepth; }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  using Held = std::shared_ptr<const LoadedModel>;

  [[nodiscard]] std::uint32_t gpu() const {
    return static_cast<std::uint32_t>(place_.device.index());
  }
  [[nodiscard]] Status bring_up();
  [[nodiscard]] bool overlaps() const {
    return shared_ && shared_->green && shared_->green->overlaps();
  }
  void find_stream();
  [[nodiscard]] Result<std::uint32_t> take(const ModelToLoad& request);
  [[nodiscard]] Result<LoadedModel> load_and_warm(const ModelToLoad& request);
  [[nodiscard]] Status take_down(const LoadedModel& model, std::uint32_t largest);
  [[nodiscard]] Result<const LoadedModel*> find(const BatchToRun& batch) const;
  [[nodiscard]] Answers work(const LoadedModel& model, std::uint32_t count,
                             std::vector<c10::IValue> inputs);
  [[nodiscard]] Answers work_on_input(const LoadedModel& model, const BatchToRun& batch);
  [[nodiscard]] bool computes_sample(const LoadedModel& model, std::uint32_t count);
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin_once(const LoadedModel& model,
                                                                 const BatchToRun& batch);

  const Place place_;
  std::optional<SharedParts> shared_;
  std::optional<gpu::RegisteredMemory> memory_;
  std::map<std::string, Held, std::less<>> models_;
  // Of a device with streams, once it is up:
  void* green_stream_ = nullptr;  // that compute_ is
  std::optional<c10::Stream> compute_;
  std::optional<Replays> replays_;
  std::unique_ptr<Pipeline> pipeline_;
};

void Lane::use_memory(std::span<std::byte> memory) {
  if (!place_.device.is_cuda() || !built_with_cuda() || memory.empty()) return;
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return;
  auto registered = driver.value().register_memory(gpu(), memory);
  if (registered.ok()) memory_ = std::move(registered).value();
}

Result<partition::FoundShare> Lane::found_share() {
  if (place_.device.is_cpu()) return partition::FoundShare{};
  if (Status up = bring_up(); !up.ok()) return up;
  if (!place_.device.is_cuda()) return partition::FoundShare{};
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

partition::DeviceHealth Lane::health() const {
  if (!place_.device.is_cuda()) return partition::DeviceHealth::works;
  try {
    return health_of(place_.device.index());
  } catch (const std::exception&) {
    return partition::DeviceHealth::lost;
  }
}

// The first use of the device.
Status Lane::bring_up() {
  if (place_.device.is_cpu() || pipeline_ != nullptr) return {};
  const std::string where = "device '" + place_.device.str() + "'";
  if (place_.device.is_cuda() && !built_with_cuda()) {
    return {StatusCode::unavailable,
            where +
                ": this gpulet-proxy was built with a LibTorch that has no CUDA; build it with "
                "one that has (CMAKE_PREFIX_PATH), or serve on the CPU"};
  }
  try {
    if (place_.device.is_cuda()) wait_asleep(place_.device.index());
    (void)at::zeros({1}, at::TensorOptions(place_.device)).cpu();
    compute_ = new_stream(place_.device);
    if (place_.device.is_cuda() && (!shared_ || captures_beside_others())) {
      replays_.emplace([pool = make_capture_pool()](const std::function<void()>& work) {
        return capture(pool, work);
      });
    }
    find_stream();
    pipeline_ = std::make_unique<Pipeline>(place_.device, kDepth);
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::unavailable, own_words(error)).within(where);
  }
}

// Where the next batch runs. A lane may only move while none of it is on the device.
void Lane::find_stream() {
  if (!shared_ || !shared_->green || (pipeline_ != nullptr && !pipeline_->empty())) return;
  // What was taken down runs on the SMs where it was, and asking for the stream may end those.
  if (replays_ && overlaps()) replays_->forget_work();
  void* const stream = shared_->green->stream();
  if (stream == green_stream_) return;
  green_stream_ = stream;
  compute_ = stream_from_outside(stream, place_.device.index());
  if (replays_) replays_->forget_work();
}

Answers Lane::work(const LoadedModel& model, std::uint32_t count, std::vector<c10::IValue> inputs) {
  if (!replays_) return answers(model.network, model, count, std::move(inputs));
  return replays_->answers(model, count, std::move(inputs), !overlaps());
}

Answers Lane::work_on_input(const LoadedModel& model, const BatchToRun& batch) {
  return work(model, batch.count,
              wrap_inputs(model.inputs, model.input_sizes, batch.count, batch.input));
}

// Asked after a batch has failed, to tell whether its input is at fault. The failure itself does
// not tell: the TorchScript interpreter makes one kind of exception of whatever was thrown.
bool Lane::computes_sample(const LoadedModel& model, std::uint32_t count) {
  const Under guard(compute_);
  const Answers answered = work(model, count, sample_inputs(model.inputs, count, place_.device));
  if (compute_) compute_->synchronize();
  return answered.ok();
}

// Batches of these sizes are replayed from now on, where they can be.
Status Lane::take_down(const LoadedModel& model, std::uint32_t largest) {
  if (!replays_) return {};
  replays_->allow(model, largest);
  for (std::uint32_t count = 1;; count = std::min(2 * count, largest)) {
    const Answers answered = work(model, count, sample_inputs(model.inputs, count, place_.device));
    if (!answered.ok()) return answered.status();
    if (count == largest) return {};
  }
}

Result<LoadedModel> Lane::load_and_warm(const ModelToLoad& request) {
  Result<LoadedModel> model = load_model(request, place_);
  if (!model.ok()) return model;
  const bool known = request.form != 0 && request.form == model.value().form;
  const Result<Warmed> warmed =
      warm_up(model.value(), known ? 1 : 2, std::max(1U, request.max_batch), place_.device);
  if (!warmed.ok()) return warmed.status();
  if (place_.device.is_cpu()) {
    settle_heap(
        static_cast<std::size_t>(kBeyondTensors * static_cast<double>(warmed.value().bytes)));
  }
  if (compute_) compute_->synchronize();  // others may run it on streams of theirs
  return model;
}

Result<std::uint32_t> Lane::take(const ModelToLoad& request) {
  if (Status up = bring_up(); !up.ok()) return up;
  find_stream();
  const Under guard(compute_);
  Held held;
  if (shared_) {
    auto taken = shared_->shelf->take(request, [&] { return load_and_warm(request); });
    if (!taken.ok()) return taken.status();
    held = std::move(taken).value();
  } else {
    auto loaded = load_and_warm(request);
    if (!loaded.ok()) return loaded.status();
    held = std::make_shared<const LoadedModel>(std::move(loaded).value());
  }
  // On a GPU each lane has libraries and replays of its own to set up.
  if (!place_.device.is_cpu()) {
    const Result<Warmed> warmed = warm_up(*held, 1, std::max(1U, request.max_batch), place_.device);
    if (!warmed.ok()) return warmed.status();
    if (Status taken = take_down(*held, warmed.value().largest); !taken.ok()) return taken;
    if (compute_) compute_->synchronize();
  }
  const std::uint32_t form = held->form;
  Held& mine = models_[request.name];
  if (mine != nullptr && mine != held && replays_) replays_->forget(*mine);
  mine = std::move(held);
  return form;
}

Result<std::uint32_t> Lane::load(const ModelToLoad& request) {
  const std::string where = "model '" + request.name + "': " + request.file.string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(request.file, ignored)) {
    return Status(StatusCode::not_found, where + ": no such file; export or fetch it first");
  }
  try {
    Result<std::uint32_t> form = take(request);
    if (!form.ok()) return form.status().within(where);
    return form;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::overloaded, "not enough memory").within(where);
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error)).within(where);
  }
}

Result<const LoadedModel*> Lane::find(const BatchToRun& batch) const {
  const auto found = models_.find(batch.model);
  if (found == models_.end()) return not_loaded(batch.model);
  const LoadedModel& model = *found->second;
  if (Status status = check_sizes(batch, model.input_sizes, model.output_sizes); !status.ok())
    return status;
  return &model;
}

Result<std::size_t> Lane::run(const BatchToRun& batch) {
  if (!place_.device.is_cpu()) {
    const auto running = begin(batch);
    return running.ok() ? running.value()->finish() : running.status();
  }
  try {
    const auto model = find(batch);
    if (!model.ok()) return model.status();
    const LoadedModel& held = *model.value();
    const Answers outputs = work_on_input(held, batch);
    if (outputs.ok()) return copy_outputs(outputs.value(), batch.output);
    if (!computes_sample(held, batch.count)) return failed(batch, outputs.status());
    // What was passing, such as a lack of memory, has passed by now.
    const Answers again = work_on_input(held, batch);
    if (again.ok()) return copy_outputs(again.value(), batch.output);
    return input_at_fault(again.status().message());
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error));
  }
}

Result<std::unique_ptr<RunningBatch>> Lane::begin_once(const LoadedModel& model,
                                                       const BatchToRun& batch) {
  return pipeline_->begin(model, batch, compute_, [&](std::vector<c10::IValue> inputs) {
    return work(model, batch.count, std::move(inputs));
  });
}

Result<std::unique_ptr<RunningBatch>> Lane::begin(const BatchToRun& batch) {
  try {
    const auto model = find(batch);
    if (!model.ok()) return model.status();
    if (pipeline_ == nullptr) return Executor::begin(batch);
    find_stream();
    auto running = begin_once(*model.value(), batch);
    if (running.ok()) return running;
    const bool works = health() == partition::DeviceHealth::works;
    if (!works || !computes_sample(*model.value(), batch.count))
      return failed(batch, running.status());
    auto again = begin_once(*model.value(), batch);
    if (again.ok()) return again;
    return input_at_fault(again.status().message());
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error));
  }
}

}  // namespace

std::unique_ptr<Executor> make_lane(const std::string& device, std::optional<SharedParts> shared) {
  return std::make_unique<Lane>(parsed(device), std::move(shared));
}

}  // namespace gpulet::executor
