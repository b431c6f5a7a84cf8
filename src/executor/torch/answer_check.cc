#include "executor/torch/answer_check.h"

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "executor/row_check.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

// Of an output's largest magnitude: kernels add in another order in other batches. A GPU rounds the
// inputs of convolutions to ten bits, and half precision has no more.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOnGpu = 2e-2;
constexpr double kToleranceOfHalf = 5e-2;

double tolerance_of(const TorchModel& model, const ExecutionTarget& target) {
  if (model.network.numerics.precision != Precision::full) return kToleranceOfHalf;
  return target.device.is_cpu() ? kTolerance : kToleranceOnGpu;
}

// Random numbers that start with a seed, until the end of its life.
class Seeded {
 public:
  Seeded(const c10::Device& device, std::uint64_t seed)
      : generator_(at::globalContext().defaultGenerator(device)) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~Seeded() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  Seeded(const Seeded&) = delete;
  Seeded& operator=(const Seeded&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

// While it lives, released memory is filled with a byte, and new memory with its complement. So
// what a network returns without having written it differs from what it returned before.
class FilledMemory {
 public:
  explicit FilledMemory(int byte) { ::mallopt(M_PERTURB, byte); }
  ~FilledMemory() { ::mallopt(M_PERTURB, 0); }
  FilledMemory(const FilledMemory&) = delete;
  FilledMemory& operator=(const FilledMemory&) = delete;
};

// The second run finds the first byte in memory that the first run released, and in all other
// memory: as a floating-point number it is large.
constexpr std::array kFills{0x5a, 0xa5};

Result<std::vector<std::byte>> run_once(const TorchModel& model, const ExecutionTarget& target,
                                        std::uint32_t count, std::span<const std::byte> input,
                                        std::uint32_t draw) {
  const c10::InferenceMode inference;
  std::vector<c10::IValue> inputs = wrap_inputs(model.inputs, model.input_sizes, count, input);
  for (c10::IValue& each : inputs)
    each = each.toTensor().to(target.device, /*non_blocking=*/false, /*copy=*/true);
  const Seeded seeded(target.device, draw);
  const auto outputs = run_network(model.network, model, count, std::move(inputs));
  if (!outputs.ok()) {
    return Status(StatusCode::invalid,
                  "does not run on a batch of " + std::to_string(count) +
                      " with the declared inputs: " + short_message(outputs.status().message()));
  }
  std::vector<std::byte> bytes(count * std::accumulate(model.output_sizes.begin(),
                                                       model.output_sizes.end(), std::size_t{0}));
  (void)copy_outputs(outputs.value(), bytes);
  return bytes;
}

}  // namespace

Status check_answers(const TorchModel& model, const ExecutionTarget& target,
                     std::uint32_t max_batch, std::uint32_t largest_batch) {
  RowCheck rows(model.inputs, model.outputs, tolerance_of(model, target),
                [&](std::uint32_t count, std::span<const std::byte> input, std::uint32_t draw) {
                  return run_once(model, target, count, input, draw);
                });
  Status status = rows.begin();
  if (max_batch > 1) {
    if (status.ok()) status = rows.check(2);
    if (status.ok()) status = rows.check(std::max(largest_batch, std::min(3U, max_batch)));
  }
  for (const int fill : kFills) {
    const FilledMemory filled(fill);
    if (status.ok()) status = rows.check_repeats();
  }
  return status;
}

}  // namespace gpulet::executor
