#include "executor/torch/loading.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "executor/torch/numerics.h"
#include "executor/torch/process.h"
#include "executor/torch/tensors.h"
#include "gpulet/core/time.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSameAnswer = 1e-4;  // of the output's largest magnitude
constexpr double kEvenlyFast =
    1.05;  // within the noise of the timing; then larger batches gain more (vgg16: 12 %)
constexpr int kTimedRuns = 3;
constexpr Duration kTimingBudget = std::chrono::milliseconds(300);
constexpr Duration kWarmUpBudget = std::chrono::milliseconds(200);

// Executor::load's forms: how the network was rewritten in the lowest bits, then in what numbers it
// computes, and in the upper half how far that was from the file: the upper half of a float.
enum class Rewriting : std::uint32_t { frozen = 1, optimised = 2 };
constexpr std::uint32_t kRewritingMask = 0x3;
constexpr unsigned kPrecisionBit = 2;
constexpr unsigned kChannelsLastBit = 4;
constexpr unsigned kErrorBit = 16;
constexpr std::uint32_t kLowerHalf = (1U << kErrorBit) - 1;

std::uint32_t numerics_bits(const Numerics& numerics) {
  return static_cast<std::uint32_t>(numerics.precision) << kPrecisionBit |
         static_cast<std::uint32_t>(numerics.channels_last) << kChannelsLastBit;
}

std::uint32_t form_of(Rewriting rewriting, const Numerics& numerics, double error) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(error));
  const std::uint32_t rounded_up = (bits + kLowerHalf) & ~kLowerHalf;
  return static_cast<std::uint32_t>(rewriting) | numerics_bits(numerics) |
         (as_in_file(numerics) ? 0 : rounded_up);
}

// Of what one thread does, only its own time counts: others may keep the core from it.
Clock::duration working_time(const Place& place) {
  if (!place.device.is_cpu() || place.threads > 1) return Clock::now().time_since_epoch();
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// The shortest of a few runs of a batch of one that ran before.
Duration time_of_one(const Network& network, const LoadedModel& model, const Place& place) {
  const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, 1, place.device);
  Duration best = Duration::max();
  const Clock::time_point begin = Clock::now();
  for (int run = 0; run < kTimedRuns && Clock::now() - begin < kTimingBudget; ++run) {
    const Clock::duration start = working_time(place);
    const Result<std::vector<at::Tensor>> outputs = answers(network, model, 1, inputs);
    if (!outputs.ok()) return Duration::max();
    for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    best = std::min<Duration>(best, working_time(place) - start);
  }
  return best;
}

// A network of one file, in the ways that it is tried. Each reads the file anew: all forms of one
// module stay in memory, weights included, for as long as any of them does.
class File {
 public:
  File(std::filesystem::path path, const c10::Device& device)
      : path_(std::move(path)), device_(device) {}

  // Frozen; as it was where it cannot be frozen, because it changes its own attributes.
  [[nodiscard]] Result<Network> frozen(const Numerics& numerics) const {
    Result<torch::jit::Module> module = read();
    if (!module.ok()) return module.status();
    Network network{.module = {}, .numerics = numerics};
    try {
      network.module = torch::jit::freeze(module.value());
    } catch (const std::exception&) {
      network.module = std::move(module).value();
      network.changes_itself = true;
    }
    if (!as_in_file(numerics)) convert(network.module, numerics);
    return network;
  }

  // After optimize_for_inference, where LibTorch can do that to it.
  [[nodiscard]] Result<std::optional<Network>> optimised(const Numerics& numerics) const {
    Result<Network> network = frozen(numerics);
    if (!network.ok()) return network.status();
    if (network.value().changes_itself) return std::optional<Network>();
    try {
      network.value().module = torch::jit::optimize_for_inference(network.value().module);
      return std::optional<Network>(std::move(network).value());
    } catch (const std::exception&) {
      return std::optional<Network>();
    }
  }

 private:
  [[nodiscard]] Result<torch::jit::Module> read() const {
    try {
      torch::jit::Module module = torch::jit::load(path_.string(), device_);
      module.eval();
      return module;
    } catch (const std::exception& error) {
      return Status(
          StatusCode::invalid,
          "is not a TorchScript file; export it with torch.jit.save: " + own_words(error));
    }
  }

  std::filesystem::path path_;
  c10::Device device_;
};

std::string percent(double fraction) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%.3g %%", 100 * fraction);
  return text;
}

Status too_far(const Numerics& numerics, double error) {
  const std::string far = std::isfinite(error) ? "differ from those of the file by " +
                                                     percent(error) + " of their largest magnitude"
                                               : "are not numbers like those of the file";
  return {StatusCode::invalid,
          "computed " + describe(numerics) + ", its answers to a sample " + far +
              ", more than the largest_error of " + percent(numerics.largest_error) +
              R"(; allow more, or take "precision" and "memory_format" out of its entry)"};
}

