#include "gpulet/serve/served_model.h"

namespace gpulet::serve {
namespace {

Result<std::vector<std::size_t>> sizes_of(const std::vector<TensorSpec>& tensors) {
  std::vector<std::size_t> sizes;
  for (const TensorSpec& tensor : tensors) {
    const Result<std::size_t> size = byte_size(tensor);
    if (!size.ok()) return size.status();
    sizes.push_back(size.value());
  }
  return sizes;
}

}  // namespace

Result<ServedModel> with_sizes(ServedModel model) {
  Result<std::vector<std::size_t>> inputs = sizes_of(model.inputs);
  if (!inputs.ok()) return inputs.status().within("model " + model.name);
  Result<std::vector<std::size_t>> outputs = sizes_of(model.outputs);
  if (!outputs.ok()) return outputs.status().within("model " + model.name);
  const Result<std::size_t> total = byte_size(model.inputs);
  if (!total.ok()) return total.status().within("model " + model.name);
  model.input_sizes = std::move(inputs).value();
  model.output_sizes = std::move(outputs).value();
  model.input_bytes = total.value();
  return model;
}

}  // namespace gpulet::serve
