#include "gpulet/executor/torch/torch_executor.h"

#include <c10/core/InferenceMode.h>
#include <torch/script.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "executor/batch_layout.h"
#include "executor/torch/process.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSameAnswer = 1e-4;  // of the output's largest magnitude
constexpr double kEvenlyFast =
    1.05;  // within the noise of the timing; then larger batches gain more (vgg16: 12 %)
constexpr int kTimedRuns = 3;
constexpr Duration kTimingBudget = std::chrono::milliseconds(300);
constexpr Duration kWarmUpBudget = std::chrono::milliseconds(200);
constexpr double kBeyondTensors = 1.25;  // what libraries take beside tensors

// Executor::load's forms.
constexpr std::uint32_t kFrozen = 1;
constexpr std::uint32_t kOptimised = 2;

struct LoadedModel {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::size_t> input_sizes;  // bytes of one request's part of each
  std::vector<std::size_t> output_sizes;
  std::uint32_t form = kFrozen;
  torch::jit::Module module;
};

// How batches are run here.
struct Place {
  c10::Device device;
  int threads = 1;
};

// Of what one thread does, only its own time counts: others may keep the core from it.
Clock::duration working_time(const Place& place) {
  if (!place.device.is_cpu() || place.threads > 1) return Clock::now().time_since_epoch();
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

Result<std::vector<at::Tensor>> forward(torch::jit::Module& module,
                                        std::vector<c10::IValue> inputs) {
  try {
    const c10::InferenceMode inference;
    return tensors_of(module.forward(std::move(inputs)));
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error));
  }
}

// Answers to a sample batch, which must be as declared.
Result<std::vector<at::Tensor>> try_batch(torch::jit::Module& module, const LoadedModel& model,
                                          std::uint32_t count, const c10::Device& device) {
  Result<std::vector<at::Tensor>> outputs =
      forward(module, sample_inputs(model.inputs, count, device));
  if (!outputs.ok()) {
    std::string inputs;
    for (const TensorSpec& spec : model.inputs)
      inputs += (inputs.empty() ? "" : ", ") + to_string(spec);
    return Status(StatusCode::invalid, "does not run on a batch of " + std::to_string(count) +
                                           " with the declared inputs " + inputs + ": " +
                                           outputs.status().message());
  }
  if (Status status = check_outputs(model.outputs, count, outputs.value()); !status.ok())
    return status;
  return outputs;
}

// The shortest of a few runs of a batch of one that ran before.
Duration time_of_one(torch::jit::Module& module, const LoadedModel& model, const Place& place) {
  const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, 1, place.device);
  Duration best = Duration::max();
  const Clock::time_point begin = Clock::now();
  for (int run = 0; run < kTimedRuns && Clock::now() - begin < kTimingBudget; ++run) {
    const Clock::duration start = working_time(place);
    const Result<std::vector<at::Tensor>> outputs = forward(module, inputs);
    if (!outputs.ok()) return Duration::max();
    for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    best = std::min<Duration>(best, working_time(place) - start);
  }
  return best;
}

