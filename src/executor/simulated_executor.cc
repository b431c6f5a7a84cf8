#include "gpulet/executor/simulated_executor.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "gpulet/core/tensor.h"

namespace gpulet::executor {
namespace {

// The input bytes of one request: in place for a model with one input, else gathered in `scratch`.
std::span<const std::byte> request_bytes(std::span<const std::byte> input,
                                         const std::vector<std::size_t>& sizes, std::size_t count,
                                         std::size_t request, std::vector<std::byte>& scratch) {
  if (sizes.size() == 1) return input.subspan(request * sizes.front(), sizes.front());
  scratch.clear();
  std::size_t tensor_begin = 0;
  for (const std::size_t size : sizes) {
    const auto part = input.subspan(tensor_begin + request * size, size);
    scratch.insert(scratch.end(), part.begin(), part.end());
    tensor_begin += count * size;
  }
  return scratch;
}

void fill_repeating(std::span<std::byte> target, std::span<const std::byte> pattern) {
  for (std::size_t done = 0; done < target.size(); done += pattern.size()) {
    std::memcpy(target.data() + done, pattern.data(),
                std::min(pattern.size(), target.size() - done));
  }
}

// As many of the pattern's elements as fit; none: empty ones.
void fill_with_elements(std::span<std::byte> slot, std::span<const std::byte> pattern,
                        std::size_t count) {
  const auto given = pattern.first(std::min(pattern.size(), slot.size()));
  const std::size_t end = elements_end(given, count).value_or(0);
  std::copy_n(given.begin(), end, slot.begin());
  std::fill(slot.begin() + static_cast<std::ptrdiff_t>(end), slot.end(), std::byte{0});
}

}  // namespace

void sleep_until_precisely(std::chrono::steady_clock::time_point end) {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  std::this_thread::sleep_until(end);
}

SimulatedExecutor::SimulatedExecutor(WaitUntil wait_until) : wait_until_(std::move(wait_until)) {}

Result<std::uint32_t> SimulatedExecutor::load(const ModelToLoad& model) {
  Result<std::vector<std::size_t>> inputs = tensor_sizes(model.inputs);
  if (!inputs.ok()) return inputs.status().within("model '" + model.name + "'");
  Result<std::vector<std::size_t>> outputs = tensor_sizes(model.outputs);
  if (!outputs.ok()) return outputs.status().within("model '" + model.name + "'");
  if (inputs.value().empty())
    return Status(StatusCode::invalid, "model '" + model.name + "' declares no input");
  Model& loaded = models_[model.name];
  loaded = {std::move(inputs).value(), std::move(outputs).value(), {}};
  for (const TensorSpec& spec : model.outputs)
    loaded.output_elements.push_back(spec.type == DataType::bytes ? element_count(spec) : 0);
  return std::uint32_t{0};
}

Result<std::size_t> SimulatedExecutor::run(const BatchToRun& batch) {
  const auto end = std::chrono::steady_clock::now() + batch.simulated_latency;
  const auto found = models_.find(batch.model);
  if (found == models_.end()) return not_loaded(batch.model);
  const Model& model = found->second;
  if (Status status = check_sizes(batch, model.input_sizes, model.output_sizes); !status.ok())
    return status;

  std::size_t written = 0;
  std::vector<std::byte> scratch;
  for (std::size_t request = 0; request < batch.count; ++request) {
    const auto answer =
        request_bytes(batch.input, model.input_sizes, batch.count, request, scratch);
    std::size_t tensor_begin = 0;
    for (std::size_t i = 0; i < model.output_sizes.size(); ++i) {
      const std::size_t size = model.output_sizes[i];
      const auto part = batch.output.subspan(tensor_begin + request * size, size);
      if (model.output_elements[i] > 0) {
        fill_with_elements(part, answer, model.output_elements[i]);
      } else {
        fill_repeating(part, answer);
      }
      tensor_begin += batch.count * size;
    }
    written = tensor_begin;
  }
  if (batch.simulated_latency > Duration::zero()) wait_until_(end);
  return written;
}

}  // namespace gpulet::executor
