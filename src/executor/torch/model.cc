#include "executor/torch/model.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "executor/batch_layout.h"
#include "executor/torch/numerics.h"
#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

Result<std::vector<at::Tensor>> forward(const Network& network, std::vector<c10::IValue> inputs) {
  try {
    torch::jit::Module module = network.module;  // a handle: its forward() is not const
    return tensors_of(module.forward(std::move(inputs)));
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, own_words(error));
  }
}

}  // namespace

Result<LoadedModel> declared(const ModelToLoad& request) {
  LoadedModel model;
  model.name = request.name;
  model.inputs = request.inputs;
  model.outputs = request.outputs;
  for (const auto& [specs, sizes] : {std::pair(&model.inputs, &model.input_sizes),
                                     std::pair(&model.outputs, &model.output_sizes)}) {
    Result<std::vector<std::size_t>> computed = tensor_sizes(*specs);
    if (!computed.ok()) return computed.status();
    *sizes = std::move(computed).value();
  }
  return model;
}

Result<std::vector<at::Tensor>> answers(const Network& network, const LoadedModel& model,
                                        std::uint32_t count, std::vector<c10::IValue> inputs) {
  const c10::InferenceMode inference;
  to_numerics(network.numerics, inputs);
  Result<std::vector<at::Tensor>> outputs = forward(network, std::move(inputs));
  if (!outputs.ok()) return outputs;
  if (network.numerics.precision != Precision::full) to_declared(model.outputs, outputs.value());
  if (Status status = check_outputs(model.outputs, count, outputs.value()); !status.ok())
    return status;
  return outputs;
}

Result<std::vector<at::Tensor>> try_batch(const Network& network, const LoadedModel& model,
                                          std::uint32_t count, const c10::Device& device) {
  Result<std::vector<at::Tensor>> outputs =
      answers(network, model, count, sample_inputs(model.inputs, count, device));
  if (outputs.ok() || outputs.status().code() != StatusCode::internal) return outputs;
  std::string inputs;
  for (const TensorSpec& spec : model.inputs)
    inputs += (inputs.empty() ? "" : ", ") + to_string(spec);
  return Status(StatusCode::invalid, "does not run on a batch of " + std::to_string(count) +
                                         " with the declared inputs " + inputs + ": " +
                                         outputs.status().message());
}

}  // namespace gpulet::executor
