// Application: a graph of model calls and steps as the frontend serves it, the budgets of its
// nodes, and its appearance as a model to clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

// ---- objectives

inline constexpr Duration kStepAllowance = std::chrono::milliseconds(2);

struct StageBudget {
  Duration start{};   // planned, after the arrival of the request
  Duration budget{};  // start + budget is at most the start of every successor
};

struct ObjectiveSplit {
  std::vector<StageBudget> stages;  // one per node of the application
  std::string unmet;                // why no plan can meet the objective; empty: one may
};

// Divides the objective of an application over its nodes.
//
// The need of a model is its profiled latency for a batch of four (or its largest batch, if
// smaller) at the median of the measured sizes; of several profiles that cover every model, the
// largest counts. A step gets kStepAllowance. On every path the allowances are subtracted first,
// and the rest is divided in proportion to the needs. Nodes get their times in execution order,
// from the path through them with the least time per millisecond of need: the heaviest path is
// divided exactly in proportion, and a lighter branch beside it gets all the time that the heavy
// one leaves.
//
// Even an objective that cannot be met gets stages: no profile covers all models, or in some budget
// no whole device can serve one request that just missed a batch. REQUIRES: `models` holds the
// models that the application calls. Pure; any thread.
[[nodiscard]] ObjectiveSplit split_objective(const config::ApplicationConfig& application,
                                             const std::vector<ServedModel>& models,
                                             const profile::ProfileSet& profiles);

// ---- applications

// Immutable; any thread.
struct Application {
  config::ApplicationConfig graph;
  ObjectiveSplit split;
  // What clients see: name, inputs, outputs, objective; one request at a time.
  ServedModel front;
  // The number of edges and application outputs that read each node's outputs, and the request.
  std::vector<std::size_t> readers;
  std::size_t request_readers = 0;
};

// A missing model, or one with other tensors than the graph expects, makes the objective unmet.
// Fails with invalid if a tensor has an impossible size or a model has the application's name.
[[nodiscard]] Result<std::shared_ptr<const Application>> make_application(
    config::ApplicationConfig graph, const std::vector<ServedModel>& models,
    const profile::ProfileSet& profiles);

using ApplicationList = std::vector<std::shared_ptr<const Application>>;

// The demand of applications on a model that they call, in addition to that of its own clients.
struct CallsOfModel {
  double slo_ms = std::numeric_limits<double>::infinity();  // the smallest budget of a node
  double rate = 0;                                          // sum over all nodes
};

// By model. Applications with an unmet objective add no demand.
[[nodiscard]] std::map<std::string, CallsOfModel> calls_of_models(
    const ApplicationList& applications);

// The model with the demand of both, for planning.
[[nodiscard]] ServedModel planned_model(ServedModel model, const CallsOfModel& calls);

// ---- steps

struct Tensor {
  TensorSpec spec;  // without kAnyDimension
  Bytes bytes;
};

// One item along the first dimension, in the same memory. REQUIRES: index < shape[0].
[[nodiscard]] Tensor item(const Tensor& tensor, std::uint32_t index);

// Runs a built-in step (config/application_config.h) and returns its outputs in the configured
// order. REQUIRES: types and shapes fit, which the configuration checks. Values may be anything; a
// NaN in a box counts as 0. A crop and its resize to 3x224x224 take up to a millisecond, so daemons
// do not call it on their I/O thread. Fails with internal if memory runs out. Pure; any thread.
[[nodiscard]] Result<std::vector<Tensor>> run_step(const config::Step& step,
                                                   const std::vector<Tensor>& inputs);

// Run the step with run_step(), then answer with StepCompleted.
struct StepToRun {
  std::uint64_t id = 0;
  config::Step step;
  std::vector<Tensor> inputs;
};

}  // namespace gpulet::serve
