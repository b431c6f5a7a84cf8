#include "tools/serve/model_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/config/readers.h"
#include "gpulet/core/bucket.h"
#include "tools/serve/byte_inputs.h"
#include "tools/serve/model_tensors.h"
#include "tools/serve/open_shapes.h"
#include "tools/serve/repository_models.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kTensorForm = "NAME:TYPE:DIMS, such as image:FP32:3,224,224";

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// ---- files

// The inputs of the file that requests may leave out, as far as the arguments name them.
Result<std::vector<config::OnnxTensor>> optional_inputs(const ModelArguments& arguments,
                                                        const config::OnnxSignature& signature,
                                                        config::ModelConfig& model) {
  std::vector<config::OnnxTensor> chosen;
  for (const std::string& name : arguments.optional_inputs) {
    const auto found =
        std::find_if(signature.optional_inputs.begin(), signature.optional_inputs.end(),
                     [&name](const config::OnnxTensor& input) { return input.name == name; });
    if (found == signature.optional_inputs.end()) {
      return invalid(
          fmt::format("--optional {}: the file has no input of that name with a value "
                      "of its own; correct the name",
                      escaped(name)));
    }
    auto value = config::read_initial_value(model.file, *found);
    if (!value.ok()) return value.status().within("--optional " + name);
    model.defaults.insert_or_assign(name, std::move(value).value());
    chosen.push_back(*found);
  }
  return chosen;
}

Status describe_onnx(const ModelArguments& arguments, const TensorOptions& options,
                     config::ModelConfig& model) {
  if (!arguments.inputs.empty() || !arguments.outputs.empty()) {
    return invalid(
        "an ONNX file describes its tensors; leave out --input and --output, and give "
        "open dimensions with --shape");
  }
  GPULET_TRY(auto signature, config::read_onnx_signature(model.file));
  FileTensors tensors{signature.inputs, signature.outputs};
  GPULET_TRY(auto optional, optional_inputs(arguments, signature, model));
  tensors.inputs.insert(tensors.inputs.end(), optional.begin(), optional.end());
  if (Status set = set_tensors(std::move(tensors), options, model); !set.ok()) return set;
  if (Status fit = check_defaults(model); !fit.ok()) return fit;
  return config::check_declared(signature, model.inputs, model.outputs, model.max_batch);
}

