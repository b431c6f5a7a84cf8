#include "tools/serve/repository_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/core/bucket.h"
#include "tools/serve/model_tensors.h"
#include "tools/serve/repository_config.h"

namespace gpulet::tools {
namespace {

using config::OnnxDimension;
using config::OnnxTensor;

Status contradicts(const std::string& what) {
  return {StatusCode::invalid, fmt::format("{}: {}", kRepositoryConfig, what)};
}

std::vector<std::string> names_of(const std::vector<OnnxTensor>& tensors) {
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const OnnxTensor& tensor : tensors) names.push_back(escaped(tensor.name));
  return names;
}

// With the batch as first dimension.
std::vector<OnnxDimension> shape_of(const ListedTensor& listed, bool batched) {
  std::vector<OnnxDimension> shape;
  if (batched) shape.emplace_back();
  for (const std::int64_t size : *listed.dims) shape.push_back({.size = size});
  return shape;
}

std::string text_of(const ListedTensor& listed, bool batched) {
  return fmt::format("\"dims\" are [{}]{}", fmt::join(*listed.dims, ","),
                     batched ? " and the batch before them" : " with max_batch_size 0");
}

// The tensor of the file with the sizes that config.pbtxt gives its open dimensions.
Result<OnnxTensor> merged(const ListedTensor& listed, const OnnxTensor& found, bool batched) {
  if (listed.type && config::data_type_of(found.element_type) != listed.type) {
    return contradicts(fmt::format("{}: \"data_type\" is {}, but the file has {}; correct it",
                                   listed.name, to_string(*listed.type), to_string(found)));
  }
  if (!listed.dims) return found;
  OnnxTensor tensor = found;
  const std::vector<OnnxDimension> shape = shape_of(listed, batched);
  if (!tensor.shape) {
    tensor.shape = shape;
    return tensor;
  }
  bool fits = shape.size() == tensor.shape->size();
  for (std::size_t i = batched ? 1 : 0; fits && i < shape.size(); ++i) {
    OnnxDimension& dimension = (*tensor.shape)[i];
    fits = dimension.size == OnnxDimension::kAny || dimension.size == shape[i].size;
    dimension.size = shape[i].size;
  }
  if (fits) return tensor;
  return contradicts(fmt::format("{}: {}, but the file has {}; correct \"dims\" or max_batch_size",
                                 listed.name, text_of(listed, batched), to_string(found)));
}

Result<std::vector<OnnxTensor>> choose(const std::vector<ListedTensor>& listed,
                                       const std::vector<OnnxTensor>& found, const char* side,
                                       bool batched, NamedSizes& sizes) {
  if (listed.empty()) return found;
  std::vector<OnnxTensor> chosen;
  for (const ListedTensor& one : listed) {
    const auto tensor = std::find_if(found.begin(), found.end(), [&one](const OnnxTensor& each) {
      return each.name == one.name;
    });
    if (tensor == found.end()) {
      return contradicts(fmt::format("the model's file has no {} {}, only {}; correct the name",
                                     side, one.name, joined(names_of(found))));
    }
    GPULET_TRY(auto with_sizes, merged(one, *tensor, batched));
    sizes.note(*tensor, with_sizes);
    chosen.push_back(std::move(with_sizes));
  }
  return chosen;
}

Status all_listed(const std::vector<ListedTensor>& listed, const std::vector<OnnxTensor>& inputs) {
  if (listed.empty()) return {};
  for (const OnnxTensor& input : inputs) {
    const bool known = std::any_of(listed.begin(), listed.end(), [&input](const ListedTensor& one) {
      return one.name == input.name;
    });
    if (!known) {
      return contradicts(
          fmt::format("the model's file needs the input {}, too; list it", to_string(input)));
    }
  }
  return {};
}

// The values in the file of the inputs that requests may leave out.
Status set_defaults(const RepositoryEntry& entry, const config::OnnxSignature& signature,
                    config::ModelConfig& model) {
  for (const ListedTensor& listed : entry.inputs) {
    if (!listed.optional) continue;
    const auto input =
        std::find_if(signature.optional_inputs.begin(), signature.optional_inputs.end(),
                     [&listed](const OnnxTensor& one) { return one.name == listed.name; });
    if (input == signature.optional_inputs.end()) {
      return contradicts(
          fmt::format("{}: \"optional\" is true, but the file has no value for this input; export "
                      "the model with an initializer of that name, or take \"optional\" out",
                      listed.name));
    }
    auto value = config::read_initial_value(entry.file, *input);
    if (!value.ok()) return value.status().within(listed.name);
    model.defaults.insert_or_assign(listed.name, std::move(value).value());
  }
  return {};
}

Result<FileTensors> tensors_of_onnx(const RepositoryEntry& entry, config::ModelConfig& model) {
  const auto signature = config::read_onnx_signature(entry.file);
  if (!signature.ok()) return signature.status().within(entry.file.string());
  std::vector<OnnxTensor> possible = signature.value().inputs;
  if (Status listed = all_listed(entry.inputs, possible); !listed.ok()) return listed;
  if (Status set = set_defaults(entry, signature.value(), model); !set.ok()) return set;
  // Those that are not listed keep the values of the file.
  if (!entry.inputs.empty()) {
    possible.insert(possible.end(), signature.value().optional_inputs.begin(),
                    signature.value().optional_inputs.end());
  }
  const bool batched = entry.max_batch > 0;
  FileTensors tensors;
  GPULET_TRY(auto inputs, choose(entry.inputs, possible, "input", batched, tensors.sizes));
  GPULET_TRY(auto outputs,
             choose(entry.outputs, signature.value().outputs, "output", batched, tensors.sizes));
  tensors.inputs = std::move(inputs);
  tensors.outputs = std::move(outputs);
  return tensors;
}

Result<std::vector<OnnxTensor>> listed_tensors(const std::vector<ListedTensor>& listed,
                                               bool batched) {
  std::vector<OnnxTensor> tensors;
  for (const ListedTensor& one : listed) {
    if (one.optional) {
      return contradicts(fmt::format(
          "{}: \"optional\": a TorchScript file has no values for inputs; take it out", one.name));
    }
    if (!one.type || !one.dims) {
      return contradicts(fmt::format(
          "{}: a TorchScript file does not describe its tensors; write \"data_type\" and \"dims\"",
          one.name));
    }
    tensors.push_back({one.name, element_type_of(*one.type), shape_of(one, batched)});
  }
  return tensors;
}

Result<FileTensors> tensors_of_torchscript(const RepositoryEntry& entry) {
  if (entry.inputs.empty() || entry.outputs.empty()) {
    return contradicts(
        "it lists no inputs or no outputs, and a TorchScript file does not describe them; list "
        "both");
  }
  GPULET_TRY(auto inputs, listed_tensors(entry.inputs, entry.max_batch > 0));
  GPULET_TRY(auto outputs, listed_tensors(entry.outputs, entry.max_batch > 0));
  return FileTensors{std::move(inputs), std::move(outputs)};
}

Status check_file(const RepositoryEntry& entry, const config::ModelConfig& model) {
  if (entry.format != config::FileFormat::onnx) {
    Status types = check_torchscript_types(model.inputs);
    return types.ok() ? check_torchscript_types(model.outputs) : types;
  }
  GPULET_TRY(const auto signature, config::read_onnx_signature(entry.file));
  return config::check_declared(signature, model.inputs, model.outputs, model.max_batch);
}

Status set_labels(const RepositoryEntry& entry, config::ModelConfig& model) {
  model.labels = entry.labels;
  for (const auto& [output, file] : model.labels) {
    const TensorSpec& labelled = config::output_named(model, output);
    if (is_dynamic({labelled})) continue;  // the frontend checks the labels of its buckets
    if (const auto labels = config::load_labels(file, labelled); !labels.ok())
      return labels.status().within(fmt::format("{}: {}", kRepositoryConfig, output));
  }
  return {};
}

Status set_formats(const RepositoryEntry& entry, config::ModelConfig& model) {
  for (const TensorSpec& input : model.inputs) {
    const auto listed = entry.formats.find(input.name);
    if (listed == entry.formats.end()) continue;
    if (input.shape.size() != 3) {
      return contradicts(fmt::format(
          "{}: \"format\": an image has three dimensions after the batch, but this is {}",
          input.name, to_string(input)));
    }
    model.formats[input.name] = listed->second;
  }
  choose_formats(model);
  return {};
}

}  // namespace