Result<torch::jit::Module> read(const std::filesystem::path& file, const c10::Device& device) {
  try {
    torch::jit::Module module = torch::jit::load(file.string(), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    return Status(StatusCode::invalid,
                  "is not a TorchScript file; export it with torch.jit.save: " + own_words(error));
  }
}

// The frozen model; as it was where it cannot be frozen, because it changes its own attributes.
torch::jit::Module freeze_if_possible(const torch::jit::Module& module) {
  try {
    return torch::jit::freeze(module);
  } catch (const std::exception&) {
    return module;
  }
}

// The model after optimize_for_inference, where LibTorch can do that to it. Takes a module of its
// own: all forms of one module stay in memory, weights included, for as long as any of them does.
std::optional<torch::jit::Module> optimise(const torch::jit::Module& module) {
  try {
    torch::jit::Module frozen = torch::jit::freeze(module);
    return torch::jit::optimize_for_inference(frozen);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The faster of both forms that answer alike. Fails where the file is not what was declared.
Status read_fastest(const std::filesystem::path& file, LoadedModel& model, const Place& place) {
  const Result<torch::jit::Module> module = read(file, place.device);
  if (!module.ok()) return module.status();
  model.form = kFrozen;
  model.module = freeze_if_possible(module.value());
  const Result<std::vector<at::Tensor>> expected = try_batch(model.module, model, 1, place.device);
  if (!expected.ok()) return expected.status();

  const Result<torch::jit::Module> again = read(file, place.device);
  if (!again.ok()) return again.status();
  std::optional<torch::jit::Module> optimised = optimise(again.value());
  if (!optimised) return {};
  const Result<std::vector<at::Tensor>> answered = try_batch(*optimised, model, 1, place.device);
  if (!answered.ok() || !close(expected.value(), answered.value(), kSameAnswer)) return {};
  const Duration frozen_time = time_of_one(model.module, model, place);
  const Duration optimised_time = time_of_one(*optimised, model, place);
  if (to_ms(optimised_time) > kEvenlyFast * to_ms(frozen_time)) return {};
  model.form = kOptimised;
  model.module = *std::move(optimised);
  return {};
}

// In the form that was found to be the faster one before. False where that is not known.
Result<bool> read_as(std::uint32_t form, const std::filesystem::path& file, LoadedModel& model,
                     const Place& place) {
  if (form != kFrozen && form != kOptimised) return false;
  const Result<torch::jit::Module> module = read(file, place.device);
  if (!module.ok()) return module.status();
  std::optional<torch::jit::Module> made =
      form == kFrozen ? freeze_if_possible(module.value()) : optimise(module.value());
  if (!made) return false;
  model.form = form;
  model.module = *std::move(made);
  return true;
}

// Runs batches of 1, 2, 4, .. max_batch: the first `least` of these, and on while the next one,
// taken to cost twice the last, fits the budget. Returns the bytes of tensors that one of max_batch
// would take.
Result<std::size_t> warm_up(LoadedModel& model, std::uint32_t least, std::uint32_t max_batch,
                            const c10::Device& device) {
  // The profiling executor, on other devices than the CPU, observes one run and rewrites the graph
  // in the next.
  const int runs = device.is_cpu() ? 1 : 2;
  const Clock::time_point begin = Clock::now();
  Status status;
  for (std::uint32_t count = 1;; count = std::min(2 * count, max_batch)) {
    const Clock::time_point start = Clock::now();
    const std::size_t peak = peak_tensor_bytes([&] {
      for (int run = 0; run < runs && status.ok(); ++run)
        status = try_batch(model.module, model, count, device).status();
    });
    if (!status.ok()) return status;
    const Clock::time_point end = Clock::now();
    const bool affordable = end - begin + 2 * (end - start) <= kWarmUpBudget || count < least;
    if (count == max_batch || !affordable) return peak / count * max_batch;
  }
}

}  // namespace

class TorchExecutor::Impl {
 public:
  explicit Impl(const c10::Device& device) : place_{device, set_process_up(device)} {}

  Result<std::uint32_t> load(const ModelToLoad& request) {
    LoadedModel model;
    model.inputs = request.inputs;
    model.outputs = request.outputs;
    for (const auto& [specs, sizes] : {std::pair(&model.inputs, &model.input_sizes),
                                       std::pair(&model.outputs, &model.output_sizes)}) {
      Result<std::vector<std::size_t>> computed = tensor_sizes(*specs);
      if (!computed.ok()) return computed.status();
      *sizes = std::move(computed).value();
    }
    const Result<bool> known = read_as(request.form, request.file, model, place_);
    if (!known.ok()) return known.status();
    if (!known.value()) {
      if (Status status = read_fastest(request.file, model, place_); !status.ok()) return status;
    }
    const Result<std::size_t> largest =
        warm_up(model, known.value() ? 1 : 2, std::max(1U, request.max_batch), place_.device);
    if (!largest.ok()) return largest.status();
    const std::uint32_t form = model.form;
    models_.insert_or_assign(request.name, std::move(model));
    if (place_.device.is_cpu()) {
      settle_heap(static_cast<std::size_t>(kBeyondTensors * static_cast<double>(largest.value())));
    }
    return form;
  }

  Result<std::size_t> run(const BatchToRun& batch) {
    const auto found = models_.find(batch.model);
    if (found == models_.end()) return not_loaded(batch.model);
    LoadedModel& model = found->second;
    if (Status status = check_sizes(batch, model.input_sizes, model.output_sizes); !status.ok())
      return status;
    const Result<std::vector<at::Tensor>> outputs = forward(
        model.module,
        wrap_inputs(model.inputs, model.input_sizes, batch.count, batch.input, place_.device));
    if (!outputs.ok()) return outputs.status().within("model '" + found->first + "'");
    // A shape may depend on the values of an input: then this batch was the first to show it.
    if (Status status = check_outputs(model.outputs, batch.count, outputs.value()); !status.ok()) {
      return Status(StatusCode::internal, status.message()).within("model '" + found->first + "'");
    }
    return copy_outputs(outputs.value(), batch.output);
  }

 private:
  const Place place_;
  std::map<std::string, LoadedModel, std::less<>> models_;
};

TorchExecutor::TorchExecutor(const std::string& device) {
  try {
    impl_ = std::make_unique<Impl>(c10::Device(device));
  } catch (const c10::Error& error) {
    throw std::invalid_argument("device '" + device + "': " + own_words(error));
  }
}

TorchExecutor::~TorchExecutor() = default;

Result<std::uint32_t> TorchExecutor::load(const ModelToLoad& model) {
  const std::string where = "model '" + model.name + "': " + model.file.string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(model.file, ignored)) {
    return Status(StatusCode::not_found, where + ": no such file; export or fetch it first");
  }
  try {
    Result<std::uint32_t> form = impl_->load(model);
    if (!form.ok()) return form.status().within(where);
    return form;
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error)).within(where);
  }
}

Result<std::size_t> TorchExecutor::run(const BatchToRun& batch) {
  try {
    return impl_->run(batch);
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error));
  }
}

}  // namespace gpulet::executor
