// The metrics that dashboards and load tools made for Triton expect, with Triton's names, labels
// and units.
#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/observe/metric_families.h"

namespace gpulet::frontend {

namespace {

using serve::DeviceStatus;
using serve::ModelStatus;

constexpr auto kTritonModelMetrics = std::to_array<MetricSpec<ModelStatus>>({
    {"nv_inference_request_success", "Number of successful inference requests.", kCounter,
     [](const ModelStatus& one) { return number(one.counters.served); }},
    {"nv_inference_count", "Number of inferences performed.", kCounter,
     [](const ModelStatus& one) { return number(one.counters.served); }},
    {"nv_inference_exec_count", "Number of batches executed.", kCounter,
     [](const ModelStatus& one) { return number(one.statistics.executions); }},
    {"nv_inference_pending_request_count", "Number of queued inference requests.", kGauge,
     [](const ModelStatus& one) { return number(one.queued); }},
    {"nv_inference_request_duration_us",
     "Cumulative time from arrival to the answer, in microseconds.", kCounter,
     [](const ModelStatus& one) { return one.statistics.latency.sum().microseconds(); }},
    {"nv_inference_queue_duration_us", "Cumulative time before execution, in microseconds.",
     kCounter, [](const ModelStatus& one) { return one.statistics.queued.sum().microseconds(); }},
    {"nv_inference_compute_input_duration_us",
     "Cumulative time of transferring inputs, in microseconds.", kCounter,
     [](const ModelStatus& one) { return one.statistics.input.microseconds(); }},
    {"nv_inference_compute_infer_duration_us", "Cumulative execution time, in microseconds.",
     kCounter, [](const ModelStatus& one) { return one.statistics.executed.sum().microseconds(); }},
    {"nv_inference_compute_output_duration_us",
     "Cumulative time of transferring outputs, in microseconds.", kCounter,
     [](const ModelStatus& one) { return one.statistics.output.microseconds(); }},
});

constexpr auto kTritonDeviceMetrics = std::to_array<MetricSpec<DeviceStatus>>({
    {"nv_gpu_utilization", "Busy fraction of the device, from the execution times of its gpulets.",
     kGauge, [](const DeviceStatus& one) { return one.busy; }},
    {"nv_gpu_memory_total_bytes", "Memory of the device.", kGauge,
     [](const DeviceStatus& one) { return one.memory_mb * kBytesPerMegabyte; }},
    {"nv_gpu_memory_used_bytes",
     "Memory of the models in its gpulets, according to their profiles.", kGauge,
     [](const DeviceStatus& one) { return one.planned_memory_mb * kBytesPerMegabyte; }},
});

// Exported for devices that report it.
struct PowerSpec {
  const char* name;
  const char* help;
  MetricType type;
  std::optional<double> DevicePower::*value;
};
constexpr std::array kPowerMetrics = {
    PowerSpec{"nv_gpu_power_usage", "Power draw of the device, in watts.", kGauge,
              &DevicePower::usage_w},
    PowerSpec{"nv_gpu_power_limit", "Power limit of the device, in watts.", kGauge,
              &DevicePower::limit_w},
    PowerSpec{"nv_energy_consumption", "Energy used since the driver was loaded, in joules.",
              kCounter, &DevicePower::energy_j},
};

Labels labels_of(const DeviceStatus& one) {
  return {{"gpu_uuid", one.key.node + "/" + std::to_string(one.key.device)}};
}

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
  auto& family = add_family(families, "nv_inference_request_failure",
                            "Number of failed inference requests.", kCounter);
  for (const ModelStatus& one : models) {
    std::array<std::uint64_t, kReasons.size()> counts{};
    for (std::size_t code = 1; code < serve::kStatusCodes; ++code)
      counts[reason_of(static_cast<StatusCode>(code))] += one.statistics.failures[code];
    for (std::size_t i = 0; i < kReasons.size(); ++i) {
      Labels labels = labels_of(one);
      labels.push_back({"reason", kReasons[i]});
      family.metric.push_back(metric_of(kCounter, number(counts[i]), std::move(labels)));
    }
  }
}

// The quantile, interpolated within a bucket; beyond all buckets, the last bound.
double quantile_us(const observe::BucketHistogram& histogram, double part) {
  const auto cumulative = histogram.cumulative();
  const double rank = part * number(histogram.count());
  double below = 0;
  Duration lower{};
  for (std::size_t i = 0; i < cumulative.size(); ++i) {
    const Duration upper = observe::BucketHistogram::bound(i);
    const double within = number(cumulative[i]) - below;
    if (within > 0 && number(cumulative[i]) >= rank) {
      const double lower_us = to_seconds(lower) * 1e6;
      return lower_us + (to_seconds(upper) * 1e6 - lower_us) * (rank - below) / within;
    }
    below = number(cumulative[i]);
    lower = upper;
  }
  return to_seconds(lower) * 1e6;
}

prometheus::ClientMetric summary_of(const observe::DurationSum& sum, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.summary.sample_count = sum.count();
  metric.summary.sample_sum = sum.microseconds();
  return metric;
}

prometheus::ClientMetric summary_of(const observe::BucketHistogram& histogram, Labels labels) {
  prometheus::ClientMetric metric = summary_of(histogram.sum(), std::move(labels));
  if (histogram.count() == 0) return metric;
  for (const double part : {0.5, 0.9, 0.95, 0.99, 0.999})
    metric.summary.quantile.push_back({part, quantile_us(histogram, part)});
  return metric;
}

template <typename Part>
void add_summaries(Families& families, const std::vector<ModelStatus>& models,
                   Part serve::ModelStatistics::*part, const char* name, const char* help) {
  auto& family = add_family(families, name, help, MetricType::Summary);
  for (const ModelStatus& one : models)
    family.metric.push_back(summary_of(one.statistics.*part, labels_of(one)));
}

void add_gauge(Families& families, const char* name, const char* help, double value) {
  add_family(families, name, help, kGauge).metric.push_back(metric_of(kGauge, value, {}));
}

}  // namespace

