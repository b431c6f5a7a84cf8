#include "gpulet/executor/onnx/onnx_executor.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "executor/onnx/onnx_library.h"
#include "executor/onnx/onnx_model.h"
#include "executor/onnx/onnx_sessions.h"
#include "gpulet/base/text.h"
#include "gpulet/base/time.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kWarmUpBudget = std::chrono::milliseconds(200);
constexpr std::uint32_t kLeastSizes = 2;  // a model for one batch size fails at the second

// Nobody changes the environment of the share any more.
std::string_view variable(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

// Empty: the CPU.
std::optional<std::uint32_t> parse_gpu(const std::string& device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == "cpu") return std::nullopt;
  if (device == kCuda) return 0;
  std::string_view rest = device;
  if (rest.starts_with(kCuda) && rest.substr(kCuda.size()).starts_with(":")) {
    if (const auto number = parse_number<std::uint32_t>(rest.substr(kCuda.size() + 1)))
      return *number;
  }
  throw std::invalid_argument("device '" + device + "' must be cpu, cuda or cuda:N");
}

class OnnxExecutor final : public Executor {
 public:
  explicit OnnxExecutor(const std::string& device)
      : sessions_(OnnxTarget{
            .gpu = parse_gpu(device),
            .threads = std::max(1, parse_number<int>(variable("OMP_NUM_THREADS")).value_or(1)),
            .spins = variable("OMP_WAIT_POLICY") != "PASSIVE"}) {}

  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& request) override;
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;

 private:
  [[nodiscard]] Status load_checked(const ModelToLoad& request);
  [[nodiscard]] static Status warm_up(const OnnxModel& model, std::uint32_t max_batch);

  OnnxSessions sessions_;
  std::map<std::string, OnnxModel, std::less<>> models_;
};

// A GPU's share is held if an MPS daemon has this process or it runs in a MIG instance.
Result<partition::FoundShare> OnnxExecutor::found_share() {
  const std::optional<std::uint32_t> gpu = sessions_.target().gpu;
  if (!gpu) return partition::FoundShare{};
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return driver.status();
  const auto held = driver.value().is_held(*gpu);
  if (!held.ok()) return held.status();
  const auto sms = driver.value().usable_sms(*gpu);
  if (!sms.ok()) return sms.status();
  return partition::FoundShare{.held = held.value(), .sms = sms.value()};
}

Status OnnxExecutor::warm_up(const OnnxModel& model, std::uint32_t max_batch) {
  const Clock::time_point begin = Clock::now();
  std::uint32_t count = 1;
  for (std::uint32_t sizes = 1;; ++sizes) {
    const Clock::time_point start = Clock::now();
    if (Status status = model.run_sample(count); !status.ok()) return status;
    const Clock::time_point end = Clock::now();
    const bool affordable = end - begin + 2 * (end - start) <= kWarmUpBudget;
    if (count == max_batch || (!affordable && sizes >= kLeastSizes)) return {};
    count = std::min(2 * count, max_batch);
  }
}

Status OnnxExecutor::load_checked(const ModelToLoad& request) {
  const Result<OnnxLibrary>& library = OnnxLibrary::of_process();
  if (!library.ok()) return {StatusCode::internal, library.status().message()};
  // A model that is loaded again may have other content at the same path.
  if (models_.contains(request.name)) sessions_.forget(request.file);
  Result<OnnxModel> model = OnnxModel::load(library.value(), request, sessions_);
  if (!model.ok()) return model.status();
  if (Status status = warm_up(model.value(), std::max(1U, request.max_batch)); !status.ok())
    return status;
  models_.insert_or_assign(request.name, std::move(model).value());
  return {};
}

Result<std::uint32_t> OnnxExecutor::load(const ModelToLoad& request) {
  const std::string where = "model '" + request.name + "': " + request.file.string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(request.file, ignored))
    return Status(StatusCode::not_found, where + ": no such file; export or fetch it first");
  try {
    if (Status status = load_checked(request); !status.ok()) return status.within(where);
    return std::uint32_t{0};
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::overloaded, "not enough memory").within(where);
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what()).within(where);
  }
}

Result<std::size_t> OnnxExecutor::run(const BatchToRun& batch) {
  try {
    const auto found = models_.find(batch.model);
    if (found == models_.end()) return not_loaded(batch.model);
    const OnnxModel& model = found->second;
    if (Status sizes = check_sizes(batch, model.inputs().sizes, model.outputs().sizes); !sizes.ok())
      return sizes;
    OnnxOutcome outcome = model.run(batch.count, batch.input, batch.output);
    if (!outcome.failure.ok()) {
      if (!model.run_sample(batch.count).ok()) {
        return Status(StatusCode::internal, outcome.failure.message)
            .within("model '" + std::string(batch.model) + "'");
      }
      // A transient failure, such as a lack of memory, does not repeat.
      outcome = model.run(batch.count, batch.input, batch.output);
    }
    if (!outcome.failure.ok()) return input_at_fault(outcome.failure.message);
    if (!outcome.strings.ok()) return outcome.strings;
    return outcome.written;
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  }
}

}  // namespace

void prepare_onnx() { (void)OnnxLibrary::of_process(); }

std::unique_ptr<Executor> make_onnx_executor(const std::string& device) {
  return std::make_unique<OnnxExecutor>(device);
}

}  // namespace gpulet::executor