Result<std::vector<TensorSpec>> parse_tensors(const std::vector<std::string>& texts) {
  std::vector<TensorSpec> specs;
  for (const std::string& text : texts) {
    GPULET_TRY(auto spec, parse_tensor(text));
    specs.push_back(std::move(spec));
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
  GPULET_TRY(auto inputs, parse_tensors(arguments.inputs));
  GPULET_TRY(auto outputs, parse_tensors(arguments.outputs));
  model.inputs = std::move(inputs);
  model.outputs = std::move(outputs);
  if (model.max_batch == 0) {
    model.max_batch = 1;
    for (auto* const side : {&model.inputs, &model.outputs}) {
      for (TensorSpec& tensor : *side) tensor.whole = true;
    }
  }
  Status status = check_torchscript(model);
  if (status.ok()) status = check_tensor_names(model);
  return status.ok() ? set_buckets(arguments.buckets, model) : status;
}

// Fails where the path cannot be written into a models file.
Status check_path(const fs::path& file) {
  if (is_utf8(file.string())) return {};
  return invalid(fmt::format("the path \"{}\" is not UTF-8; rename it", escaped(file.string())));
}

Result<config::ModelConfig> describe_file(const fs::path& path, const ModelArguments& arguments,
                                          const TensorOptions& options) {
  config::ModelConfig model;
  model.file = fs::absolute(path).lexically_normal();
  model.name = arguments.name.empty() ? path.stem().string() : arguments.name;
  model.max_batch = arguments.max_batch;
  if (!config::is_name(model.name)) {
    return invalid(fmt::format("\"{}\" is not a valid name for a model; choose one with --name",
                               escaped(model.name)));
  }
  if (Status path_is_text = check_path(model.file); !path_is_text.ok()) return path_is_text;
  GPULET_TRY(const auto format, config::format_of(model.file));
  Status described = format == config::FileFormat::onnx ? describe_onnx(arguments, options, model)
                                                        : describe_by_arguments(arguments, model);
  if (!described.ok()) return described;
  choose_formats(model);
  return model;
}

Status add_file(const fs::path& file, const ModelArguments& arguments, const TensorOptions& options,
                DescribedModels& described) {
  auto model = describe_file(file, arguments, options);
  if (!model.ok()) return model.status().within(file.string());
  described.models.push_back(std::move(model).value());
  return {};
}

// ---- models files

// The texts of the applications in a file that has been read without an error.
std::vector<std::string> application_texts(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const Json document = Json::parse(in, nullptr, false);
  std::vector<std::string> texts;
  if (!document.is_object() || !document.contains("applications")) return texts;
  for (const Json& one : document["applications"]) texts.push_back(one.dump());
  return texts;
}

Status add_models_file(const fs::path& file, DescribedModels& described) {
  GPULET_TRY(auto listed, config::load_serving(file));
  for (config::ModelConfig& model : listed.models) {
    if (model.remote) {
      return invalid(
          fmt::format("{}: {}: its file is in a remote store, and only local files are "
                      "measured; start the daemons by hand (docs/guide.md)",
                      file.string(), model.name));
    }
    described.models.push_back(std::move(model));
  }
  for (std::string& text : application_texts(file))
    described.applications.push_back(std::move(text));
  return {};
}

// ---- repositories

bool has_model(const DescribedModels& described, const std::string& name) {
  return std::any_of(described.models.begin(), described.models.end(),
                     [&name](const config::ModelConfig& model) { return model.name == name; });
}

Result<config::ModelConfig> describe_one(const RepositoryEntry& entry,
                                         const ModelArguments& arguments,
                                         const TensorOptions& options) {
  if (Status path_is_text = check_path(entry.file); !path_is_text.ok()) return path_is_text;
  return describe_entry(entry, arguments.max_batch, options);
}

void add_entry(const RepositoryEntry& entry, const ModelArguments& arguments,
               const TensorOptions& options, DescribedModels& described) {
  auto model = describe_one(entry, arguments, options);
  if (model.ok() && has_model(described, entry.name))
    model = invalid("another model has the same name; rename one of them");
  if (!model.ok()) {
    described.left_out.push_back({entry.name, model.status()});
    return;
  }
  described.may_be_left_out.insert(entry.name);
  if (!entry.unused.empty()) described.unused.push_back({entry.name, entry.unused});
  described.models.push_back(std::move(model).value());
}

// A folder that is one model alone was named by the user: it is not left out.
Status add_model_folder(RepositoryEntry entry, const ModelArguments& arguments,
                        const TensorOptions& options, DescribedModels& described) {
  if (!arguments.name.empty()) entry.name = arguments.name;
  if (!config::is_name(entry.name)) {
    return invalid(fmt::format("\"{}\" is not a valid name for a model; choose one with --name",
                               escaped(entry.name)));
  }
  auto model = describe_one(entry, arguments, options);
  if (!model.ok()) return model.status().within(entry.name);
  if (!entry.unused.empty()) described.unused.push_back({entry.name, entry.unused});
  described.models.push_back(std::move(model).value());
  return {};
}

Status add_repository(const fs::path& folder, const ModelArguments& arguments,
                      const TensorOptions& options, DescribedModels& described) {
  const bool one = is_model_folder(folder);
  auto repository = read_repository(folder);
  if (!repository.ok()) return repository.status().within(folder.string());
  if (one) {
    const std::vector<LeftOut>& wrong = repository.value().left_out;
    if (!wrong.empty()) return wrong.front().reason.within(folder.string());
    return add_model_folder(std::move(repository.value().entries.front()), arguments, options,
                            described)
        .within(folder.string());
  }
  if (!arguments.name.empty()) {
    return invalid(
        fmt::format("--name {}: {} is a repository, whose folders name its models; "
                    "leave it out, or name one of these folders",
                    arguments.name, folder.string()));
  }
  for (LeftOut& wrong : repository.value().left_out) described.left_out.push_back(std::move(wrong));
  for (const RepositoryEntry& entry : repository.value().entries)
    add_entry(entry, arguments, options, described);
  return {};
}

// ---- all of them

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

Status add(const fs::path& file, const ModelArguments& arguments, const TensorOptions& options,
           DescribedModels& described) {
  if (std::error_code error; fs::is_directory(file, error))
    return add_repository(file, arguments, options, described);
  if (file.extension() == ".json") return add_models_file(file, described);
  return add_file(file, arguments, options, described);
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

namespace {

std::string inputs_text(const config::ModelConfig& model) {
  std::vector<std::string> texts;
  for (const TensorSpec& input : model.inputs)
    texts.push_back(fmt::format("{} {}", escaped(input.name), to_string(input)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string limits_text(const DescribedModels& described) {
  std::string text;
  for (const LeftOut& one : described.left_out)
    text += fmt::format("left out: {}: {}\n", one.name, one.reason.message());
  for (const UnusedKeys& one : described.unused)
    text += fmt::format("{}: not used of config.pbtxt: {}\n", one.model, escaped(joined(one.keys)));
  for (const config::ModelConfig& model : described.models) {
    if (are_whole(model.inputs)) {
      text += fmt::format("{}: it has no batch dimension, so that requests run one at a time: {}\n",
                          model.name, inputs_text(model));
    }
  }
  return text;
}

Result<DescribedModels> describe_models(const ModelArguments& arguments, const LearnShapes& learn) {
  if (arguments.files.size() > 1 &&
      (!arguments.name.empty() || !arguments.inputs.empty() || !arguments.outputs.empty())) {
    return invalid(
        "--name, --input and --output describe one file; serve several through a models "
        "file (docs/guide.md)");
  }
  GPULET_TRY(auto shapes, OpenShapes::parse(arguments.shapes));
  GPULET_TRY(auto ranges, SampleRanges::parse(arguments.ranges));
  const TensorOptions options{arguments.buckets, shapes, ranges, learn};
  DescribedModels described;
  for (const fs::path& file : arguments.files) {
    if (Status added = add(file, arguments, options, described); !added.ok()) return added;
  }
  if (described.models.empty())
    return invalid("no model can be served:\n" + limits_text(described));
  // A model that is left out may have been the one that a --shape is for.
  if (described.left_out.empty()) {
    if (Status used = shapes.all_used(); !used.ok()) return used;
  }
  Status status = check_unique(described.models);
  if (status.ok()) status = set_byte_inputs(arguments.byte_inputs, described.models);
  for (config::ModelConfig& model : described.models) {
    if (status.ok()) status = ranges.set(model.name, model.inputs);
  }
  if (status.ok() && described.left_out.empty()) status = ranges.all_used();
  if (!status.ok()) return status;
  return described;
}

}  // namespace gpulet::tools