void add_triton_families(Families& families, const serve::FrontendStatus& status) {
  const auto labels = [](const ModelStatus& one) { return labels_of(one); };
  add_metrics(families, kTritonModelMetrics, status.models, labels);
  add_failures(families, status.models);
  add_histograms(
      families, "nv_inference_first_response_histogram_ms",
      "Time from arrival to the answer, in milliseconds.", 1000, status.models,
      [](const ModelStatus& one) { return one.statistics.latency; }, labels);
  add_metrics(families, kTritonDeviceMetrics, status.devices,
              [](const DeviceStatus& one) { return labels_of(one); });
  for (const PowerSpec& spec : kPowerMetrics) {
    auto& family = add_family(families, spec.name, spec.help, spec.type);
    for (const DeviceStatus& one : status.devices) {
      const std::optional<double>& value = one.power.*spec.value;
      if (value) family.metric.push_back(metric_of(spec.type, *value, labels_of(one)));
    }
  }
}

void add_machine_families(Families& families, const MachineUsage& usage) {
  if (usage.cpu)
    add_gauge(families, "nv_cpu_utilization", "Busy fraction of the machine's CPUs.", *usage.cpu);
  if (usage.memory_total_bytes) {
    add_gauge(families, "nv_cpu_memory_total_bytes", "Memory of the machine.",
              number(*usage.memory_total_bytes));
  }
  if (usage.memory_used_bytes) {
    add_gauge(families, "nv_cpu_memory_used_bytes", "Used memory of the machine.",
              number(*usage.memory_used_bytes));
  }
}

// Inputs and outputs have no histograms, so their summaries have only sums and counts.
void add_summary_families(Families& families, const std::vector<ModelStatus>& models) {
  using Statistics = serve::ModelStatistics;
  add_summaries(families, models, &Statistics::latency, "nv_inference_request_summary_us",
                "Time from arrival to the answer, in microseconds.");
  add_summaries(families, models, &Statistics::queued, "nv_inference_queue_summary_us",
                "Time before execution, in microseconds.");
  add_summaries(families, models, &Statistics::input, "nv_inference_compute_input_summary_us",
                "Time of transferring inputs, in microseconds.");
  add_summaries(families, models, &Statistics::executed, "nv_inference_compute_infer_summary_us",
                "Execution time, in microseconds.");
  add_summaries(families, models, &Statistics::output, "nv_inference_compute_output_summary_us",
                "Time of transferring outputs, in microseconds.");
}

// ---- MachineWatch

// The first line sums all CPUs: user nice system idle iowait irq softirq steal. The guest times
// that follow are part of user.
std::optional<MachineWatch::CpuTimes> MachineWatch::cpu_times() const {
  constexpr int kTimes = 8;
  constexpr int kIdle = 3;
  constexpr int kIoWait = 4;
  std::ifstream file(proc_ / "stat");
  std::string name;
  if (!(file >> name) || name != "cpu") return std::nullopt;
  CpuTimes times;
  for (int i = 0; i < kTimes; ++i) {
    std::uint64_t ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    times.all += ticks;
    if (i == kIdle || i == kIoWait) times.idle += ticks;
  }
  return times;
}

void MachineWatch::read_memory(MachineUsage& usage) const {
  constexpr std::uint64_t kKilobyte = 1024;
  std::ifstream file(proc_ / "meminfo");
  std::optional<std::uint64_t> total;
  std::optional<std::uint64_t> available;
  std::string name;
  std::uint64_t kilobytes = 0;
  std::string rest;
  while (!(total && available) && file >> name >> kilobytes && std::getline(file, rest)) {
    if (name == "MemTotal:") total = kilobytes * kKilobyte;
    if (name == "MemAvailable:") available = kilobytes * kKilobyte;
  }
  usage.memory_total_bytes = total;
  if (total && available) usage.memory_used_bytes = *total - std::min(*total, *available);
}

MachineUsage MachineWatch::sample() {
  MachineUsage usage;
  read_memory(usage);
  const std::optional<CpuTimes> now = cpu_times();
  if (now && before_ && now->all > before_->all) {
    const auto all = static_cast<double>(now->all - before_->all);
    const auto idle = static_cast<double>(now->idle - std::min(now->idle, before_->idle));
    cpu_ = std::clamp(1 - idle / all, 0.0, 1.0);
  }
  if (now) before_ = now;
  usage.cpu = cpu_;
  return usage;
}

}  // namespace gpulet::frontend
