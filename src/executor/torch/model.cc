#include "executor/torch/model.h"

#include <c10/core/InferenceMode.h>
#include <sys/stat.h>
#include <torch/csrc/jit/ir/alias_analysis.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "executor/row_check.h"
#include "executor/torch/batch_sizes.h"
#include "executor/torch/model_file.h"
#include "executor/torch/package_file.h"
#include "executor/torch/process.h"
#include "executor/torch/shape_arithmetic.h"
#include "executor/torch/tensors.h"
#include "gpulet/base/time.h"

namespace gpulet::executor {
namespace {

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(values.size());
  for (const c10::IValue& value : values) tensors.push_back(value.toTensor());
  return tensors;
}

Result<std::vector<at::Tensor>> forward(const TorchNetwork& network,
                                        std::vector<c10::IValue> inputs) {
  try {
    if (network.package) return network.package->run(tensors_in(inputs));
    torch::jit::Module module = network.module;  // a handle: its forward() is not const
    return tensors_of(module.forward(std::move(inputs)));
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, whole_message(error));
  }
}

}  // namespace

Result<std::vector<at::Tensor>> run_network(const TorchNetwork& network, const TorchModel& model,
                                            std::uint32_t count, std::vector<c10::IValue> inputs) {
  const c10::InferenceMode inference;
  model.conversions.apply(inputs);
  to_numerics(network.numerics, inputs);
  Result<std::vector<at::Tensor>> outputs = forward(network, std::move(inputs));
  if (!outputs.ok()) return outputs;
  if (network.numerics.precision != Precision::full) to_declared(model.outputs, outputs.value());
  if (Status status = check_outputs(model.outputs, count, outputs.value()); !status.ok())
    return status;
  return outputs;
}

// ---- loading

namespace {

using Clock = std::chrono::steady_clock;

// Bounds on the difference between variants, of the output's largest magnitude. GPUs round the
// inputs of convolutions to ten bits (TF32), so two algorithms differ by up to some 1e-3 on the
// example models.
constexpr double kSameOutputs = 1e-4;
constexpr double kSameOutputsOnGpu = 5e-3;
// Within the noise of the timing, the optimized variant wins: larger batches gain more (vgg16:
// 12 %).
constexpr double kEquallyFast = 1.05;
constexpr int kTimedRuns = 3;
constexpr Duration kTimingBudget = std::chrono::milliseconds(300);
constexpr Duration kWarmUpBudget = std::chrono::milliseconds(200);
constexpr Duration kDeviceWarmUpBudget = std::chrono::seconds(5);

// The bits of a variant. Bits 0 and 1: how the network was rewritten. Then the numerics. Bits 16 to
// 31: the error against the file, as the upper half of a float.
enum class Rewrite : std::uint32_t { frozen = 1, optimized = 2 };
constexpr std::uint32_t kRewriteMask = 0x3;
constexpr unsigned kPrecisionBit = 2;
constexpr unsigned kChannelsLastBit = 4;
constexpr unsigned kErrorBit = 16;
constexpr std::uint32_t kLowerHalf = (1U << kErrorBit) - 1;

std::uint32_t numerics_bits(const Numerics& numerics) {
  return static_cast<std::uint32_t>(numerics.precision) << kPrecisionBit |
         static_cast<std::uint32_t>(numerics.channels_last) << kChannelsLastBit;
}

std::uint32_t variant_of(Rewrite rewrite, const Numerics& numerics, double error) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(error));
  const std::uint32_t rounded_up = (bits + kLowerHalf) & ~kLowerHalf;
  return static_cast<std::uint32_t>(rewrite) | numerics_bits(numerics) |
         (as_in_file(numerics) ? 0 : rounded_up);
}

