#include "executor/torch/replays.h"

#include <c10/core/InferenceMode.h>

#include <numeric>
#include <stdexcept>

#include "executor/torch/numerics.h"

namespace gpulet::executor {
namespace {

constexpr std::size_t kMostTaken = 64;
constexpr std::size_t kMostBytes = 1U << 30U;  // of inputs and outputs, of all together
// Of the output's largest magnitude: replaying does the same work in another order, at most.
constexpr double kSameAnswer = 1e-3;

std::size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::size_t{0},
      [](std::size_t sum, const at::Tensor& tensor) { return sum + tensor.nbytes(); });
}

}  // namespace

void Replays::forget(const LoadedModel& model) {
  largest_.erase(&model);
  std::erase_if(taken_, [&model](const auto& taken) { return taken.first.first == &model; });
}

bool Replays::allowed(const LoadedModel& model, std::uint32_t count) const {
  const auto found = largest_.find(&model);
  if (found == largest_.end() || count > found->second) return false;
  return count == found->second || (count & (count - 1)) == 0;
}

Result<std::vector<at::Tensor>> Replays::answers(const LoadedModel& model, std::uint32_t count,
                                                 std::vector<c10::IValue> inputs,
                                                 bool may_take_down) {
  const c10::InferenceMode inference;
  const auto found = taken_.find({&model, count});
  if (found == taken_.end()) {
    auto outputs = executor::answers(model.network, model, count, inputs);
    if (outputs.ok() && may_take_down && allowed(model, count) &&
        !take_down(model, count, inputs, outputs.value())) {
      largest_.erase(&model);
    }
    return outputs;
  }
  Taken& taken = found->second;
  for (std::size_t i = 0; i < inputs.size(); ++i) taken.inputs[i].copy_(inputs[i].toTensor());
  taken.work->replay();
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : taken.outputs) outputs.push_back(output.clone());
  return outputs;
}

bool Replays::take_down(const LoadedModel& model, std::uint32_t count,
                        const std::vector<c10::IValue>& inputs,
                        const std::vector<at::Tensor>& expected) {
  if (model.network.changes_itself) return false;
  std::size_t bytes = bytes_of(expected);
  for (const c10::IValue& input : inputs) bytes += input.toTensor().nbytes();
  for (const auto& [key, other] : taken_) bytes += other.bytes;
  if (taken_.size() >= kMostTaken || bytes > kMostBytes) return true;  // another may go
  Taken& taken = taken_[{&model, count}];
  try {
    std::vector<c10::IValue> own;
    for (const c10::IValue& input : inputs) {
      taken.inputs.push_back(input.toTensor().clone());
      own.emplace_back(taken.inputs.back());
    }
    taken.work = capture_([&model, &taken, own, count] {
      auto outputs = executor::answers(model.network, model, count, own);
      if (!outputs.ok()) throw std::runtime_error(outputs.status().message());
      taken.outputs = std::move(outputs).value();
    });
    taken.work->replay();
    taken.bytes = bytes_of(taken.inputs) + bytes_of(taken.outputs);
    if (error_between(expected, taken.outputs) <= kSameAnswer) return true;
  } catch (const std::exception&) {
    // Then it runs as it is.
  }
  taken_.erase({&model, count});
  return false;
}

}  // namespace gpulet::executor
