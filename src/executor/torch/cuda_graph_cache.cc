#include "executor/torch/cuda_graph_cache.h"

#include <c10/core/InferenceMode.h>

#include <numeric>
#include <stdexcept>

#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

constexpr std::size_t kMaxGraphs = 64;
constexpr std::size_t kMaxBytes = 1U << 30U;  // of all inputs and outputs together
// Of the output's largest magnitude. A replay may at most reorder the same work.
constexpr double kLargestReplayError = 1e-3;

std::size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::size_t{0},
      [](std::size_t sum, const at::Tensor& tensor) { return sum + tensor.nbytes(); });
}

std::size_t bytes_of_batch(const TorchModel& model, std::uint32_t size) {
  const auto sum = [](const std::vector<std::size_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  };
  return size * (sum(model.input_sizes) + sum(model.output_sizes));
}

// The outputs of a batch of `count` requests, at most the captured size.
std::vector<at::Tensor> replay(const CapturedBatch& batch, std::uint32_t count,
                               const std::vector<c10::IValue>& inputs) {
  const c10::InferenceMode inference;
  // The other rows keep the numbers of an earlier batch, which are valid for the network.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    batch.inputs[i].narrow(0, 0, count).copy_(inputs[i].toTensor());
  batch.work->replay();
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : *batch.outputs)
    outputs.push_back(output.narrow(0, 0, count).clone());
  return outputs;
}

}  // namespace

std::size_t CudaGraphCache::bytes() const {
  return std::accumulate(
      graphs_.begin(), graphs_.end(), std::size_t{0},
      [](std::size_t sum, const auto& graph) { return sum + graph.second.bytes; });
}

void CudaGraphCache::erase(const TorchModel& model) {
  std::erase_if(graphs_, [&model](const auto& graph) { return graph.first.first == &model; });
}

CapturedBatch capture_batch(const CudaGraphCache::Capture& capture, const TorchModel& model,
                            std::uint32_t size, const c10::Device& device) {
  const c10::InferenceMode inference;
  CapturedBatch batch;
  batch.inputs = zero_inputs(model.inputs, size, device);
  batch.outputs = std::make_shared<std::vector<at::Tensor>>();
  const std::vector<c10::IValue> inputs(batch.inputs.begin(), batch.inputs.end());
  batch.work = capture([&model, inputs, to = batch.outputs, size] {
    auto outputs = run_network(model.network, model, size, inputs);
    if (!outputs.ok()) throw std::runtime_error(outputs.status().message());
    *to = std::move(outputs).value();
  });
  batch.bytes = bytes_of(batch.inputs) + bytes_of(*batch.outputs);
  return batch;
}

bool CudaGraphCache::has_room(const TorchModel& model, std::uint32_t size) const {
  return graphs_.size() < kMaxGraphs && bytes() + bytes_of_batch(model, size) <= kMaxBytes;
}

void CudaGraphCache::add(const TorchModel& model, std::span<const std::uint32_t> sizes,
                         const c10::Device& device) {
  for (const std::uint32_t size : sizes) {
    if (!has_room(model, size)) return;
    graphs_.insert_or_assign({&model, size}, capture_batch(capture_, model, size, device));
  }
}

bool CudaGraphCache::adopt(const TorchModel& model, std::uint32_t size, CapturedBatch batch) {
  return has_room(model, size) && graphs_.try_emplace({&model, size}, std::move(batch)).second;
}

Result<std::vector<at::Tensor>> CudaGraphCache::run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs) {
  const auto found = graphs_.lower_bound({&model, count});
  if (found == graphs_.end() || found->first.first != &model)
    return run_network(model.network, model, count, std::move(inputs));
  return replay(found->second, count, inputs);
}

CudaGraphCache::Capture capture_in_one_pool() {
  return [pool = make_capture_pool()](const std::function<void()>& work) {
    return capture(pool, work);
  };
}

bool replays(const CapturedBatch& batch, std::uint32_t size, const std::vector<c10::IValue>& inputs,
             const std::vector<at::Tensor>& expected) {
  return error_between(expected, replay(batch, size, inputs)) <= kLargestReplayError;
}

std::optional<CapturedBatch> capture_checked(const CudaGraphCache::Capture& capture,
                                             const TorchModel& model, std::uint32_t size,
                                             const c10::Device& device) {
  const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, size, device);
  const auto expected = run_network(model.network, model, size, inputs);
  if (!expected.ok()) return std::nullopt;
  CapturedBatch batch = capture_batch(capture, model, size, device);
  if (!replays(batch, size, inputs, expected.value())) return std::nullopt;
  return batch;
}

std::vector<std::uint32_t> replayable_sizes(const CudaGraphCache::Capture& capture,
                                            const TorchModel& model,
                                            std::span<const std::uint32_t> sizes,
                                            const c10::Device& device) {
  std::vector<std::uint32_t> replayable;
  if (model.network.changes_itself) return replayable;
  std::vector<CapturedBatch> captured;  // all at once, because they share a pool
  try {
    for (const std::uint32_t size : sizes) {
      auto batch = capture_checked(capture, model, size, device);
      if (!batch) break;
      captured.push_back(std::move(*batch));
      replayable.push_back(size);
    }
  } catch (const std::exception&) {
    // The network cannot be captured.
  }
  return replayable;
}

}  // namespace gpulet::executor