// The model as declared, without a network. Fails with invalid if a shape has no size, or if an
// input cannot be converted.
Result<TorchModel> declared_model(const ModelToLoad& request, const c10::Device& device) {
  TorchModel model;
  model.name = request.name;
  model.inputs = request.inputs;
  model.outputs = request.outputs;
  if (Status one = check_whole(request); !one.ok()) return one;
  for (const auto& [specs, sizes] : {std::pair(&model.inputs, &model.input_sizes),
                                     std::pair(&model.outputs, &model.output_sizes)}) {
    if (Status types = check_torchscript_types(*specs); !types.ok()) return types;
    Result<std::vector<std::size_t>> computed = tensor_sizes(*specs);
    if (!computed.ok()) return computed.status();
    *sizes = std::move(computed).value();
  }
  GPULET_TRY(model.conversions, InputConversions::of(model.inputs, device));
  return model;
}

// Runs a sample batch. A failure to run is invalid here: the file is at fault.
Result<std::vector<at::Tensor>> run_sample(const TorchNetwork& network, const TorchModel& model,
                                           std::uint32_t count, const c10::Device& device) {
  Result<std::vector<at::Tensor>> outputs =
      run_network(network, model, count, sample_inputs(model.inputs, count, device));
  if (outputs.ok() || outputs.status().code() != StatusCode::internal) return outputs;
  std::string inputs;
  std::string fix;
  for (const TensorSpec& spec : model_inputs(model.inputs)) {
    inputs += (inputs.empty() ? "" : ", ") + to_string(spec);
    if (spec.shape.size() > 1 && spec.shape.front() == 1) {
      fix =
          "; a declared shape is that of one request, without the batch: leave out the first 1 "
          "of " +
          spec.name + " if it is the batch";
    }
  }
  return Status(StatusCode::invalid, "does not run on a batch of " + std::to_string(count) +
                                         " with the declared inputs " + inputs + ": " +
                                         short_message(outputs.status().message()) + fix);
}

// A clock for timing one network. Work of a single thread is timed in CPU time, because other
// processes may use the core in between.
Clock::duration work_time(const ExecutionTarget& target) {
  if (!target.device.is_cpu() || target.threads > 1) return Clock::now().time_since_epoch();
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// The shortest of a few runs of a batch of one. REQUIRES: such a batch has run before.
Duration time_of_one(const TorchNetwork& network, const TorchModel& model,
                     const ExecutionTarget& target) {
  const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, 1, target.device);
  Duration best = Duration::max();
  const Clock::time_point begin = Clock::now();
  for (int run = 0; run < kTimedRuns && Clock::now() - begin < kTimingBudget; ++run) {
    const Clock::duration start = work_time(target);
    const Result<std::vector<at::Tensor>> outputs = run_network(network, model, 1, inputs);
    if (!outputs.ok()) return Duration::max();
    for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    best = std::min<Duration>(best, work_time(target) - start);
  }
  return best;
}

// Adds the time of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(Duration& total) : total_(total) {}
  ~Stopwatch() { total_ += Clock::now() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Duration& total_;
  const Clock::time_point begin_ = Clock::now();
};

// Makes the variants of one file's network. It reads the file for each: variants that are made from
// one module keep each other's weights in memory.
class NetworkFile {
 public:
  NetworkFile(ModelFile file, bool archive, const c10::Device& device)
      : file_(std::move(file)), is_archive_(archive), device_(device) {}

  // The time in all calls: reading the file, and building networks from it.
  [[nodiscard]] Duration time_read() const { return file_.time_read(); }
  [[nodiscard]] Duration time_built() const { return time_in_all_ - file_.time_read(); }

  // The frozen network. A network that changes its own attributes cannot be frozen and stays as it
  // is.
  [[nodiscard]] Result<TorchNetwork> frozen(const Numerics& numerics) {
    const Stopwatch watch(time_in_all_);
    return freeze(numerics);
  }

  // The network after optimize_for_inference; empty if LibTorch cannot optimize it.
  [[nodiscard]] Result<std::optional<TorchNetwork>> optimized(const Numerics& numerics) {
    const Stopwatch watch(time_in_all_);
    Result<TorchNetwork> network = freeze(numerics);
    if (!network.ok()) return network.status();
    if (network.value().changes_itself) return std::optional<TorchNetwork>();
    try {
      network.value().module = torch::jit::optimize_for_inference(network.value().module);
      return std::optional<TorchNetwork>(std::move(network).value());
    } catch (const std::exception&) {
      return std::optional<TorchNetwork>();
    }
  }

