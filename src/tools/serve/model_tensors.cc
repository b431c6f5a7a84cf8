#include "tools/serve/model_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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

// Checks that they are tensors, and that the file says the shapes of the inputs. What it does not
// say of an output is learned by running the model.
Status check_tensors(const FileTensors& tensors) {
  for (const auto* const side : {&tensors.inputs, &tensors.outputs}) {
    for (const OnnxTensor& tensor : *side) {
      if (Status served = config::check_kind(tensor); !served.ok()) return served;
      if (tensor.shape || side == &tensors.outputs) continue;
      return wrong_tensor(fmt::format(
          "{}: the file does not say its shape; export the model with the shapes of its inputs",
          to_string(tensor)));
    }
  }
  return {};
}

// Whether the first dimension of the tensor cannot be a batch.
bool has_no_batch(const OnnxTensor& tensor) {
  if (!tensor.shape) return false;
  return tensor.shape->empty() ||
         (tensor.shape->front().size != OnnxDimension::kAny && tensor.shape->front().size != 1);
}

bool has_batch_of_one(const OnnxTensor& tensor) {
  return tensor.shape && !tensor.shape->empty() && tensor.shape->front().size == 1;
}

bool any_tensor(const FileTensors& tensors, bool (*holds)(const OnnxTensor&)) {
  return std::any_of(tensors.inputs.begin(), tensors.inputs.end(), holds) ||
         std::any_of(tensors.outputs.begin(), tensors.outputs.end(), holds);
}

// As exporters call the batch. They leave out the names of many dimensions.
bool may_be_batch(const OnnxDimension& dimension) {
  std::string name = dimension.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return name.empty() || name == "n" || name == "b" || name == "bs" ||
         name.find("batch") != std::string::npos;
}

// In a model that takes one request at a time, what looks like a batch is 1: an open first
// dimension, or an open second one behind a fixed first one, as in the state of a recurrent network
// ([layers,batch,size]).
void close_batch(OnnxTensor& input) {
  std::vector<OnnxDimension>& shape = *input.shape;
  if (shape.size() < 2) return;  // a list of numbers
  constexpr std::size_t kStateDimensions = 3;
  const bool state = shape.size() == kStateDimensions && shape[0].size != OnnxDimension::kAny;
  OnnxDimension& batch = shape[state ? 1 : 0];
  if (batch.size == OnnxDimension::kAny && may_be_batch(batch)) batch.size = 1;
}

// ---- open dimensions

// Whether no tensor has several open dimensions.
bool has_one_at_most(const std::vector<OnnxTensor>& tensors, bool whole) {
  return std::all_of(tensors.begin(), tensors.end(), [whole](const OnnxTensor& tensor) {
    return open_dimensions(tensor, whole) <= 1;
  });
}

std::set<std::string> open_names(const std::vector<OnnxTensor>& tensors, bool whole) {
  std::set<std::string> names;
  for (const OnnxTensor& tensor : tensors) {
    for (std::size_t i = batch_dimensions(whole); tensor.shape && i < tensor.shape->size(); ++i) {
      const OnnxDimension& dimension = (*tensor.shape)[i];
      if (dimension.size == OnnxDimension::kAny && !dimension.name.empty())
        names.insert(dimension.name);
    }
  }
  return names;
}

// Whether the open dimensions of the outputs may have the length of the request: they have the
// names of those of the inputs, or those have none.
bool outputs_may_follow(const FileTensors& tensors, bool whole) {
  const std::set<std::string> inputs = open_names(tensors.inputs, whole);
  const std::set<std::string> outputs = open_names(tensors.outputs, whole);
  return has_one_at_most(tensors.outputs, whole) &&
         (inputs.empty() ||
          std::includes(inputs.begin(), inputs.end(), outputs.begin(), outputs.end()));
}

Status open_dimension(const OnnxTensor& tensor, const std::string& model, bool whole,
                      const std::string& hint) {
  const std::size_t sizes = tensor.shape ? tensor.shape->size() - batch_dimensions(whole) : 1;
  return wrong_tensor(fmt::format(
      "{}: the file leaves dimensions{} open; give their sizes with --shape {}:{}, or --shape "
      "{}/{}:{} for this model alone{}",
      to_string(tensor), whole ? "" : " beside the batch", tensor.name,
      fmt::join(std::vector<std::string>(sizes, "N"), ","), model, tensor.name,
      fmt::join(std::vector<std::string>(sizes, "N"), ","), hint));
}

