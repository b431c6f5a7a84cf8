#include "gpulet/serve/application.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

using config::ApplicationConfig;
using config::ApplicationNode;

const ServedModel* find(const std::vector<ServedModel>& models, const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const ServedModel& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

bool fits(const TensorSpec& a, const TensorSpec& b) {
  return a.type == b.type && a.shape == b.shape;
}

TensorSpec at(const ApplicationConfig& graph, const config::TensorSource& source) {
  const TensorSpec& whole =
      source.node ? graph.nodes[*source.node].outputs[source.tensor] : graph.inputs[source.tensor];
  return source.item ? config::item_of(whole) : whole;
}

bool fits(const ApplicationConfig& graph, const ApplicationNode& node, const ServedModel& model) {
  if (node.inputs.size() != model.inputs.size() || node.outputs.size() != model.outputs.size())
    return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!fits(at(graph, node.inputs[i]), model.inputs[i])) return false;
  }
  return std::equal(node.outputs.begin(), node.outputs.end(), model.outputs.begin(),
                    [](const TensorSpec& a, const TensorSpec& b) { return fits(a, b); });
}

// The file's models fit; but they may be unloaded, and others loaded in their place.
std::string why_unusable(const ApplicationConfig& graph, const std::vector<ServedModel>& models) {
  for (const ApplicationNode& node : graph.nodes) {
    const auto* call = std::get_if<config::ModelCall>(&node.work);
    if (call == nullptr) continue;
    const ServedModel* const model = find(models, call->model);
    if (model == nullptr) return "model " + call->model + " is not served here";
    if (!fits(graph, node, *model)) {
      return "model " + call->model + " has other tensors than node " + node.name + " was made for";
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Application>> make_application(config::ApplicationConfig graph,
                                                            const std::vector<ServedModel>& models,
                                                            const profile::ProfileSet& profiles) {
  if (find(models, graph.name) != nullptr) {
    return Status(StatusCode::invalid, "application " + graph.name +
                                           ": a model has this name; give one of them another");
  }
  auto application = std::make_shared<Application>();
  ServedModel front;
  front.name = graph.name;
  front.inputs = graph.inputs;
  front.outputs = graph.outputs;
  front.slo_ms = graph.slo_ms;
  front.configured_rate = graph.rate;
  front.max_batch = 1;
  Result<ServedModel> sized = with_sizes(std::move(front));
  if (!sized.ok()) return sized.status();
  application->front = std::move(sized).value();
  application->split.unmet = why_unusable(graph, models);
  if (application->split.unmet.empty())
    application->split = split_objective(graph, models, profiles);
  application->split.stages.resize(graph.nodes.size());
  application->readers.resize(graph.nodes.size(), 0);
  const auto count = [&application](const config::TensorSource& source) {
    ++(source.node ? application->readers[*source.node] : application->request_readers);
  };
  for (const config::ApplicationNode& node : graph.nodes) {
    for (const config::TensorSource& source : node.inputs) count(source);
  }
  for (const config::TensorSource& source : graph.answered) count(source);
  application->graph = std::move(graph);
  return std::shared_ptr<const Application>(std::move(application));
}

std::map<std::string, CallsOfModel> calls_of_models(const ApplicationList& applications) {
  std::map<std::string, CallsOfModel> called;
  for (const auto& application : applications) {
    for (std::size_t i = 0; i < application->graph.nodes.size(); ++i) {
      const auto* call = std::get_if<config::ModelCall>(&application->graph.nodes[i].work);
      if (call == nullptr) continue;
      CallsOfModel& calls = called[call->model];
      if (!application->split.unmet.empty()) continue;
      calls.slo_ms = std::min(calls.slo_ms, to_ms(application->split.stages[i].budget));
      calls.rate += application->graph.rate;
    }
  }
  return called;
}

ServedModel planned_model(ServedModel model, const CallsOfModel& calls) {
  model.slo_ms = std::min(model.slo_ms, calls.slo_ms);
  model.configured_rate += calls.rate;
  return model;
}

}  // namespace gpulet::serve
