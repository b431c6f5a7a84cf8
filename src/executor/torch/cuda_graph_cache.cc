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

}  // namespace

void CudaGraphCache::erase(const TorchModel& model) {
  largest_.erase(&model);
  std::erase_if(graphs_, [&model](const auto& graph) { return graph.first.first == &model; });
}

bool CudaGraphCache::enabled(const TorchModel& model, std::uint32_t count) const {
  const auto found = largest_.find(&model);
  if (found == largest_.end() || count > found->second) return false;
  return count == found->second || (count & (count - 1)) == 0;
}

Result<std::vector<at::Tensor>> CudaGraphCache::run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs,
                                                    bool may_capture) {
  const c10::InferenceMode inference;
  const auto found = graphs_.find({&model, count});
  if (found == graphs_.end()) {
    auto outputs = run_network(model.network, model, count, inputs);
    if (outputs.ok() && may_capture && enabled(model, count) &&
        !capture(model, count, inputs, outputs.value())) {
      largest_.erase(&model);
    }
    return outputs;
  }
  Graph& graph = found->second;
  for (std::size_t i = 0; i < inputs.size(); ++i) graph.inputs[i].copy_(inputs[i].toTensor());
  graph.work->replay();
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : graph.outputs) outputs.push_back(output.clone());
  return outputs;
}

bool CudaGraphCache::capture(const TorchModel& model, std::uint32_t count,
                             const std::vector<c10::IValue>& inputs,
                             const std::vector<at::Tensor>& expected) {
  if (model.network.changes_itself) return false;
  std::size_t bytes = bytes_of(expected);
  for (const c10::IValue& input : inputs) bytes += input.toTensor().nbytes();
  for (const auto& [key, other] : graphs_) bytes += other.bytes;
  if (graphs_.size() >= kMaxGraphs || bytes > kMaxBytes) return true;  // may fit later
  Graph& graph = graphs_[{&model, count}];
  try {
    std::vector<c10::IValue> own;
    for (const c10::IValue& input : inputs) {
      graph.inputs.push_back(input.toTensor().clone());
      own.emplace_back(graph.inputs.back());
    }
    graph.work = capture_([&model, &graph, own, count] {
      auto outputs = run_network(model.network, model, count, own);
      if (!outputs.ok()) throw std::runtime_error(outputs.status().message());
      graph.outputs = std::move(outputs).value();
    });
    graph.work->replay();
    graph.bytes = bytes_of(graph.inputs) + bytes_of(graph.outputs);
    if (error_between(expected, graph.outputs) <= kLargestReplayError) return true;
  } catch (const std::exception&) {
    // The network cannot be captured.
  }
  graphs_.erase({&model, count});
  return false;
}

}  // namespace gpulet::executor
