#include "tools/serve/model_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/config/readers.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/bytes_tensor.h"
#include "tools/serve/model_repository.h"

namespace gpulet::tools {
namespace {

constexpr const char* kTensorForm = "NAME:TYPE:DIMS, such as image:FP32:3,224,224";
constexpr const char* kShapeForm = "NAME:DIMS, such as tokens:128";

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

std::optional<std::vector<std::int64_t>> parse_dimensions(std::string_view text) {
  std::vector<std::int64_t> dimensions;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    const auto value = parse_number<std::int64_t>(word);
    if (!value || (*value < 1 && *value != kAnyLength)) return std::nullopt;
    dimensions.push_back(*value);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return dimensions;
}

struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

Result<NamedShape> parse_shape(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto shape = colon == std::string::npos
                         ? std::nullopt
                         : parse_dimensions(std::string_view(text).substr(colon + 1));
  if (!shape || std::find(shape->begin(), shape->end(), kAnyLength) != shape->end())
    return invalid(fmt::format("--shape \"{}\": write {}", text, kShapeForm));
  return NamedShape{text.substr(0, colon), *shape};
}

// What the command line says about dimensions that files leave open.
class OpenShapes {
 public:
  [[nodiscard]] static Result<OpenShapes> parse(const std::vector<std::string>& texts) {
    OpenShapes shapes;
    for (const std::string& text : texts) {
      auto one = parse_shape(text);
      if (!one.ok()) return one.status();
      shapes.shapes_.push_back(std::move(one).value());
    }
    return shapes;
  }

  [[nodiscard]] const NamedShape* find(const std::string& tensor) {
    const auto found = std::find_if(shapes_.begin(), shapes_.end(),
                                    [&](const NamedShape& one) { return one.name == tensor; });
    if (found == shapes_.end()) return nullptr;
    used_.insert(tensor);
    return &*found;
  }

  [[nodiscard]] Status all_used() const {
    for (const NamedShape& one : shapes_) {
      if (!used_.contains(one.name)) {
        return invalid(
            fmt::format("--shape \"{}\": no model has such a tensor with dimensions of "
                        "any size; leave it out, or correct the name",
                        one.name));
      }
    }
    return {};
  }

