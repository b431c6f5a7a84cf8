#include "gpulet/serve/served_model.h"

#include <bit>

#include "gpulet/core/sha256.h"
#include "gpulet/serve/messages.h"

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

std::string to_text(const std::vector<TensorSpec>& tensors) {
  std::string text;
  for (const TensorSpec& tensor : tensors) text += tensor.name + ' ' + to_string(tensor) + '\n';
  return text;
}

// Nothing for what a file without such a wish says.
std::string to_text(const Numerics& numerics) {
  if (numerics == Numerics{}) return {};
  return '\n' + std::string(to_string(numerics.precision)) +
         (numerics.channels_last ? " channels_last " : " contiguous ") +
         std::to_string(std::bit_cast<std::uint64_t>(numerics.largest_error));
}

constexpr std::size_t kTensorDigits = 8;
constexpr std::size_t kShortDigits = 12;

}  // namespace

std::string version_of(const std::string& sha256, const std::vector<TensorSpec>& inputs,
                       const std::vector<TensorSpec>& outputs, const Numerics& numerics) {
  const std::string text = to_text(inputs) + '\n' + to_text(outputs) + to_text(numerics);
  return sha256 + '-' + sha256_of(text).substr(0, kTensorDigits);
}

std::string version_of(const ServedModel& model) {
  return version_of(model.sha256, model.inputs, model.outputs, model.numerics);
}

std::string version_of(const ModelToServe& model) {
  return version_of(model.sha256, model.inputs, model.outputs, model.numerics);
}

std::string_view file_of_version(std::string_view version) {
  return version.substr(0, version.rfind('-'));
}

std::string short_version(const std::string& version) { return version.substr(0, kShortDigits); }

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