// Fails where the network does not answer like the file.
Result<double> checked_error(const std::vector<at::Tensor>& expected, const Network& network,
                             const LoadedModel& model, const c10::Device& device) {
  const Result<std::vector<at::Tensor>> answered = try_batch(network, model, 1, device);
  if (!answered.ok()) {
    return Status(answered.status().code(),
                  "computed " + describe(network.numerics) + ", it " + answered.status().message() +
                      R"(; take "precision" and "memory_format" out of its entry)");
  }
  const double error = error_between(expected, answered.value());
  if (!(error <= network.numerics.largest_error)) return too_far(network.numerics, error);
  return error;
}

// The faster of both forms that answer alike. Fails where the file is not what was declared.
Status read_fastest(const File& file, const Numerics& numerics, LoadedModel& model,
                    const Place& place) {
  Numerics own = numerics;
  own.precision = Precision::full;
  own.channels_last = false;
  Result<Network> frozen = file.frozen(own);
  if (!frozen.ok()) return frozen.status();
  const Result<std::vector<at::Tensor>> expected =
      try_batch(frozen.value(), model, 1, place.device);
  if (!expected.ok()) return expected.status();
  double error = 0;
  if (!as_in_file(numerics)) {
    frozen = file.frozen(numerics);
    if (!frozen.ok()) return frozen.status();
    const Result<double> found =
        checked_error(expected.value(), frozen.value(), model, place.device);
    if (!found.ok()) return found.status();
    error = found.value();
  }
  model.network = std::move(frozen).value();
  model.form = form_of(Rewriting::frozen, numerics, error);

  Result<std::optional<Network>> optimised = file.optimised(numerics);
  if (!optimised.ok()) return optimised.status();
  if (!optimised.value()) return {};
  Network& other = *optimised.value();
  const Result<std::vector<at::Tensor>> answered = try_batch(other, model, 1, place.device);
  if (!answered.ok()) return {};
  const double other_error = error_between(expected.value(), answered.value());
  const double bound = as_in_file(numerics) ? kSameAnswer : numerics.largest_error;
  if (!(other_error <= bound)) return {};
  const Duration frozen_time = time_of_one(model.network, model, place);
  const Duration optimised_time = time_of_one(other, model, place);
  if (to_ms(optimised_time) > kEvenlyFast * to_ms(frozen_time)) return {};
  model.form = form_of(Rewriting::optimised, numerics, other_error);
  model.network = std::move(other);
  return {};
}

// In the form that was found to be the faster one before, and near enough. False where that is not
// known.
Result<bool> read_as(std::uint32_t form, const File& file, const Numerics& numerics,
                     LoadedModel& model) {
  const std::uint32_t rewriting = form & kRewritingMask;
  const bool same_numbers = (form & kLowerHalf & ~kRewritingMask) == numerics_bits(numerics);
  if (!same_numbers || error_of_form(form) > numerics.largest_error) return false;
  if (rewriting == static_cast<std::uint32_t>(Rewriting::frozen)) {
    Result<Network> network = file.frozen(numerics);
    if (!network.ok()) return network.status();
    model.network = std::move(network).value();
  } else if (rewriting == static_cast<std::uint32_t>(Rewriting::optimised)) {
    Result<std::optional<Network>> network = file.optimised(numerics);
    if (!network.ok()) return network.status();
    if (!network.value()) return false;
    model.network = *std::move(network).value();
  } else {
    return false;
  }
  model.form = form;
  return true;
}

}  // namespace

double error_of_form(std::uint32_t form) {
  return static_cast<double>(std::bit_cast<float>(form & ~kLowerHalf));
}

Result<LoadedModel> load_model(const ModelToLoad& request, const Place& place) {
  Result<LoadedModel> made = declared(request);
  if (!made.ok()) return made;
  LoadedModel& model = made.value();
  const File file(request.file, place.device);
  const Numerics numerics = in_force(request.numerics, place.device);
  const Result<bool> known = read_as(request.form, file, numerics, model);
  if (!known.ok()) return known.status();
  if (!known.value()) {
    if (Status status = read_fastest(file, numerics, model, place); !status.ok()) return status;
  }
  return made;
}

Result<Warmed> warm_up(const LoadedModel& model, std::uint32_t least, std::uint32_t max_batch,
                       const c10::Device& device) {
  const Clock::time_point begin = Clock::now();
  Status status;
  for (std::uint32_t count = 1;; count = std::min(2 * count, max_batch)) {
    const Clock::time_point start = Clock::now();
    const std::size_t peak = peak_tensor_bytes([&] {
      const Result<std::vector<at::Tensor>> outputs =
          try_batch(model.network, model, count, device);
      status = outputs.status();
      if (device.is_cpu() || !status.ok()) return;
      for (const at::Tensor& output : outputs.value()) (void)output.cpu();  // waits for the device
    });
    if (!status.ok()) return status;
    const Clock::time_point end = Clock::now();
    const bool affordable = end - begin + 2 * (end - start) <= kWarmUpBudget || count < least;
    if (count == max_batch || !affordable) return Warmed{count, peak / count * max_batch};
  }
}

}  // namespace gpulet::executor