 private:
  [[nodiscard]] Result<TorchNetwork> freeze(const Numerics& numerics) const {
    Result<torch::jit::Module> module = read();
    if (!module.ok()) return module.status();
    TorchNetwork network{.module = {}, .numerics = numerics};
    try {
      network.module = torch::jit::freeze(module.value());
    } catch (const std::exception&) {
      network.module = std::move(module).value();
      network.changes_itself = true;
    }
    if (const auto forward = network.module.find_method("forward"); forward && !device_.is_cpu())
      keep_shape_arithmetic_on_cpu(*forward->graph());
    if (!as_in_file(numerics)) convert(network.module, numerics);
    return network;
  }

  [[nodiscard]] Result<torch::jit::Module> read() const {
    try {
      torch::jit::Module module = file_.load(device_);
      module.eval();
      return module;
    } catch (const std::exception& error) {
      // A process of one gpulet has another executor for ONNX (executor/formats).
      const std::string hint =
          is_archive_ ? ""
                      : "; ONNX models run under mps, mig and on CPUs, and not under green, "
                        "because ONNX Runtime's memory and streams belong to the process";
      return Status(StatusCode::invalid,
                    "is not a TorchScript file; export it with torch.jit.save: " +
                        short_message(error) + hint);
    }
  }

  ModelFile file_;
  bool is_archive_;
  c10::Device device_;
  Duration time_in_all_{};
};

std::string percent(double fraction) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%.3g %%", 100 * fraction);
  return text;
}

Status error_too_large(const Numerics& numerics, double error) {
  const std::string difference =
      std::isfinite(error)
          ? "differ from those of the file by " + percent(error) + " of their largest magnitude"
          : "cannot be compared with those of the file";
  return {StatusCode::invalid,
          "computed " + describe(numerics) + ", its outputs for a sample " + difference +
              "; the limit is a largest_error of " + percent(numerics.largest_error) +
              R"(; allow more, or remove "precision" and "memory_format" from its entry)"};
}

// The error of a converted network. Fails if it is too large.
Result<double> checked_error(const std::vector<at::Tensor>& expected, const TorchNetwork& network,
                             const TorchModel& model, const c10::Device& device) {
  const Result<std::vector<at::Tensor>> outputs = run_sample(network, model, 1, device);
  if (!outputs.ok()) {
    return Status(outputs.status().code(),
                  "computed " + describe(network.numerics) + ", it " + outputs.status().message() +
                      R"(; remove "precision" and "memory_format" from its entry)");
  }
  const double error = error_between(expected, outputs.value());
  if (!(error <= network.numerics.largest_error)) return error_too_large(network.numerics, error);
  return error;
}

// Loads the fastest variant whose outputs are right. Fails if the file is not as declared.
Status load_fastest(NetworkFile& file, const Numerics& numerics, TorchModel& model,
                    const ExecutionTarget& target) {
  Numerics own = numerics;
  own.precision = Precision::full;
  own.channels_last = false;
  Result<TorchNetwork> frozen = file.frozen(own);
  if (!frozen.ok()) return frozen.status();
  const Result<std::vector<at::Tensor>> expected =
      run_sample(frozen.value(), model, 1, target.device);
  if (!expected.ok()) return expected.status();
  double error = 0;
  if (!as_in_file(numerics)) {
    frozen = file.frozen(numerics);
    if (!frozen.ok()) return frozen.status();
    const Result<double> checked =
        checked_error(expected.value(), frozen.value(), model, target.device);
    if (!checked.ok()) return checked.status();
    error = checked.value();
  }
  model.network = std::move(frozen).value();
  model.variant = variant_of(Rewrite::frozen, numerics, error);

  Result<std::optional<TorchNetwork>> optimized = file.optimized(numerics);
  if (!optimized.ok()) return optimized.status();
  if (!optimized.value()) return {};
  TorchNetwork& other = *optimized.value();
  const Result<std::vector<at::Tensor>> outputs = run_sample(other, model, 1, target.device);
  if (!outputs.ok()) return {};
  const double other_error = error_between(expected.value(), outputs.value());
  const double same = target.device.is_cpu() ? kSameOutputs : kSameOutputsOnGpu;
  const double bound = as_in_file(numerics) ? same : numerics.largest_error;
  if (!(other_error <= bound)) return {};
  const Duration frozen_time = time_of_one(model.network, model, target);
  const Duration optimized_time = time_of_one(other, model, target);
  if (to_ms(optimized_time) > kEquallyFast * to_ms(frozen_time)) return {};
  model.variant = variant_of(Rewrite::optimized, numerics, other_error);
  model.network = std::move(other);
  return {};
}

