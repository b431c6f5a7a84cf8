// Plans, and transitions between them, as tables, JSON documents and pictures.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/mig.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::tools {

// A plan, the time that it took to make, and what it is predicted to keep.
struct TimedPlan {
  schedule::Plan plan;
  double microseconds = 0;
  schedule::PredictedViolations predicted{};  // of the plan; empty: unknown
};

// The document that `gpulet schedule --json` prints. A gpulet on a MIG instance has "profile" and
// "start", and one that does not serve in rounds has "service" (schedule::Service). An assignment
// with a prediction has "predicted_violation".
[[nodiscard]] nlohmann::ordered_json plan_json(const TimedPlan& made);

// Reads such a document without derived fields. Errors as in config/json.h. Blocking file I/O.
[[nodiscard]] Result<schedule::Plan> read_plan(const std::filesystem::path& file);

// Prints a table of gpulets and a summary on standard output. With `json` prints the document
// instead, and the unserved models on standard error. `devices`: in the cluster.
void print_plan(const TimedPlan& made, std::size_t devices, bool json);
// The same with a table of device layouts, each with the number of devices that have it.
void print_layouts(const TimedPlan& made, std::size_t devices, bool json);

// The stages of a transition with their actions, and the number of actions of each kind.
[[nodiscard]] nlohmann::ordered_json transition_json(const schedule::StagedPlan& staged,
                                                     const schedule::Cluster& cluster);
[[nodiscard]] std::string transition_text(const schedule::StagedPlan& staged,
                                          const schedule::Cluster& cluster);

// Draws a MIG transition as an SVG document: the devices in use before, during and after. Each
// moment is a row, each device a box with its instances, each service a colour. Pure.
[[nodiscard]] std::string draw_transition(const schedule::mig::Transition& transition,
                                          const schedule::mig::TransitionTask& task);

}  // namespace gpulet::tools
