// The metrics that dashboards and load tools made for Triton look for: their names, their labels,
// and their microseconds.
#include <array>
#include <cstdint>
#include <string>

#include "frontend/metric_families.h"

namespace gpulet::frontend {
namespace {

using serve::DeviceStatus;
using serve::ModelStatus;

constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

double number(std::uint64_t count) { return static_cast<double>(count); }

constexpr std::array kOfModels = {
    Measure<ModelStatus>{"nv_inference_request_success", "Number of successful inference requests.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.served); }},
    Measure<ModelStatus>{"nv_inference_count", "Number of inferences performed.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.served); }},
    Measure<ModelStatus>{"nv_inference_exec_count", "Number of batches executed.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.statistics.executions); }},
    Measure<ModelStatus>{"nv_inference_pending_request_count", "Number of requests that wait.",
                         MetricType::Gauge,
                         [](const ModelStatus& one) { return number(one.queued); }},
    Measure<ModelStatus>{
        "nv_inference_request_duration_us", "Cumulative time from arrival to the answer.",
        MetricType::Counter,
        [](const ModelStatus& one) { return one.statistics.latency.sum().microseconds(); }},
    Measure<ModelStatus>{
        "nv_inference_queue_duration_us", "Cumulative time before execution.", MetricType::Counter,
        [](const ModelStatus& one) { return one.statistics.queued.sum().microseconds(); }},
    Measure<ModelStatus>{
        "nv_inference_compute_input_duration_us", "Cumulative time of inputs on their way.",
        MetricType::Counter,
        [](const ModelStatus& one) { return one.statistics.transferred.microseconds() / 2; }},
    Measure<ModelStatus>{
        "nv_inference_compute_infer_duration_us", "Cumulative time of execution.",
        MetricType::Counter,
        [](const ModelStatus& one) { return one.statistics.executed.sum().microseconds(); }},
    Measure<ModelStatus>{
        "nv_inference_compute_output_duration_us", "Cumulative time of outputs on their way.",
        MetricType::Counter,
        [](const ModelStatus& one) { return one.statistics.transferred.microseconds() / 2; }},
};

constexpr std::array kOfDevices = {
    Measure<DeviceStatus>{"nv_gpu_utilization", "Utilization, as the gpulets' executions sum up.",
                          MetricType::Gauge, [](const DeviceStatus& one) { return one.busy; }},
    Measure<DeviceStatus>{
        "nv_gpu_memory_total_bytes", "Memory of the device.", MetricType::Gauge,
        [](const DeviceStatus& one) { return one.memory_mb * kBytesPerMegabyte; }},
    Measure<DeviceStatus>{
        "nv_gpu_memory_used_bytes", "Memory of the models in its gpulets, as profiled.",
        MetricType::Gauge,
        [](const DeviceStatus& one) { return one.planned_memory_mb * kBytesPerMegabyte; }},
};

Labels labels_of(const ModelStatus& one) {
  return {{"model", one.name}, {"version", std::to_string(one.number)}};
}

enum Reason : std::size_t { rejected, canceled, backend, other };
constexpr std::array kReasons = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

Reason reason_of(StatusCode code) {
  switch (code) {
    case StatusCode::too_late:
    case StatusCode::overloaded:
    case StatusCode::timeout:
    case StatusCode::limited:
      return rejected;
    case StatusCode::cancelled:
      return canceled;
    case StatusCode::unavailable:
    case StatusCode::internal:
      return backend;
    default:
      return other;
  }
}

void add_failures(Families& families, const std::vector<ModelStatus>& models) {
  prometheus::MetricFamily family{"nv_inference_request_failure",
                                  "Number of failed inference requests.",
                                  MetricType::Counter,
                                  {}};
  for (const ModelStatus& one : models) {
    std::array<std::uint64_t, kReasons.size()> counts{};
    for (std::size_t code = 1; code < serve::kStatusCodes; ++code)
      counts[reason_of(static_cast<StatusCode>(code))] += one.statistics.failures[code];
    for (std::size_t i = 0; i < kReasons.size(); ++i) {
      Labels labels = labels_of(one);
      labels.push_back({"reason", kReasons[i]});
      family.metric.push_back(metric_of(MetricType::Counter, number(counts[i]), std::move(labels)));
    }
  }
  families.push_back(std::move(family));
}

}  // namespace

void add_triton_families(Families& families, const serve::FrontendStatus& status) {
  const auto labels = [](const ModelStatus& one) { return labels_of(one); };
  add_measures(families, kOfModels, status.models, labels);
  add_failures(families, status.models);
  add_histograms(
      families, "nv_inference_first_response_histogram_ms", "Time from arrival to the answer.",
      1000, status.models, [](const ModelStatus& one) { return one.statistics.latency; }, labels);
  add_measures(families, kOfDevices, status.devices, [](const DeviceStatus& one) {
    return Labels{{"gpu_uuid", one.key.node + "/" + std::to_string(one.key.device)}};
  });
}

}  // namespace gpulet::frontend
