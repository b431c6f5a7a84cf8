#include "gpulet/executor/onnx/onnx_executor.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "executor/onnx/onnx_library.h"
#include "executor/onnx/onnx_model.h"
#include "executor/onnx/onnx_sessions.h"
#include "executor/row_check.h"
#include "gpulet/base/files.h"
#include "gpulet/base/text.h"
#include "gpulet/base/time.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kWarmUpBudget = std::chrono::milliseconds(200);
// Within it, a second batch shows what the order of rows hid in the first one.
constexpr Duration kSecondBatchBudget = std::chrono::seconds(1);
// Of the largest magnitude of an output: the CPU adds in another order in other batches, and a GPU
// rounds the inputs of convolutions to ten bits.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOnGpu = 2e-2;

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
            .threads =
                std::max(1, parse_number<int>(environment_variable("OMP_NUM_THREADS")).value_or(1)),
            .spins = environment_variable("OMP_WAIT_POLICY") != "PASSIVE"}) {}

  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& request) override;
  [[nodiscard]] partition::LoadStages load_stages() const override { return stages_; }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;
  [[nodiscard]] std::string failure_text() const override { return failure_text_; }

 private:
  [[nodiscard]] Status load_checked(const ModelToLoad& request);
  [[nodiscard]] Result<SampleContent> check(const OnnxModel& model, std::uint32_t max_batch) const;

  struct Loaded {
    OnnxModel model;
    SampleContent content;  // of a sample that it computes
  };
  OnnxSessions sessions_;
  std::map<std::string, Loaded, std::less<>> models_;
  std::string failure_text_;        // of the last run
  partition::LoadStages stages_{};  // of the last load; the library reads the file as it builds
};

// A GPU's share is held if an MPS daemon has this process or it runs in a MIG instance.
Result<partition::FoundShare> OnnxExecutor::found_share() {
  const std::optional<std::uint32_t> gpu = sessions_.target().gpu;
  if (!gpu) return partition::FoundShare{};
  GPULET_TRY(const auto driver, gpu::CudaDriver::load());
  GPULET_TRY(const auto held, driver.is_held(*gpu));
  GPULET_TRY(const auto sms, driver.usable_sms(*gpu));
  return partition::FoundShare{.held = held, .sms = sms};
}

