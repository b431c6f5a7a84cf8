#include "gpulet/serve/served_model.h"

#include <bit>

#include "gpulet/base/sha256.h"

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
  for (const TensorSpec& tensor : tensors) {
    text += tensor.name + ' ' + to_string(tensor);
    // Only where there is one, so that other versions keep their ids.
    if (tensor.max_bytes > 0) text += ' ' + std::to_string(tensor.max_bytes);
    text += '\n';
  }
  return text;
}

// Empty for the default numerics, so that versions without them keep their ids.
std::string to_text(const Numerics& numerics) {
  if (numerics == Numerics{}) return {};
  return '\n' + std::string(to_string(numerics.precision)) +
         (numerics.channels_last ? " channels_last " : " contiguous ") +
         std::to_string(std::bit_cast<std::uint64_t>(numerics.largest_error));
}

constexpr std::size_t kTensorDigits = 8;
constexpr std::size_t kShortDigits = 12;

}  // namespace

int bucket_rank(ModelState state) {
  switch (state) {
    case ModelState::unavailable:
      return 0;
    case ModelState::loading:
      return 1;
    case ModelState::ready:
      return 2;
    case ModelState::idle:
    case ModelState::leaving:
      return 3;
  }
  return 3;
}

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

std::string wanted_version(const ModelInfo& model) {
  const bool stages = !model.next.empty() && !model.next_refused;
  return stages ? model.next : model.version;
}

std::optional<LoadOutcome> outcome_of_load(const ModelInfo& now,
                                           const std::string& wanted_version) {
  // The file had not arrived when the change was made: any version is the one that it brought.
  if (wanted_version.empty() && !now.version.empty()) return outcome_of_load(now, now.version);
  const std::string version = "version " + short_version(wanted_version);
  if (now.version != wanted_version) {
    if (now.next == wanted_version && !now.next_refused) return std::nullopt;
    return LoadOutcome{false, now.reason.empty() ? "another version took its place" : now.reason};
  }
  switch (now.state) {
    case ModelState::ready:
      if (now.pending) return std::nullopt;
      return LoadOutcome{true, version + " serves"};
    case ModelState::idle:
      return LoadOutcome{true, version + " is registered; its first request wakes it"};
    case ModelState::unavailable:
      return LoadOutcome{false, now.reason};
    case ModelState::leaving:
      return LoadOutcome{false, "it is being unloaded"};
    case ModelState::loading:
      break;
  }
  return std::nullopt;
}

}  // namespace gpulet::serve