// Loads the variant that an earlier load chose. False if `variant` does not name one, or one with
// other numerics or a larger error than requested.
Result<bool> load_variant(std::uint32_t variant, NetworkFile& file, const Numerics& numerics,
                          TorchModel& model) {
  const std::uint32_t rewrite = variant & kRewriteMask;
  const bool same_numerics = (variant & kLowerHalf & ~kRewriteMask) == numerics_bits(numerics);
  if (!same_numerics || error_of_variant(variant) > numerics.largest_error) return false;
  if (rewrite == static_cast<std::uint32_t>(Rewrite::frozen)) {
    Result<TorchNetwork> network = file.frozen(numerics);
    if (!network.ok()) return network.status();
    model.network = std::move(network).value();
  } else if (rewrite == static_cast<std::uint32_t>(Rewrite::optimized)) {
    Result<std::optional<TorchNetwork>> network = file.optimized(numerics);
    if (!network.ok()) return network.status();
    if (!network.value()) return false;
    model.network = *std::move(network).value();
  } else {
    return false;
  }
  model.variant = variant;
  return true;
}

bool may_write_inputs(const torch::jit::Module& module) {
  const auto forward = module.find_method("forward");
  if (!forward) return true;
  const auto graph = forward->graph();
  const torch::jit::AliasDb aliases(graph);
  const auto inputs = graph->inputs();
  return std::any_of(inputs.begin() + 1, inputs.end(), [&aliases](const torch::jit::Value* input) {
    return aliases.hasWriters(input);
  });
}

// Loads the network of a package, which is compiled already. What it keeps between batches is not
// visible: it may write to its inputs, and executors must not share it.
Status load_package(const ModelToLoad& request, const c10::Device& device, TorchModel& model) {
  const char* const allowed =
      std::getenv(kNativeModelsVariable);  // NOLINT(concurrency-mt-unsafe): no thread sets it
  if (allowed == nullptr || std::string_view(allowed) != "on") {
    return {StatusCode::invalid,
            "is an AOTInductor package, which has native code; allow such models with "
            R"("native_models": "on" in the backend's file, or with --native-models)"};
  }
  if (!as_in_file(request.numerics)) {
    return {StatusCode::invalid,
            R"(is an AOTInductor package, which computes in the numbers of its export; remove )"
            R"("precision" and "memory_format" from its entry)"};
  }
  auto package = open_package(request.file, device);
  if (!package.ok()) return package.status();
  model.network = {.module = {},
                   .package = std::move(package).value(),
                   .changes_itself = true,
                   .writes_inputs = true};
  model.variant = static_cast<std::uint32_t>(Rewrite::frozen);
  return run_sample(model.network, model, 1, device).status();
}

}  // namespace

double error_of_variant(std::uint32_t variant) {
  return static_cast<double>(std::bit_cast<float>(variant & ~kLowerHalf));
}

