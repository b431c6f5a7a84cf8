// An application as the frontend serves it: its graph, the way its objective is divided, and the
// look of a model to its clients. Immutable once made; any thread.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/core/status.h"
#include "gpulet/serve/application_objective.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

struct Application {
  config::ApplicationConfig graph;
  ObjectiveSplit split;
  // What clients see: name, inputs, outputs, objective; one request at a time.
  ServedModel front;
  // Edges by where they begin, an answered tensor counted as one: how often a node's outputs and
  // the request are still asked for.
  std::vector<std::size_t> readers;  // beside the graph's nodes
  std::size_t request_readers = 0;
};

// A model that is not among `models`, or is there with other tensors than the graph was made for,
// makes it one that cannot be met. Fails (invalid) where a tensor's size cannot be or a model has
// its name.
[[nodiscard]] Result<std::shared_ptr<const Application>> make_application(
    config::ApplicationConfig graph, const std::vector<ServedModel>& models,
    const profile::ProfileSet& profiles);

using ApplicationList = std::vector<std::shared_ptr<const Application>>;

// What applications ask of a model that they call, beside what its own clients do.
struct CallsOfModel {
  double slo_ms = std::numeric_limits<double>::infinity();  // the tightest budget of the nodes
  double rate = 0;  // of the applications, once for every node
};

// By model. Applications that cannot be met ask nothing of those that they call.
[[nodiscard]] std::map<std::string, CallsOfModel> calls_of_models(
    const ApplicationList& applications);

// The model as a plan is to see it.
[[nodiscard]] ServedModel planned_model(ServedModel model, const CallsOfModel& calls);

}  // namespace gpulet::serve
