#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {
namespace {

using config::ApplicationConfig;
using config::ApplicationDemand;
using config::DemandNode;
using config::TensorSource;

// The answers that the calls of a node wait for.
std::size_t awaited(const ApplicationDemand& application, const DemandNode& node) {
  std::size_t calls = 0;
  for (const std::size_t before : node.after) calls += application.nodes[before].count;
  return std::max(calls, std::size_t{1});
}

// The inputs of each model that applications call: as many as the most that one of its calls waits
// for, since all calls of a model have the same inputs.
std::map<std::string, std::size_t> inputs_of_models(
    const std::vector<ApplicationDemand>& applications) {
  std::map<std::string, std::size_t> inputs;
  for (const ApplicationDemand& application : applications) {
    for (const DemandNode& node : application.nodes) {
      std::size_t& most = inputs[node.model];
      most = std::max(most, awaited(application, node));
    }
  }
  return inputs;
}

// A simulated batch returns its inputs as its outputs, so both have the same size.
Result<serve::ServedModel> with_tensors(serve::ServedModel model, std::size_t inputs) {
  for (std::size_t i = 0; i < inputs; ++i)
    model.inputs.push_back({"in" + std::to_string(i), DataType::uint8, {}});
  model.outputs = {{"out", DataType::uint8, {static_cast<std::int64_t>(inputs)}}};
  return serve::with_sizes(std::move(model));
}

// Makes the graph of one application: every call is a node, and an edge is one byte.
ApplicationConfig graph_of(const ApplicationDemand& application,
                           const std::vector<serve::ServedModel>& models) {
  ApplicationConfig graph;
  graph.name = application.name;
  graph.slo_ms = application.slo_ms;
  graph.rate = application.rate;
  graph.inputs = {{"in", DataType::uint8, {1}}};
  std::vector<std::vector<TensorSource>> answers(application.nodes.size());  // by demanded node
  std::set<std::size_t> followed;
  for (std::size_t at = 0; at < application.nodes.size(); ++at) {
    const DemandNode& node = application.nodes[at];
    const serve::ServedModel& model = *std::find_if(
        models.begin(), models.end(), [&node](const auto& one) { return one.name == node.model; });
    std::vector<TensorSource> sources;
    for (const std::size_t before : node.after) {
      sources.insert(sources.end(), answers[before].begin(), answers[before].end());
      followed.insert(before);
    }
    if (sources.empty()) sources.push_back({std::nullopt, 0, 0});
    sources.resize(model.inputs.size(), sources.front());
    for (std::uint32_t call = 0; call < node.count; ++call) {
      answers[at].push_back({graph.nodes.size(), 0, 0});
      config::ApplicationNode& added = graph.nodes.emplace_back();
      added.name = node.count == 1 ? node.name : fmt::format("{}-{}", node.name, call + 1);
      added.work = config::ModelCall{node.model};
      added.inputs = sources;
      added.outputs = model.outputs;
      for (const TensorSpec& input : model.inputs) added.input_names.push_back(input.name);
    }
  }
  for (std::size_t at = 0; at < answers.size(); ++at) {
    if (followed.contains(at)) continue;
    for (const TensorSource& answer : answers[at]) {
      const config::ApplicationNode& node = graph.nodes[*answer.node];
      graph.answered.push_back({answer.node, 0, std::nullopt});
      graph.outputs.push_back({node.name, DataType::uint8, node.outputs.front().shape});
    }
  }
  return graph;
}

Status check_names(const Load& load) {
  std::set<std::string> models;
  for (const schedule::ModelDemand& model : load.models) models.insert(model.name);
  std::set<std::string> names = models;
  for (const ApplicationDemand& application : load.applications) {
    if (!names.insert(application.name).second) {
      return {StatusCode::invalid,
              fmt::format("application {}: another entry of the demand has its name; rename one",
                          application.name)};
    }
    for (const DemandNode& node : application.nodes) {
      if (models.contains(node.model)) continue;
      return {StatusCode::invalid,
              fmt::format("application {}, node {}: the demand has no model {}; add it with a rate "
                          "of 0",
                          application.name, node.name, node.model)};
    }
  }
  return {};
}

}  // namespace

Result<ServedLoad> served_load(const Load& load, const profile::ProfileSet& profiles) {
  if (Status status = check_names(load); !status.ok()) return status;
  const std::map<std::string, std::size_t> inputs = inputs_of_models(load.applications);
  ServedLoad served;
  for (const schedule::ModelDemand& demand : load.models) {
    serve::ServedModel model;
    model.name = demand.name;
    model.sha256 = demand.name;
    model.slo_ms = demand.slo_ms;
    model.configured_rate = demand.rate;
    model.max_batch = demand.max_batch;
    if (const auto called = inputs.find(demand.name); called != inputs.end()) {
      GPULET_TRY(serve::ServedModel sized, with_tensors(std::move(model), called->second));
      model = std::move(sized);
    }
    served.models.push_back(std::move(model));
  }
  for (const ApplicationDemand& demand : load.applications) {
    GPULET_TRY(auto application,
               serve::make_application(graph_of(demand, served.models), served.models, profiles));
    if (const std::string& unmet = application->split.unmet; !unmet.empty()) {
      return Status(StatusCode::invalid, fmt::format("application {}: {}", demand.name, unmet));
    }
    served.applications.push_back(std::move(application));
  }
  return served;
}

Result<std::vector<schedule::ModelDemand>> planned_demands(const Load& load,
                                                           const profile::ProfileSet& profiles) {
  GPULET_TRY(ServedLoad served, served_load(load, profiles));
  std::vector<schedule::ModelDemand> demands = load.models;
  for (const auto& [name, calls] : serve::calls_of_models(served.applications)) {
    const auto at = std::find_if(demands.begin(), demands.end(),
                                 [&name = name](const auto& one) { return one.name == name; });
    const auto index = static_cast<std::size_t>(at - demands.begin());
    const serve::ServedModel planned = planned_model(served.models[index], calls);
    at->slo_ms = planned.slo_ms;
    at->rate = planned.configured_rate;
  }
  return demands;
}

}  // namespace gpulet::simulate