Result<TorchModel> load_model(const ModelToLoad& request, const ExecutionTarget& target,
                              partition::LoadStages& stages) {
  const Clock::time_point begin = Clock::now();
  Result<TorchModel> made = declared_model(request, target.device);
  if (!made.ok()) return made;
  TorchModel& model = made.value();
  if (is_package(request.file)) {
    if (Status status = load_package(request, target.device, model); !status.ok()) return status;
    stages.read += Clock::now() - begin;
    return made;
  }
  Result<ModelFile> mapped = ModelFile::open(request.file);
  if (!mapped.ok()) return mapped.status();
  NetworkFile file(std::move(mapped).value(), is_archive(request.file), target.device);
  const Numerics numerics = supported(request.numerics, target.device);
  const Result<bool> known = load_variant(request.variant, file, numerics, model);
  if (!known.ok()) return known.status();
  if (!known.value()) {
    if (Status status = load_fastest(file, numerics, model, target); !status.ok()) return status;
  }
  model.network.writes_inputs = may_write_inputs(model.network.module);
  stages.read += file.time_read();
  stages.copy += file.time_built();
  stages.warm += Clock::now() - begin - file.time_read() - file.time_built();
  return made;
}

Result<WarmUp> warm_up(const TorchModel& model, std::uint32_t min_sizes,
                       std::span<const std::uint32_t> planned, std::uint32_t max_batch) {
  const std::uint32_t largest = batch_sizes(planned, max_batch).first.back();
  const Clock::time_point begin = Clock::now();
  Status status;
  for (std::uint32_t count = 1;; count = std::min(2 * count, largest)) {
    const Clock::time_point start = Clock::now();
    const std::size_t peak = peak_tensor_bytes(
        [&] { status = run_sample(model.network, model, count, c10::kCPU).status(); });
    if (!status.ok()) return count > 1 ? takes_one_only(status) : status;
    const Clock::time_point end = Clock::now();
    const bool affordable = end - begin + 2 * (end - start) <= kWarmUpBudget || count < min_sizes;
    if (count == largest || !affordable) return WarmUp{count, peak / count * max_batch};
  }
}

Result<std::vector<std::uint32_t>> warm_up_sizes(const TorchModel& model,
                                                 std::span<const std::uint32_t> sizes,
                                                 const c10::Device& device) {
  const Clock::time_point begin = Clock::now();
  std::vector<std::uint32_t> warm;
  for (const std::uint32_t size : sizes) {
    if (!warm.empty() && Clock::now() - begin > kDeviceWarmUpBudget) break;
    const auto outputs = run_sample(model.network, model, size, device);
    if (!outputs.ok()) return size > 1 ? takes_one_only(outputs.status()) : outputs.status();
    for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    warm.push_back(size);
  }
  return warm;
}

// ---- sharing

namespace {

// Identifies the file by inode and times: its path may differ each time.
std::string cache_key(const ModelToLoad& request) {
  std::ostringstream key;
  struct stat file {};
  if (::stat(request.file.c_str(), &file) == 0) {
    key << file.st_dev << ' ' << file.st_ino << ' ' << file.st_size << ' ' << file.st_mtim.tv_sec
        << ' ' << file.st_mtim.tv_nsec;
  } else {
    key << request.file;
  }
  for (const auto* specs : {&request.inputs, &request.outputs}) {
    key << '\n';
    for (const TensorSpec& spec : *specs)
      key << to_string(spec) << ' ' << conversion_text(spec) << ' ';
  }
  key << '\n'
      << to_string(request.numerics.precision) << ' ' << request.numerics.channels_last << ' '
      << std::hexfloat << request.numerics.largest_error;
  return key.str();
}

}  // namespace

std::shared_ptr<ModelCache::Entry> ModelCache::entry_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  // Drops expired entries that no other thread is about to load.
  std::erase_if(entries_, [](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->model.expired();
  });
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

Result<std::shared_ptr<const TorchModel>> ModelCache::get(const ModelToLoad& request,
                                                          const Load& load) {
  const std::shared_ptr<Entry> entry = entry_of(cache_key(request));
  const std::lock_guard lock(entry->loading);
  if (auto model = entry->model.lock()) return model;
  Result<TorchModel> loaded = load();
  if (!loaded.ok()) return loaded.status();
  auto model = std::make_shared<const TorchModel>(std::move(loaded).value());
  if (!model->network.changes_itself) entry->model = model;
  return model;
}

}  // namespace gpulet::executor