 private:
  std::vector<NamedShape> shapes_;
  std::set<std::string> used_;
};

// ---- ONNX files

// Whether the tensor's first dimension is a batch of any size, or of one.
enum class BatchDimension : std::uint8_t { any, one };

Result<BatchDimension> batch_dimension(const config::OnnxTensor& tensor) {
  if (!tensor.shape || tensor.shape->empty()) {
    return invalid(
        fmt::format("{}: the file gives it no batch dimension; export the model with "
                    "inputs and outputs whose first dimension is the batch",
                    to_string(tensor)));
  }
  const std::int64_t size = tensor.shape->front().size;
  if (size == config::OnnxDimension::kAny) return BatchDimension::any;
  if (size == 1) return BatchDimension::one;
  return invalid(
      fmt::format("{}: its batch is fixed at {}; export the model with a first dimension "
                  "of any size (dynamic_axes in torch.onnx.export)",
                  to_string(tensor), size));
}

// The largest size of its strings is unknown.
TensorSpec with_slot(TensorSpec spec) {
  if (spec.type == DataType::bytes) spec.max_bytes = default_slot_bytes(spec.shape);
  return spec;
}

// `has_buckets`: one open dimension may stay open.
Result<TensorSpec> spec_of(const config::OnnxTensor& tensor, bool has_buckets, OpenShapes& shapes) {
  const auto type = config::data_type_of(tensor.element_type);
  if (!type) {
    return invalid(fmt::format("{}: tensors of this type are not served", to_string(tensor)));
  }
  TensorSpec spec{tensor.name, *type, {}};
  std::size_t open = 0;
  static_assert(config::OnnxDimension::kAny == kAnyLength);
  for (std::size_t i = 1; i < tensor.shape->size(); ++i) {
    spec.shape.push_back((*tensor.shape)[i].size);
    if (spec.shape.back() == kAnyLength) ++open;
  }
  if (open == 0) return with_slot(std::move(spec));
  const NamedShape* const given = shapes.find(tensor.name);
  if (given == nullptr && open == 1 && has_buckets) return spec;
  if (given == nullptr) {
    return invalid(fmt::format(
        "{}: the file leaves dimensions beside the batch open; give their sizes with "
        "--shape {}:{}{}",
        to_string(tensor), tensor.name,
        fmt::join(std::vector<std::string>(spec.shape.size(), "N"), ","),
        open == 1 ? ", or the lengths to which requests are padded with --buckets 32,64,128" : ""));
  }
  bool fits = given->shape.size() == spec.shape.size();
  for (std::size_t i = 0; fits && i < spec.shape.size(); ++i) {
    fits = spec.shape[i] == config::OnnxDimension::kAny || spec.shape[i] == given->shape[i];
  }
  if (!fits) {
    return invalid(fmt::format("--shape {}:{}: does not fit {}, whose first dimension is the batch",
                               given->name, fmt::join(given->shape, ","), to_string(tensor)));
  }
  spec.shape = given->shape;
  return with_slot(std::move(spec));
}

// ---- images

bool is_channels(std::int64_t size) { return size == 1 || size == 3; }

// Three dimensions, of which the first or the last alone can be the channels.
std::optional<config::ImageFormat> image_format(const TensorSpec& input) {
  const std::vector<std::int64_t>& shape = input.shape;
  if (shape.size() != 3 || is_channels(shape[0]) == is_channels(shape[2])) return std::nullopt;
  return is_channels(shape[0]) ? config::ImageFormat::nchw : config::ImageFormat::nhwc;
}

void choose_formats(config::ModelConfig& model) {
  for (const TensorSpec& input : model.inputs) {
    if (const auto format = image_format(input)) model.formats.try_emplace(input.name, *format);
  }
}

Status describe_onnx(const std::filesystem::path& file, bool has_buckets, OpenShapes& shapes,
                     config::ModelConfig& model) {
  const auto signature = config::read_onnx_signature(file);
  if (!signature.ok()) return signature.status();
  if (signature.value().inputs.empty() || signature.value().outputs.empty())
    return invalid("the model has no inputs or no outputs; export it again");
  const auto add = [&](const std::vector<config::OnnxTensor>& from, std::vector<TensorSpec>& to) {
    for (const config::OnnxTensor& tensor : from) {
      const auto batch = batch_dimension(tensor);
      if (!batch.ok()) return batch.status();
      if (batch.value() == BatchDimension::one) model.max_batch = 1;
      auto spec = spec_of(tensor, has_buckets, shapes);
      if (!spec.ok()) return spec.status();
      to.push_back(std::move(spec).value());
    }
    return Status();
  };
  if (Status inputs = add(signature.value().inputs, model.inputs); !inputs.ok()) return inputs;
  return add(signature.value().outputs, model.outputs);
}

// ---- other files

Result<std::vector<TensorSpec>> parse_tensors(const std::vector<std::string>& texts) {
  std::vector<TensorSpec> specs;
  for (const std::string& text : texts) {
    auto spec = parse_tensor(text);
    if (!spec.ok()) return spec.status();
    specs.push_back(std::move(spec).value());
  }
  return specs;
}

Status check_torchscript(const config::ModelConfig& model) {
  Status types = check_torchscript_types(model.inputs);
  return types.ok() ? check_torchscript_types(model.outputs) : types;
}

Status describe_by_arguments(const ModelArguments& arguments, config::ModelConfig& model) {
  if (arguments.inputs.empty() || arguments.outputs.empty()) {
    return invalid(
        fmt::format("a TorchScript file does not describe its tensors; give each with "
                    "--input and --output {}, or export the model as ONNX",
                    kTensorForm));
  }
  auto inputs = parse_tensors(arguments.inputs);
  if (!inputs.ok()) return inputs.status();
  auto outputs = parse_tensors(arguments.outputs);
  if (!outputs.ok()) return outputs.status();
  model.inputs = std::move(inputs).value();
  model.outputs = std::move(outputs).value();
  return check_torchscript(model);
}

// Gives dynamic dimensions their buckets.
Status set_buckets(const ModelArguments& arguments, config::ModelConfig& model) {
  if (!is_dynamic(model.inputs)) {
    if (!is_dynamic(model.outputs)) return {};
    return invalid(
        "an output has a dimension of any size, but no input; give its size with --shape "
        "or --output");
  }
  if (has_bytes_tensor(model.inputs) || has_bytes_tensor(model.outputs)) {
    return invalid(
        "a model with tensors of type BYTES has fixed shapes; give the sizes with --shape");
  }
  config::DynamicLength& dynamic = model.dynamic.emplace();
  dynamic.lengths = arguments.buckets;
  dynamic.padding.assign(model.inputs.size(), 0);
  const bool rise = std::adjacent_find(dynamic.lengths.begin(), dynamic.lengths.end(),
                                       std::greater_equal<>()) == dynamic.lengths.end();
  const bool possible = !dynamic.lengths.empty() && dynamic.lengths.front() >= 1 && rise &&
                        dynamic.lengths.size() <= kMostBuckets;
  if (possible) return {};
  return invalid(
      fmt::format("an input has a dimension of any size; give 1 to {} lengths, the shortest first, "
                  "with --buckets 32,64,128",
                  kMostBuckets));
}

Result<config::ModelConfig> describe_file(const std::filesystem::path& path,
                                          const ModelArguments& arguments, OpenShapes& shapes) {
  config::ModelConfig model;
  model.file = std::filesystem::absolute(path).lexically_normal();
  model.name = arguments.name.empty() ? path.stem().string() : arguments.name;
  model.max_batch = arguments.max_batch;
  if (!config::is_name(model.name)) {
    return invalid(
        fmt::format("\"{}\" is not a valid name for a model; choose one with --name", model.name));
  }
  const auto format = config::format_of(model.file);
  if (!format.ok()) return format.status();
  const bool onnx = format.value() == config::FileFormat::onnx;
  if (onnx && (!arguments.inputs.empty() || !arguments.outputs.empty())) {
    return invalid(
        "an ONNX file describes its tensors; leave out --input and --output, and give "
        "open dimensions with --shape");
  }
  Status described = onnx ? describe_onnx(model.file, !arguments.buckets.empty(), shapes, model)
                          : describe_by_arguments(arguments, model);
  if (described.ok()) described = set_buckets(arguments, model);
  if (!described.ok()) return described;
  choose_formats(model);
  return model;
}

// Checks that the model's file has the tensors of that side that config.pbtxt lists.
Status check_listed(const std::vector<std::string>& listed, const std::vector<TensorSpec>& tensors,
                    const std::string& side) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  for (const std::string& name : listed) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return invalid(
        fmt::format("config.pbtxt: the model's file has no {} {}, only {}; correct the name", side,
                    name, joined(names)));
  }
  return {};
}

