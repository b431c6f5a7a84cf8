#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "gpulet/config/model_config.h"
#include "gpulet/core/bucket.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/host.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

bool is_of(const Model& model, config::FileFormat format) {
  return model.description && model.description->format == format;
}

}  // namespace

std::vector<TensorSpec> longest_inputs(const Model& model) {
  return with_length(model.inputs, model.longest);
}

// ---- names

const char* platform_of(const Model& model) {
  if (model.application) return "ensemble";
  if (is_of(model, config::FileFormat::onnx)) return "onnxruntime_onnx";
  return is_of(model, config::FileFormat::package) ? "torch_aoti" : "pytorch_libtorch";
}

const char* backend_of(const Model& model) {
  if (model.application) return "";
  return is_of(model, config::FileFormat::onnx) ? "onnxruntime" : "pytorch";
}

std::string model_filename(const Model& model) {
  return model.description ? model.description->file_name : std::string();
}

std::string label_filename(const Model& model, std::size_t output) {
  if (!model.description || output >= model.description->labels.size()) return {};
  return model.description->labels[output].file_name;
}

config::ImageFormat input_format(const Model& model, std::size_t input) {
  if (!model.description || input >= model.description->formats.size())
    return config::ImageFormat::none;
  return model.description->formats[input];
}

bool is_optional(const Model& model, std::size_t input) {
  return model.description && input < model.description->defaults.size() &&
         !model.description->defaults[input].empty();
}

std::uint32_t max_batch_size(const Model& model) {
  return are_whole(model.inputs) ? 0 : model.max_batch;
}

std::string config_type(DataType type) {
  return type == DataType::bytes ? "TYPE_STRING" : fmt::format("TYPE_{}", to_string(type));
}

std::vector<std::string> extensions(bool shared_memory) {
  std::vector<std::string> names{
      "classification", "model_repository", "model_configuration", "binary_tensor_data",
      "parameters",     "statistics",       "schedule_policy",     "trace",
      "logging"};
  if (shared_memory) names.emplace_back("system_shared_memory");
  return names;
}

std::string_view repository_state(ModelState state) {
  switch (state) {
    case ModelState::ready:
    case ModelState::idle:
      return "READY";
    case ModelState::loading:
      return "LOADING";
    case ModelState::leaving:
      return "UNLOADING";
    case ModelState::unavailable:
      break;
  }
  return "UNAVAILABLE";
}

bool takes_requests(ModelState state) {
  return state == ModelState::ready || state == ModelState::idle;
}

// ---- ensembles

namespace {

using config::ApplicationConfig;
using config::ApplicationNode;
using config::TensorSource;

bool is_input(const ApplicationConfig& graph, const std::string& name) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                     [&name](const TensorSpec& input) { return input.name == name; });
}

std::string tensor_name(const ApplicationConfig& graph, const TensorSource& source) {
  const std::string item = source.item ? fmt::format("[{}]", *source.item) : "";
  if (!source.node) return graph.inputs[source.tensor].name + item;
  for (std::size_t i = 0; i < graph.answered.size(); ++i) {
    if (graph.answered[i] == source && !is_input(graph, graph.outputs[i].name))
      return graph.outputs[i].name;
  }
  const ApplicationNode& node = graph.nodes[*source.node];
  return node.name + '.' + node.outputs[source.tensor].name + item;
}

std::string input_name(const ApplicationNode& node, std::size_t index) {
  return index < node.input_names.size() ? node.input_names[index] : std::to_string(index);
}

struct KindOfStep {
  const char* operator()(const config::SelectStep&) const { return "select"; }
  const char* operator()(const config::CropStep&) const { return "crop"; }
  const char* operator()(const config::ResizeStep&) const { return "resize"; }
  const char* operator()(const config::ArgMaxStep&) const { return "argmax"; }
};

}  // namespace

std::vector<EnsembleStep> ensemble_steps(const ApplicationConfig& graph) {
  std::vector<EnsembleStep> steps;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ApplicationNode& node = graph.nodes[n];
    const auto* const call = std::get_if<config::ModelCall>(&node.work);
    if (call == nullptr) continue;
    EnsembleStep& step = steps.emplace_back();
    step.model = call->model;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      step.input_map[input_name(node, i)] = tensor_name(graph, node.inputs[i]);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      step.output_map[node.outputs[i].name] = tensor_name(graph, {n, i, {}});
  }
  return steps;
}

std::map<std::string, std::string> built_in_steps(const ApplicationConfig& graph) {
  std::map<std::string, std::string> steps;
  for (const ApplicationNode& node : graph.nodes) {
    const auto* const step = std::get_if<config::Step>(&node.work);
    if (step == nullptr) continue;
    std::string tensors;
    for (const TensorSource& source : node.inputs)
      tensors += (tensors.empty() ? "" : ", ") + tensor_name(graph, source);
    steps["step." + node.name] = fmt::format("{}({})", std::visit(KindOfStep(), *step), tensors);
  }
  return steps;
}

// ---- repository changes

namespace {

// Looks for the member "models". Errors are left to the file's own parser.
class MemberReader final : public JsonReader {
 public:
  bool key(std::string_view name) override {
    found_ = found_ || (depth() == 1 && name == "models");
    return true;
  }
  [[nodiscard]] bool found() const { return found_; }

 private:
  bool found_ = false;
};

bool is_models_file(std::string_view text) {
  MemberReader reader;
  static_cast<void>(read_json(text, reader));
  return reader.found();
}

}  // namespace

Status check_load_parameter(std::string_view name) {
  if (name == "config") return {};
  return invalid(fmt::format(
      "parameter {} is {}", in_quotes(name),
      name.starts_with("file:")
          ? "not supported: put the model file on the server, at the path in the models file"
          : "unknown: a load accepts 'config', a model configuration or the text of a models "
            "file"));
}

Result<ModelsChange> loading(const std::string& model, std::string config) {
  ModelsChange change;
  change.kind = ModelsChange::Kind::load;
  if (config.empty() || !is_models_file(config)) {
    change.name = model;
    change.configuration = std::move(config);
    return change;
  }
  change.file = "config";
  GPULET_TRY(const auto models, config::parse_models(config, change.file));
  const bool only_it =
      std::all_of(models.begin(), models.end(),
                  [&model](const config::ModelConfig& entry) { return entry.name == model; });
  if (!only_it || models.empty()) {
    return invalid("the parameter config must be a models file with only the entry of '" + model +
                   "'");
  }
  change.text = http::bytes_of(std::move(config));
  return change;
}

Status load_status(const std::string& model, const Status& status) {
  return status.within("failed to load " + in_quotes(model));
}

ModelsChange unloading(const std::string& model) {
  ModelsChange change;
  change.kind = ModelsChange::Kind::unload;
  change.name = model;
  return change;
}

Status unload_status(const Status& status) {
  return status.code() == StatusCode::not_found ? Status() : status;
}

}  // namespace gpulet::net::kserve