Result<TensorSpec> spec_of(const OnnxTensor& tensor, bool whole) {
  const auto type = config::data_type_of(tensor.element_type);
  if (!type)
    return wrong_tensor(fmt::format("{}: tensors of this type are not served", to_string(tensor)));
  TensorSpec spec{tensor.name, *type, {}};
  spec.whole = whole;
  for (std::size_t i = batch_dimensions(whole); i < tensor.shape->size(); ++i)
    spec.shape.push_back((*tensor.shape)[i].size);
  // The largest size of strings is unknown.
  if (spec.type == DataType::bytes && open_dimensions(tensor, whole) == 0)
    spec.max_bytes = default_slot_bytes(spec.shape);
  return spec;
}

// ---- learning the shapes of outputs

// Whole shapes of all outputs, for inputs with that length and batch.
using Shapes = std::vector<std::vector<std::int64_t>>;

// What a model's outputs are, as far as runs show it.
class OutputShapes {
 public:
  OutputShapes(const config::ModelConfig& model, const std::vector<OnnxTensor>& outputs,
               const LearnShapes& learn)
      : model_(model), outputs_(outputs), learn_(learn) {}

  [[nodiscard]] Result<Shapes> run(std::int64_t length, std::int64_t batch) const {
    std::vector<TensorSpec> inputs = with_length(model_.inputs, length);
    for (TensorSpec& input : inputs) {
      input.shape = batch_shape(input, batch);
      input.whole = true;
      input.max_bytes *= static_cast<std::size_t>(batch);
    }
    std::vector<std::string> names;
    for (const OnnxTensor& output : outputs_) names.push_back(output.name);
    GPULET_TRY(auto shapes, learn_(model_, inputs, names));
    if (shapes.size() == names.size()) return shapes;
    return Status(StatusCode::internal, "the run has other outputs than asked for");
  }

  // Whether the first dimension of each output is the batch.
  [[nodiscard]] Result<bool> follow_batch(std::int64_t length) const {
    GPULET_TRY(const Shapes one, run(length, 1));
    if (!begin_with(one, 1)) return false;
    if (model_.max_batch == 1) return true;
    const auto two = run(length, 2);
    return !two.ok() || begin_with(two.value(), 2);  // loading says what is wrong with two
  }

 private:
  [[nodiscard]] static bool begin_with(const Shapes& shapes, std::int64_t batch) {
    return std::all_of(shapes.begin(), shapes.end(), [batch](const auto& shape) {
      return !shape.empty() && shape.front() == batch;
    });
  }

  const config::ModelConfig& model_;
  const std::vector<OnnxTensor>& outputs_;
  const LearnShapes& learn_;
};

// What outputs of those sizes, by length, are in a model with these lengths.
Status set_output(const std::vector<std::vector<std::int64_t>>& sizes, TensorSpec& output,
                  config::DynamicLength& dynamic, bool open_in_file) {
  output.shape = sizes.front();
  std::optional<std::size_t> varying;
  for (std::size_t at = 0; at < output.shape.size(); ++at) {
    const auto size_at = [at](const std::vector<std::int64_t>& one) { return one[at]; };
    const bool constant = std::all_of(sizes.begin(), sizes.end(), [&](const auto& one) {
      return one.size() == output.shape.size() && size_at(one) == output.shape[at];
    });
    const bool follows = sizes.size() == 1 && open_in_file && !varying &&
                         output.shape[at] == dynamic.lengths.front();
    if (constant && !follows) continue;
    if (varying) {
      return wrong_tensor(fmt::format(
          "output \"{}\" has several dimensions that follow the length of the request, and one is "
          "served; export the model with one, or give one length with --shape",
          escaped(output.name)));
    }
    varying = at;
  }
  if (!varying) return {};
  std::vector<std::int64_t> lengths;
  for (const auto& one : sizes) {
    if (one.size() != output.shape.size())
      return wrong_tensor(
          fmt::format("output \"{}\" has another number of dimensions for other "
                      "lengths, which is not served",
                      escaped(output.name)));
    lengths.push_back(one[*varying]);
  }
  output.shape[*varying] = kAnyLength;
  if (lengths != dynamic.lengths) dynamic.output_lengths[output.name] = lengths;
  return {};
}

std::vector<std::int64_t> without_batch(const std::vector<std::int64_t>& shape, bool whole) {
  const auto batch = static_cast<std::ptrdiff_t>(batch_dimensions(whole));
  return {shape.begin() + std::min<std::ptrdiff_t>(batch, std::ssize(shape)), shape.end()};
}