Result<config::ModelConfig> describe_entry(const RepositoryEntry& entry, std::uint32_t max_batch,
                                           const TensorOptions& options) {
  config::ModelConfig model;
  model.name = entry.name;
  model.file = entry.file;
  model.version = entry.version;
  model.max_batch = entry.max_batch > 0 ? entry.max_batch : max_batch;
  GPULET_TRY(auto tensors, entry.format == config::FileFormat::onnx
                               ? tensors_of_onnx(entry, model)
                               : tensors_of_torchscript(entry));
  if (Status set = set_tensors(std::move(tensors), options, model); !set.ok()) return set;
  if (Status fit = check_defaults(model); !fit.ok()) return fit;
  if (entry.max_batch > 0 && are_whole(model.inputs)) {
    return contradicts(fmt::format(
        "max_batch_size is {}, but the model has no batch dimension; write 0", entry.max_batch));
  }
  if (model.max_batch < entry.max_batch) {
    return contradicts(
        fmt::format("max_batch_size is {}, but the file takes batches of 1 only; write 1, or "
                    "export the model with a first dimension of any size",
                    entry.max_batch));
  }
  Status status = check_file(entry, model);
  if (status.ok()) status = set_labels(entry, model);
  if (status.ok()) status = set_formats(entry, model);
  if (!status.ok()) return status;
  return model;
}

}  // namespace gpulet::tools
