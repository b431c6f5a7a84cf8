#include "tools/serve/model_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {
namespace {

using config::OnnxDimension;
using config::OnnxTensor;

constexpr std::int32_t kLastElementType = 16;

Status wrong_tensor(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// ---- the batch

// Whether the tensor's first dimension is a batch of any size, or of one.
enum class BatchDimension : std::uint8_t { any, one };

Result<BatchDimension> batch_dimension(const OnnxTensor& tensor) {
  if (Status served = config::check_kind(tensor); !served.ok()) return served;
  if (!tensor.shape) {
    return wrong_tensor(
        fmt::format("{}: the file does not say its shape; export the model with the shapes of its "
                    "inputs and outputs, the batch first",
                    to_string(tensor)));
  }
  if (tensor.shape->empty()) {
    return wrong_tensor(
        fmt::format("{}: it has no batch dimension, and models without one are not served; export "
                    "the model with inputs and outputs whose first dimension is the batch",
                    to_string(tensor)));
  }
  const std::int64_t size = tensor.shape->front().size;
  if (size == OnnxDimension::kAny) return BatchDimension::any;
  if (size == 1) return BatchDimension::one;
  return wrong_tensor(
      fmt::format("{}: its first dimension, which is the batch, is fixed at {}; export the model "
                  "with a first dimension of any size (dynamic_axes in torch.onnx.export). If that "
                  "dimension is not the batch, the model has none, and is not served",
                  to_string(tensor), size));
}

// ---- open dimensions

// Whether no tensor has several open dimensions.
bool has_one_at_most(const std::vector<OnnxTensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const OnnxTensor& tensor) { return open_dimensions(tensor) <= 1; });
}

// Those of the open dimensions that have one.
std::set<std::string> open_names(const std::vector<OnnxTensor>& tensors) {
  std::set<std::string> names;
  for (const OnnxTensor& tensor : tensors) {
    for (std::size_t i = 1; i < tensor.shape->size(); ++i) {
      const OnnxDimension& dimension = (*tensor.shape)[i];
      if (dimension.size == OnnxDimension::kAny && !dimension.name.empty())
        names.insert(dimension.name);
    }
  }
  return names;
}

// Whether the open dimensions of the outputs may have the length of the request.
bool buckets_can_fit(const FileTensors& tensors) {
  const std::set<std::string> inputs = open_names(tensors.inputs);
  const std::set<std::string> outputs = open_names(tensors.outputs);
  return has_one_at_most(tensors.inputs) && has_one_at_most(tensors.outputs) &&
         (inputs.empty() ||
          std::includes(inputs.begin(), inputs.end(), outputs.begin(), outputs.end()));
}

Status open_dimension(const OnnxTensor& tensor, const std::string& model, bool has_buckets,
                      bool buckets_fit) {
  std::string fix = fmt::format(
      "give their sizes with --shape {0}:{1}, or --shape {2}/{0}:{1} for this model alone",
      tensor.name, fmt::join(std::vector<std::string>(tensor.shape->size() - 1, "N"), ","), model);
  if (has_buckets) {
    fix += "; --buckets needs one open dimension of each tensor, with the same name in the outputs";
  } else if (buckets_fit) {
    fix += ", or the lengths to which requests are padded with --buckets 32,64,128";
  }
  return wrong_tensor(fmt::format("{}: the file leaves dimensions beside the batch open; {}",
                                  to_string(tensor), fix));
}

Result<TensorSpec> spec_of(const OnnxTensor& tensor) {
  const auto type = config::data_type_of(tensor.element_type);
  if (!type)
    return wrong_tensor(fmt::format("{}: tensors of this type are not served", to_string(tensor)));
  TensorSpec spec{tensor.name, *type, {}};
  for (std::size_t i = 1; i < tensor.shape->size(); ++i)
    spec.shape.push_back((*tensor.shape)[i].size);
  // The largest size of strings is unknown.
  if (spec.type == DataType::bytes && open_dimensions(tensor) == 0)
    spec.max_bytes = default_slot_bytes(spec.shape);
  return spec;
}

// ---- images

bool is_channels(std::int64_t size) { return size == 1 || size == 3; }

