#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {
namespace {

Result<std::vector<std::size_t>> sizes_of(const std::vector<TensorSpec>& tensors) {
  std::vector<std::size_t> sizes;
  for (const TensorSpec& tensor : tensors) {
    GPULET_TRY(const std::size_t size, byte_size(tensor));
    sizes.push_back(size);
  }
  return sizes;
}

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

std::string version_of(const ServedModel& model) {
  return version_of(model.sha256, model.inputs, model.outputs, model.numerics);
}

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
