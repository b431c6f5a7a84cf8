#include "gpulet/net/kserve/ensemble.h"

#include <algorithm>
#include <variant>

namespace gpulet::net::kserve {
namespace {

using config::ApplicationConfig;
using config::ApplicationNode;
using config::TensorSource;

bool is_input(const ApplicationConfig& graph, const std::string& name) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                     [&name](const TensorSpec& input) { return input.name == name; });
}

std::string tensor_name(const ApplicationConfig& graph, const TensorSource& source) {
  const std::string item = source.item ? '[' + std::to_string(*source.item) + ']' : "";
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
    steps["step." + node.name] = std::string(std::visit(KindOfStep(), *step)) + '(' + tensors + ')';
  }
  return steps;
}

}  // namespace gpulet::net::kserve
