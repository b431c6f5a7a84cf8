// The metrics of what is controlled: models whose executables are, and the nodes whose cores these
// share. Without control, no family of them.
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frontend/metric_families.h"

namespace gpulet::frontend {
namespace {

using serve::ModelControlStatus;
using serve::NodeControlStatus;

struct ControlledModel {
  const serve::ModelStatus* model;
  const ModelControlStatus* control;
};

constexpr double kMillisecondsPerSecond = 1000;

constexpr std::array kOfControlledModels = {
    Measure<ControlledModel>{"gpulet_control_set_point_seconds",
                             "The response time that is aimed at.", MetricType::Gauge,
                             [](const ControlledModel& one) {
                               return one.control->set_point_ms / kMillisecondsPerSecond;
                             }},
    Measure<ControlledModel>{
        "gpulet_control_response_seconds",
        "The response time of the last control period; 0 where there was nothing to answer.",
        MetricType::Gauge,
        [](const ControlledModel& one) {
          return one.control->response_ms / kMillisecondsPerSecond;
        }},
    Measure<ControlledModel>{"gpulet_control_cores_asked",
                             "CPU cores that its executables ask for.", MetricType::Gauge,
                             [](const ControlledModel& one) { return one.control->cores_asked; }},
    Measure<ControlledModel>{"gpulet_control_cores_given", "CPU cores that they are given.",
                             MetricType::Gauge,
                             [](const ControlledModel& one) { return one.control->cores_given; }},
    Measure<ControlledModel>{"gpulet_control_core_seconds_total",
                             "CPU cores that they were given, by time.", MetricType::Counter,
                             [](const ControlledModel& one) { return one.control->core_seconds; }},
    Measure<ControlledModel>{
        "gpulet_control_periods_total", "Control periods with something to answer.",
        MetricType::Counter,
        [](const ControlledModel& one) { return static_cast<double>(one.control->periods); }},
    Measure<ControlledModel>{"gpulet_control_violated_periods_total",
                             "Control periods whose response time was above the objective.",
                             MetricType::Counter,
                             [](const ControlledModel& one) {
                               return static_cast<double>(one.control->violated_periods);
                             }},
};

constexpr std::array kOfControlledNodes = {
    Measure<NodeControlStatus>{"gpulet_control_node_cores", "CPU cores of the node.",
                               MetricType::Gauge,
                               [](const NodeControlStatus& one) { return one.cores; }},
    Measure<NodeControlStatus>{
        "gpulet_control_node_cores_asked", "CPU cores that its executables ask for together.",
        MetricType::Gauge, [](const NodeControlStatus& one) { return one.asked; }},
    Measure<NodeControlStatus>{"gpulet_control_node_cores_given",
                               "CPU cores that they are given together.", MetricType::Gauge,
                               [](const NodeControlStatus& one) { return one.given; }},
    Measure<NodeControlStatus>{
        "gpulet_control_contention_ratio",
        "Cores that executables can have, of those that they ask for; 0 where none asks.",
        MetricType::Gauge, [](const NodeControlStatus& one) { return one.contention; }},
};

prometheus::MetricFamily requests_by_device(const std::vector<ControlledModel>& models) {
  prometheus::MetricFamily family{"gpulet_control_requests_total",
                                  "Requests that were answered, by the kind of device.",
                                  MetricType::Counter,
                                  {}};
  for (const ControlledModel& one : models) {
    for (const auto& [kind, count] :
         {std::pair("gpu", one.control->on_gpu), std::pair("cpu", one.control->on_cpu)}) {
      Labels labels = model_labels(*one.model);
      labels.push_back({"device_kind", kind});
      family.metric.push_back(
          metric_of(MetricType::Counter, static_cast<double>(count), std::move(labels)));
    }
  }
  return family;
}

}  // namespace

void add_control_families(Families& families, const serve::FrontendStatus& status) {
  std::vector<ControlledModel> models;
  for (const serve::ModelStatus& model : status.models) {
    if (model.control) models.push_back({&model, &*model.control});
  }
  add_measures(families, kOfControlledModels, models,
               [](const ControlledModel& one) { return model_labels(*one.model); });
  families.push_back(requests_by_device(models));
  add_measures(families, kOfControlledNodes, status.controlled_nodes,
               [](const NodeControlStatus& one) {
                 return Labels{{"node", one.key.node}, {"device", std::to_string(one.key.device)}};
               });
}

}  // namespace gpulet::frontend
