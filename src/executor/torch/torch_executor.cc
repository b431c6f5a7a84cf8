#include "gpulet/executor/torch/torch_executor.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "executor/batch_layout.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSameAnswer = 1e-4;  // of the output's largest magnitude
constexpr double kEvenlyFast =
    1.05;  // within the noise of the timing; then larger batches gain more (vgg16: 12 %)
constexpr int kTimedRuns = 3;
constexpr Duration kTimingBudget = std::chrono::milliseconds(300);
constexpr Duration kWarmUpBudget = std::chrono::seconds(2);

struct LoadedModel {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::size_t> input_sizes;  // bytes of one request's part of each
  std::vector<std::size_t> output_sizes;
  torch::jit::Module module;
};

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
Duration time_of_one(torch::jit::Module& module, const LoadedModel& model,
                     const c10::Device& device) {
  const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, 1, device);
  Duration best = Duration::max();
  const Clock::time_point begin = Clock::now();
  for (int run = 0; run < kTimedRuns && Clock::now() - begin < kTimingBudget; ++run) {
    const Clock::time_point start = Clock::now();
    const Result<std::vector<at::Tensor>> outputs = forward(module, inputs);
    if (!outputs.ok()) return Duration::max();
    for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    best = std::min<Duration>(best, Clock::now() - start);
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
Result<torch::jit::Module> read_fastest(const std::filesystem::path& file, const LoadedModel& model,
                                        const c10::Device& device) {
  const Result<torch::jit::Module> module = read(file, device);
  if (!module.ok()) return module.status();
  torch::jit::Module frozen = freeze_if_possible(module.value());
  const Result<std::vector<at::Tensor>> expected = try_batch(frozen, model, 1, device);
  if (!expected.ok()) return expected.status();

  const Result<torch::jit::Module> again = read(file, device);
  if (!again.ok()) return again.status();
  std::optional<torch::jit::Module> optimised = optimise(again.value());
  if (!optimised) return frozen;
  const Result<std::vector<at::Tensor>> answered = try_batch(*optimised, model, 1, device);
  if (!answered.ok() || !close(expected.value(), answered.value(), kSameAnswer)) return frozen;
  const Duration frozen_time = time_of_one(frozen, model, device);
  const Duration optimised_time = time_of_one(*optimised, model, device);
  return to_ms(optimised_time) <= kEvenlyFast * to_ms(frozen_time) ? *optimised : frozen;
}

// Batches of 1, 2, 4, .. max_batch while the next one, taken to cost twice the last, fits the
// budget. Two are always tried where two are allowed: a model exported for one batch size fails
// there.
Status warm_up(LoadedModel& model, std::uint32_t max_batch, const c10::Device& device) {
  // The profiling executor, on other devices than the CPU, observes one run and rewrites the graph
  // in the next.
  const int runs = device.is_cpu() ? 1 : 2;
  const Clock::time_point begin = Clock::now();
  Duration last{};
  for (std::uint32_t count = 1;;) {
    const Clock::time_point start = Clock::now();
    for (int run = 0; run < runs; ++run) {
      const Result<std::vector<at::Tensor>> outputs = try_batch(model.module, model, count, device);
      if (!outputs.ok()) return outputs.status();
    }
    last = Clock::now() - start;
    const bool affordable = Clock::now() - begin + 2 * last <= kWarmUpBudget || count == 1;
    if (count == max_batch || !affordable) return {};
    count = std::min(2 * count, max_batch);
  }
}

int intra_op_threads() {
  const char* text =
      std::getenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe): nobody sets it here
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

void set_process_up(const c10::Device& device) {
  at::set_num_threads(intra_op_threads());
  try {
    at::set_num_interop_threads(1);
  } catch (const std::exception&) {
    // It may be said once in a process, and has been then.
  }
  if (!device.is_cpu()) return;
  // On the CPU the profiling executor gains nothing over the simple one (measured on all example
  // models) and makes the first two batches of a model slow instead of one.
  torch::jit::getExecutorMode() = false;
  torch::jit::getProfilingMode() = false;
  // Freed memory stays for the next batch. The C library gives large pieces back to the kernel and
  // faults them in again, page by page: a third of the time of a batch of 8 on mobilenet_v2 and
  // ssd_mobilenet_v1.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace

class TorchExecutor::Impl {
 public:
  explicit Impl(const c10::Device& device) : device_(device) { set_process_up(device_); }

  Status load(const ModelToLoad& request) {
    LoadedModel model;
    model.inputs = request.inputs;
    model.outputs = request.outputs;
    for (const auto& [specs, sizes] : {std::pair(&model.inputs, &model.input_sizes),
                                       std::pair(&model.outputs, &model.output_sizes)}) {
      Result<std::vector<std::size_t>> computed = tensor_sizes(*specs);
      if (!computed.ok()) return computed.status();
      *sizes = std::move(computed).value();
    }
    Result<torch::jit::Module> chosen = read_fastest(request.file, model, device_);
    if (!chosen.ok()) return chosen.status();
    model.module = std::move(chosen).value();
    ::malloc_trim(0);  // what loading left behind; with the settings above nothing else returns it
    if (Status status = warm_up(model, std::max(1U, request.max_batch), device_); !status.ok())
      return status;
    models_.insert_or_assign(request.name, std::move(model));
    return {};
  }

  Result<std::size_t> run(const BatchToRun& batch) {
    const auto found = models_.find(batch.model);
    if (found == models_.end()) return not_loaded(batch.model);
    LoadedModel& model = found->second;
    if (Status status = check_sizes(batch, model.input_sizes, model.output_sizes); !status.ok())
      return status;
    const Result<std::vector<at::Tensor>> outputs =
        forward(model.module,
                wrap_inputs(model.inputs, model.input_sizes, batch.count, batch.input, device_));
    if (!outputs.ok()) return outputs.status().within("model '" + found->first + "'");
    // A shape may depend on the values of an input: then this batch was the first to show it.
    if (Status status = check_outputs(model.outputs, batch.count, outputs.value()); !status.ok()) {
      return Status(StatusCode::internal, status.message()).within("model '" + found->first + "'");
    }
    return copy_outputs(outputs.value(), batch.output);
  }

 private:
  c10::Device device_;
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

Status TorchExecutor::load(const ModelToLoad& model) {
  const std::string where = "model '" + model.name + "': " + model.file.string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(model.file, ignored)) {
    return {StatusCode::not_found, where + ": no such file; export or fetch it first"};
  }
  try {
    return impl_->load(model).within(where);
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