// Runs a batch as serving does. Fails with invalid where the file is at fault.
Result<std::vector<std::byte>> run_sample(const OnnxModel& model, std::uint32_t count,
                                          std::span<const std::byte> input) {
  const std::vector<std::size_t>& sizes = model.outputs().sizes;
  std::vector<std::byte> output(count *
                                std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  const OnnxOutcome outcome = model.run(count, input, output);
  if (!outcome.shapes.ok()) return outcome.shapes;
  if (!outcome.strings.ok()) return outcome.strings;
  if (outcome.failure.ok()) return output;
  return Status(StatusCode::invalid, "does not run on a batch of " + std::to_string(count) +
                                         " with the declared inputs: " + outcome.failure.message);
}

// Runs batches of 2, 4, 8, ... of which the first has to be run, and the second unless it takes
// long.
Status check_batches(RowCheck& rows, std::uint32_t max_batch) {
  const Clock::time_point begin = Clock::now();
  std::uint32_t count = 2;
  for (std::uint32_t batches = 1;; ++batches) {
    const Clock::time_point start = Clock::now();
    if (Status status = rows.check(count); !status.ok()) return status;
    const Clock::time_point end = Clock::now();
    const Duration budget = batches == 1 ? kSecondBatchBudget : kWarmUpBudget;
    const bool affordable = end - begin + 2 * (end - start) <= budget;
    if (!affordable || (batches > 1 && count == max_batch)) return {};
    count = std::min(2 * count, max_batch);
  }
}

// Warms the model up, too.
Result<SampleContent> OnnxExecutor::check(const OnnxModel& model, std::uint32_t max_batch) const {
  RowCheck rows(model.inputs().specs, model.outputs().specs,
                sessions_.target().gpu ? kToleranceOnGpu : kTolerance,
                [&model](std::uint32_t count, std::span<const std::byte> input,
                         std::uint32_t /*draw*/) { return run_sample(model, count, input); });
  Status status = rows.begin();
  if (status.ok() && max_batch > 1) status = check_batches(rows, max_batch);
  // The library has a state of its own for random numbers.
  if (status.ok() && !model.random()) status = rows.check_repeats();
  if (!status.ok()) return status;
  return rows.content();
}

bool computes_sample(const OnnxModel& model, std::uint32_t count, SampleContent content) {
  const std::vector<std::uint32_t> rows(count, 0);
  return run_sample(model, count, sample_batch(model.inputs().specs, rows, content)).ok();
}

Status OnnxExecutor::load_checked(const ModelToLoad& request) {
  const Result<OnnxLibrary>& library = OnnxLibrary::of_process();
  if (!library.ok()) return {StatusCode::internal, library.status().message()};
  // A model that is loaded again may have other content at the same path.
  if (models_.contains(request.name)) sessions_.forget(request.file);
  const Clock::time_point begin = Clock::now();
  GPULET_TRY(OnnxModel model, OnnxModel::load(library.value(), request, sessions_));
  const Clock::time_point built = Clock::now();
  const auto content = check(model, std::max(1U, request.max_batch));
  stages_ = {.copy = built - begin, .warm = Clock::now() - built};
  if (!content.ok()) return content.status();
  models_.insert_or_assign(request.name, Loaded{std::move(model), content.value()});
  return {};
}

Result<std::uint32_t> OnnxExecutor::load(const ModelToLoad& request) {
  const std::string where = "model '" + request.name + "': " + request.file;
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
  failure_text_.clear();
  try {
    const auto found = models_.find(batch.model);
    if (found == models_.end()) return not_loaded(batch.model);
    const auto& [model, content] = found->second;
    Status sizes = check_sizes(batch, model.inputs().sizes, model.outputs().sizes);
    if (sizes.ok() && batch.count > 1 && are_whole(model.outputs().specs))
      sizes = {StatusCode::internal, "the model takes one request at a time"};
    if (!sizes.ok()) return sizes;
    OnnxOutcome outcome = model.run(batch.count, batch.input, batch.output);
    if (!outcome.failure.ok()) {
      failure_text_ = outcome.failure.message;
      if (!computes_sample(model, batch.count, content)) return model_at_fault(batch.model);
      // A transient failure, such as a lack of memory, does not repeat.
      outcome = model.run(batch.count, batch.input, batch.output);
    }
    if (!outcome.failure.ok()) return input_at_fault(outcome.failure.message);
    failure_text_ = outcome.shapes.message();
    if (!outcome.shapes.ok()) return input_at_fault({});
    if (!outcome.strings.ok()) return outcome.strings;
    return outcome.written;
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  }
}

}  // namespace

void prepare_onnx() { (void)OnnxLibrary::of_process(); }

Result<std::vector<std::vector<std::int64_t>>> find_output_shapes(const ModelToLoad& model) {
  const Result<OnnxLibrary>& library = OnnxLibrary::of_process();
  if (!library.ok()) return Status(StatusCode::internal, library.status().message());
  try {
    OnnxSessions sessions(OnnxTarget{.gpu = std::nullopt, .threads = 1, .spins = false});
    GPULET_TRY(const OnnxModel opened, OnnxModel::open(library.value(), model, sessions));
    Status why;
    for (const auto content :
         {SampleContent::varied, SampleContent::careful, SampleContent::plain}) {
      auto shapes = opened.output_shapes(sample_batch(model.inputs, {{0U}}, content));
      if (shapes.ok()) return shapes;
      why = shapes.status();
    }
    return why;
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  }
}

std::unique_ptr<Executor> make_onnx_executor(const std::string& device) {
  return std::make_unique<OnnxExecutor>(device);
}

}  // namespace gpulet::executor