Status check_labels(const config::ModelConfig& model) {
  for (const auto& [output, file] : model.labels) {
    const TensorSpec& labelled = config::output_named(model, output);
    if (is_dynamic({labelled})) continue;  // the frontend checks the labels of its buckets
    if (const auto labels = config::load_labels(file, labelled); !labels.ok())
      return labels.status().within("config.pbtxt: " + output);
  }
  return {};
}

// A model of a repository: what its config.pbtxt says, and the file says of the rest.
Result<config::ModelConfig> describe_entry(const RepositoryEntry& entry,
                                           const ModelArguments& arguments, OpenShapes& shapes) {
  ModelArguments of_file = arguments;
  of_file.name = entry.name;
  of_file.inputs.clear();
  of_file.outputs.clear();
  if (entry.max_batch) of_file.max_batch = *entry.max_batch;
  const auto format = config::format_of(entry.file);
  if (!format.ok()) return format.status();
  if (format.value() != config::FileFormat::onnx && entry.inputs.empty()) {
    return invalid(
        "config.pbtxt lists no inputs, and a TorchScript file does not describe them; "
        "list inputs and outputs there");
  }
  config::ModelConfig model;
  if (format.value() == config::FileFormat::onnx) {
    auto described = describe_file(entry.file, of_file, shapes);
    if (!described.ok()) return described.status();
    model = std::move(described).value();
  } else {
    model.name = entry.name;
    model.file = entry.file;
    model.max_batch = of_file.max_batch;
    model.inputs = entry.inputs;
    model.outputs = entry.outputs;
    if (Status types = check_torchscript(model); !types.ok()) return types;
  }
  Status names = check_listed(entry.listed_inputs, model.inputs, "input");
  if (names.ok()) names = check_listed(entry.listed_outputs, model.outputs, "output");
  if (!names.ok()) return names;
  model.labels = entry.labels;
  if (Status labels = check_labels(model); !labels.ok()) return labels;
  for (const TensorSpec& input : model.inputs) {
    const auto listed = entry.formats.find(input.name);
    if (listed != entry.formats.end() && input.shape.size() == 3)
      model.formats[input.name] = listed->second;
  }
  choose_formats(model);
  return model;
}

