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

}  // namespace

std::size_t CudaGraphCache::bytes() const {
  return std::accumulate(
      graphs_.begin(), graphs_.end(), std::size_t{0},
      [](std::size_t sum, const auto& graph) { return sum + graph.second.bytes; });
}

void CudaGraphCache::erase(const TorchModel& model) {
  std::erase_if(graphs_, [&model](const auto& graph) { return graph.first.first == &model; });
}

void CudaGraphCache::capture(const TorchModel& model, std::uint32_t size, const c10::Device& device,
                             Graph& graph) const {
  graph.inputs = zero_inputs(model.inputs, size, device);
  const std::vector<c10::IValue> inputs(graph.inputs.begin(), graph.inputs.end());
  graph.work = capture_([&model, &graph, inputs, size] {
    auto outputs = run_network(model.network, model, size, inputs);
    if (!outputs.ok()) throw std::runtime_error(outputs.status().message());
    graph.outputs = std::move(outputs).value();
  });
  graph.bytes = bytes_of(graph.inputs) + bytes_of(graph.outputs);
}

void CudaGraphCache::add(const TorchModel& model, std::span<const std::uint32_t> sizes,
                         const c10::Device& device) {
  const c10::InferenceMode inference;
  for (const std::uint32_t size : sizes) {
    if (graphs_.size() >= kMaxGraphs || bytes() + bytes_of_batch(model, size) > kMaxBytes) return;
    const Key key{&model, size};
    try {
      capture(model, size, device, graphs_[key]);
    } catch (...) {
      graphs_.erase(key);
      throw;
    }
  }
}

Result<std::vector<at::Tensor>> CudaGraphCache::run(const TorchModel& model, std::uint32_t count,
                                                    std::vector<c10::IValue> inputs) {
  const auto found = graphs_.lower_bound({&model, count});
  if (found == graphs_.end() || found->first.first != &model)
    return run_network(model.network, model, count, std::move(inputs));
  const c10::InferenceMode inference;
  Graph& graph = found->second;
  // The other rows keep the numbers of an earlier batch, which are valid for the network.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    graph.inputs[i].narrow(0, 0, count).copy_(inputs[i].toTensor());
  graph.work->replay();
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : graph.outputs)
    outputs.push_back(output.narrow(0, 0, count).clone());
  return outputs;
}

CudaGraphCache::Capture capture_in_one_pool() {
  return [pool = make_capture_pool()](const std::function<void()>& work) {
    return capture(pool, work);
  };
}

std::vector<std::uint32_t> replayable_sizes(const CudaGraphCache::Capture& capture,
                                            const TorchModel& model,
                                            std::span<const std::uint32_t> sizes,
                                            const c10::Device& device) {
  std::vector<std::uint32_t> replayable;
  if (model.network.changes_itself) return replayable;
  CudaGraphCache graphs(capture);
  try {
    for (const std::uint32_t size : sizes) {
      const std::vector<c10::IValue> inputs = sample_inputs(model.inputs, size, device);
      const auto expected = run_network(model.network, model, size, inputs);
      graphs.add(model, {{size}}, device);
      const auto replayed = graphs.run(model, size, inputs);
      if (!expected.ok() || !replayed.ok() ||
          !(error_between(expected.value(), replayed.value()) <= kLargestReplayError))
        break;
      replayable.push_back(size);
    }
  } catch (const std::exception&) {
    // The network cannot be captured.
  }
  return replayable;
}

}  // namespace gpulet::executor