Result<std::vector<TensorSpec>> learned_outputs(const OutputShapes& runs,
                                                const std::vector<OnnxTensor>& outputs, bool whole,
                                                config::ModelConfig& model) {
  std::vector<Shapes> found;  // by length
  const std::vector<std::int64_t> lengths =
      model.dynamic ? model.dynamic->lengths : std::vector<std::int64_t>{1};
  for (const std::int64_t length : lengths) {
    auto shapes = runs.run(length, 1);
    if (!shapes.ok() && model.dynamic)
      return shapes.status().within(fmt::format("--buckets {}", length));
    if (!shapes.ok()) return shapes.status();
    found.push_back(std::move(shapes).value());
  }
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OnnxTensor shaped = outputs[i];
    shaped.shape.emplace();
    for (const std::int64_t size : found.front()[i]) shaped.shape->push_back({.size = size});
    if (whole || !shaped.shape->empty()) {
      GPULET_TRY(auto spec, spec_of(shaped, whole));
      specs.push_back(std::move(spec));
    } else {
      return wrong_tensor(fmt::format("{}: it has no batch dimension", to_string(outputs[i])));
    }
    if (!model.dynamic) continue;
    std::vector<std::vector<std::int64_t>> sizes;
    sizes.reserve(found.size());
    for (const Shapes& shapes : found) sizes.push_back(without_batch(shapes[i], whole));
    const bool open = !outputs[i].shape || open_dimensions(outputs[i], whole) > 0;
    if (Status set = set_output(sizes, specs.back(), *model.dynamic, open); !set.ok()) return set;
  }
  return specs;
}

// ---- images

bool is_channels(std::int64_t size) { return size == 1 || size == 3; }