Result<std::vector<config::ModelConfig>> describe_repository(const std::filesystem::path& folder,
                                                             const ModelArguments& arguments,
                                                             OpenShapes& shapes) {
  const auto entries = read_repository(folder);
  if (!entries.ok()) return entries.status();
  std::vector<config::ModelConfig> models;
  for (const RepositoryEntry& entry : entries.value()) {
    auto model = describe_entry(entry, arguments, shapes);
    if (!model.ok()) return model.status().within(entry.name);
    models.push_back(std::move(model).value());
  }
  return models;
}

Status check_unique(const std::vector<config::ModelConfig>& models) {
  std::set<std::string> names;
  for (const config::ModelConfig& model : models) {
    if (!names.insert(model.name).second) {
      return invalid(
          fmt::format("two files would be served as {}; rename one of them", model.name));
    }
  }
  return {};
}

}  // namespace

Result<TensorSpec> parse_tensor(const std::string& text) {
  const std::size_t last = text.rfind(':');
  const std::size_t before =
      last == std::string::npos || last == 0 ? std::string::npos : text.rfind(':', last - 1);
  if (before != std::string::npos && before > 0) {
    const auto type = parse_data_type(std::string_view(text).substr(before + 1, last - before - 1));
    const auto shape = parse_dimensions(std::string_view(text).substr(last + 1));
    const bool fits = shape && std::count(shape->begin(), shape->end(), kAnyLength) <= 1;
    if (type && fits) return TensorSpec{text.substr(0, before), *type, *shape};
  }
  return invalid(fmt::format("\"{}\" does not describe a tensor; write {}", text, kTensorForm));
}

Result<double> parse_milliseconds(const std::string& text) {
  const std::size_t unit_at = text.find_last_of("0123456789.") + 1;  // npos + 1 is 0
  const std::string_view unit = std::string_view(text).substr(unit_at);
  const auto number = parse_number<double>(std::string_view(text).substr(0, unit_at));
  const bool known = unit.empty() || unit == "ms" || unit == "s";
  const double value = number.value_or(0) * (unit == "s" ? 1000 : 1);
  if (known && value > 0 && value <= 3.6e6) return value;
  return invalid(fmt::format("\"{}\" is not a time; write 50ms or 0.05s", text));
}

Result<std::vector<config::ModelConfig>> describe_models(const ModelArguments& arguments) {
  if (arguments.files.size() > 1 &&
      (!arguments.name.empty() || !arguments.inputs.empty() || !arguments.outputs.empty())) {
    return invalid(
        "--name, --input and --output describe one file; serve several through a models "
        "file (docs/guide.md)");
  }
  auto shapes = OpenShapes::parse(arguments.shapes);
  if (!shapes.ok()) return shapes.status();
  std::vector<config::ModelConfig> models;
  for (const std::filesystem::path& file : arguments.files) {
    if (std::error_code error; std::filesystem::is_directory(file, error)) {
      auto found = describe_repository(file, arguments, shapes.value());
      if (!found.ok()) return found.status().within(file.string());
      for (config::ModelConfig& model : found.value()) models.push_back(std::move(model));
      continue;
    }
    if (file.extension() == ".json") {
      auto listed = config::load_serving(file);
      if (!listed.ok()) return listed.status();
      if (!listed.value().applications.empty()) {
        return invalid(
            fmt::format("{}: has applications, which need the daemons; start them by hand "
                        "(docs/guide.md), or name a file without",
                        file.string()));
      }
      for (config::ModelConfig& model : listed.value().models) {
        if (model.remote) {
          return invalid(
              fmt::format("{}: {}: its file is in a remote store, and only local files are "
                          "measured; start the daemons by hand (docs/guide.md)",
                          file.string(), model.name));
        }
        models.push_back(std::move(model));
      }
      continue;
    }
    auto model = describe_file(file, arguments, shapes.value());
    if (!model.ok()) return model.status().within(file.string());
    models.push_back(std::move(model).value());
  }
  if (Status used = shapes.value().all_used(); !used.ok()) return used;
  if (Status unique = check_unique(models); !unique.ok()) return unique;
  return models;
}

}  // namespace gpulet::tools