// Three dimensions, of which the first or the last alone can be the channels.
std::optional<config::ImageFormat> image_format(const TensorSpec& input) {
  const std::vector<std::int64_t>& shape = input.shape;
  if (shape.size() != 3 || is_channels(shape[0]) == is_channels(shape[2])) return std::nullopt;
  return is_channels(shape[0]) ? config::ImageFormat::nchw : config::ImageFormat::nhwc;
}

}  // namespace

std::int32_t element_type_of(DataType type) {
  std::int32_t number = 1;
  while (number < kLastElementType && config::data_type_of(number) != type) ++number;
  return number;
}

void choose_formats(config::ModelConfig& model) {
  for (const TensorSpec& input : model.inputs) {
    if (const auto format = image_format(input)) model.formats.try_emplace(input.name, *format);
  }
}

Status check_tensor_names(const config::ModelConfig& model) {
  for (const auto* const side : {&model.inputs, &model.outputs}) {
    std::set<std::string> names;
    for (const TensorSpec& tensor : *side) {
      if (tensor.name.empty() || !is_utf8(tensor.name)) {
        return wrong_tensor(
            fmt::format("the name \"{}\" of a tensor is empty or not UTF-8; export the "
                        "model with another one",
                        escaped(tensor.name)));
      }
      if (!names.insert(tensor.name).second) {
        return wrong_tensor(
            fmt::format("two {} have the name \"{}\"; export the model with other names",
                        side == &model.inputs ? "inputs" : "outputs", escaped(tensor.name)));
      }
    }
  }
  return {};
}

Status set_buckets(const std::vector<std::int64_t>& buckets, config::ModelConfig& model) {
  if (!is_dynamic(model.inputs)) {
    if (!is_dynamic(model.outputs)) return {};
    return wrong_tensor(
        "an output has a dimension of any size, but no input; give its size with --shape "
        "or --output");
  }
  if (has_bytes_tensor(model.inputs) || has_bytes_tensor(model.outputs)) {
    return wrong_tensor(
        "a model with tensors of type BYTES has fixed shapes; give the sizes with --shape");
  }
  config::DynamicLength& dynamic = model.dynamic.emplace();
  dynamic.lengths = buckets;
  dynamic.padding.assign(model.inputs.size(), 0);
  const bool rise = std::adjacent_find(dynamic.lengths.begin(), dynamic.lengths.end(),
                                       std::greater_equal<>()) == dynamic.lengths.end();
  const bool possible = !dynamic.lengths.empty() && dynamic.lengths.front() >= 1 && rise &&
                        dynamic.lengths.size() <= kMostBuckets;
  if (possible) return {};
  return wrong_tensor(
      fmt::format("an input has a dimension of any size; give 1 to {} lengths, the shortest first, "
                  "with --buckets 32,64,128",
                  kMostBuckets));
}

Status set_tensors(FileTensors tensors, const std::vector<std::int64_t>& buckets,
                   OpenShapes& shapes, config::ModelConfig& model) {
  if (tensors.inputs.empty() || tensors.outputs.empty())
    return wrong_tensor("the model has no inputs or no outputs; export it again");
  for (auto* const side : {&tensors.inputs, &tensors.outputs}) {
    for (OnnxTensor& tensor : *side) {
      GPULET_TRY(const auto batch, batch_dimension(tensor));
      if (batch == BatchDimension::one) model.max_batch = 1;
      const OnnxTensor open = tensor;
      if (Status closed = shapes.close(model.name, tensor); !closed.ok()) return closed;
      tensors.sizes.note(open, tensor);
    }
  }
  for (auto* const side : {&tensors.inputs, &tensors.outputs}) {
    for (OnnxTensor& tensor : *side) tensors.sizes.close(tensor);
  }
  const bool buckets_fit = buckets_can_fit(tensors);
  for (auto* const side : {&tensors.inputs, &tensors.outputs}) {
    for (const OnnxTensor& tensor : *side) {
      const bool open = open_dimensions(tensor) > 0;
      if (open && (buckets.empty() || !buckets_fit))
        return open_dimension(tensor, model.name, !buckets.empty(), buckets_fit);
      GPULET_TRY(auto spec, spec_of(tensor));
      (side == &tensors.inputs ? model.inputs : model.outputs).push_back(std::move(spec));
    }
  }
  Status status = check_tensor_names(model);
  return status.ok() ? set_buckets(buckets, model) : status;
}

}  // namespace gpulet::tools