// Three dimensions, of which the first or the last alone can be the channels.
std::optional<config::ImageFormat> image_format(const TensorSpec& input) {
  const std::vector<std::int64_t>& shape = input.shape;
  if (input.whole || shape.size() != 3 || is_channels(shape[0]) == is_channels(shape[2]))
    return std::nullopt;
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

Status check_defaults(const config::ModelConfig& model) {
  for (const TensorSpec& input : model.inputs) {
    const auto value = model.defaults.find(input.name);
    if (value == model.defaults.end()) continue;
    const auto size = byte_size(input);
    const bool half = input.type == DataType::fp16 || input.type == DataType::bf16;
    const bool zero = std::all_of(value->second.begin(), value->second.end(),
                                  [](std::byte one) { return one == std::byte{0}; });
    if (size.ok() && size.value() == value->second.size() && (zero || !half)) continue;
    return wrong_tensor(fmt::format(
        "the optional input {}: its value in the file {}; serve it without this input",
        escaped(input.name),
        half && !zero ? "has half precision, and of those only zeros are served"
                      : "has another size than the input of one request, " + to_string(input)));
  }
  return {};
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

namespace {

Status check_lengths(const std::vector<std::int64_t>& lengths) {
  const bool rise =
      std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) == lengths.end();
  if (!lengths.empty() && lengths.front() >= 1 && rise && lengths.size() <= kMostBuckets) return {};
  return wrong_tensor(
      fmt::format("an input has a dimension of any size; give 1 to {} lengths, the shortest first, "
                  "with --buckets 32,64,128",
                  kMostBuckets));
}

// The lengths that an open dimension is tried with to propose some.
constexpr std::int64_t kTriedLengths[] = {16, 32, 64, 128, 256, 512};

std::string hint_of(const config::ModelConfig& model, const FileTensors& tensors, bool whole,
                    const LearnShapes& learn) {
  if (!learn && !outputs_may_follow(tensors, whole)) return {};
  if (!learn) return ", or the lengths to which requests are padded with --buckets 32,64,128";
  const OutputShapes runs(model, tensors.outputs, learn);
  std::vector<std::int64_t> possible;
  for (const std::int64_t length : kTriedLengths) {
    if (runs.run(length, 1).ok()) possible.push_back(length);
  }
  if (possible.empty()) return "; none of the sizes that were tried runs";
  return fmt::format(
      ", or the lengths to which requests are padded with --buckets {0}: of the sizes that were "
      "tried, the model runs with {0}",
      fmt::join(possible, ","));
}

// Closes what it can of the inputs, and sets those of `model`.
Status set_inputs(FileTensors& tensors, bool whole, const TensorOptions& options,
                  config::ModelConfig& model) {
  for (OnnxTensor& input : tensors.inputs) {
    const OnnxTensor open = input;
    if (Status closed = options.shapes.close(model.name, whole, input); !closed.ok()) return closed;
    if (whole) close_batch(input);
    tensors.sizes.note(open, input);
  }
  model.inputs.clear();
  for (OnnxTensor& input : tensors.inputs) {
    tensors.sizes.close(whole, input);
    GPULET_TRY(auto spec, spec_of(input, whole));
    model.inputs.push_back(std::move(spec));
  }
  if (Status set = options.ranges.set(model.name, model.inputs); !set.ok()) return set;
  const bool one = has_one_at_most(tensors.inputs, whole);
  for (const OnnxTensor& input : tensors.inputs) {
    if (open_dimensions(input, whole) == 0 || (one && !options.buckets.empty())) continue;
    const std::string hint = !one ? "; --buckets needs one open dimension of each tensor"
                                  : hint_of(model, tensors, whole, options.learn);
    return open_dimension(input, model.name, whole, hint);
  }
  return {};
}

// Sets the outputs from what the file says, where it says all.
Result<bool> set_outputs(FileTensors& tensors, bool whole, const TensorOptions& options,
                         config::ModelConfig& model) {
  model.outputs.clear();
  bool complete = true;
  for (OnnxTensor& output : tensors.outputs) {
    if (output.shape) {
      const OnnxTensor open = output;
      if (Status closed = options.shapes.close(model.name, whole, output); !closed.ok())
        return closed;
      tensors.sizes.note(open, output);
      tensors.sizes.close(whole, output);
    }
    complete = complete && output.shape && open_dimensions(output, whole) == 0;
  }
  if (!complete) return false;
  for (const OnnxTensor& output : tensors.outputs) {
    GPULET_TRY(auto spec, spec_of(output, whole));
    model.outputs.push_back(std::move(spec));
  }
  return true;
}

// Where the model cannot be run: the open dimensions of the outputs are taken to have the length of
// the request where they may.
Status set_unknown_outputs(const FileTensors& tensors, bool whole, const std::string& why,
                           config::ModelConfig& model) {
  const bool fit = model.dynamic && outputs_may_follow(tensors, whole);
  for (const OnnxTensor& output : tensors.outputs) {
    if (!output.shape || (open_dimensions(output, whole) > 0 && !fit))
      return open_dimension(output, model.name, whole, why);
    GPULET_TRY(auto spec, spec_of(output, whole));
    model.outputs.push_back(std::move(spec));
  }
  return {};
}

// The tensors of a model with or without a batch. Returns false where the outputs show that there
// is none.
Result<bool> set_with(FileTensors tensors, bool whole, const TensorOptions& options,
                      config::ModelConfig& model) {
  if (Status set = set_inputs(tensors, whole, options, model); !set.ok()) return set;
  if (Status set = set_buckets(options.buckets, model); !set.ok()) return set;
  GPULET_TRY(const bool complete, set_outputs(tensors, whole, options, model));
  if (complete) return true;
  if (!options.learn) {
    if (Status set = set_unknown_outputs(tensors, whole, "", model); !set.ok()) return set;
    return true;
  }
  const OutputShapes runs(model, tensors.outputs, options.learn);
  const auto batched = whole ? Result<bool>(true)
                             : runs.follow_batch(model.dynamic ? model.dynamic->lengths.back() : 1);
  if (batched.ok() && !batched.value()) return false;
  auto outputs = batched.ok() ? learned_outputs(runs, tensors.outputs, whole, model)
                              : Result<std::vector<TensorSpec>>(batched.status());
  if (outputs.ok()) {
    model.outputs = std::move(outputs).value();
    return true;
  }
  const std::string why =
      fmt::format(" (running the model to learn them failed: {})", outputs.status().message());
  if (Status set = set_unknown_outputs(tensors, whole, why, model); !set.ok()) return set;
  return true;
}

}  // namespace

Status set_buckets(const std::vector<std::int64_t>& buckets, config::ModelConfig& model) {
  model.dynamic.reset();
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
  return check_lengths(buckets);
}

Status set_tensors(FileTensors tensors, const TensorOptions& options, config::ModelConfig& model) {
  if (tensors.inputs.empty() || tensors.outputs.empty())
    return wrong_tensor("the model has no inputs or no outputs; export it again");
  if (Status served = check_tensors(tensors); !served.ok()) return served;
  const bool no_batch = any_tensor(tensors, has_no_batch);
  bool whole = model.max_batch == 0 || no_batch;
  if (whole || any_tensor(tensors, has_batch_of_one)) model.max_batch = 1;
  GPULET_TRY(const bool fits, set_with(tensors, whole, options, model));
  if (!fits) {
    whole = true;
    model.max_batch = 1;
    GPULET_TRY(const bool set, set_with(std::move(tensors), whole, options, model));
    (void)set;
  }
  if (has_bytes_tensor(model.outputs) && model.dynamic) {
    return wrong_tensor(
        "a model with tensors of type BYTES has fixed shapes; give the sizes with --shape");
  }
  return check_tensor_names(model);
}

}  // namespace gpulet::tools
