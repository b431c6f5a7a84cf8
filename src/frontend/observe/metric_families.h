// Builds metric families from tables. A MetricSpec extracts one value from a subject (a model, a
// gpulet, a device, the frontend); the values of all subjects form one family.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "frontend/observe/metrics.h"
#include "gpulet/access/gate.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::MetricType;
inline constexpr MetricType kCounter = MetricType::Counter;
inline constexpr MetricType kGauge = MetricType::Gauge;

template <typename Subject>
struct MetricSpec {
  const char* name;
  const char* help;
  MetricType type;  // kCounter or kGauge
  double (*value)(const Subject&);
};

[[nodiscard]] inline double number(std::uint64_t count) { return static_cast<double>(count); }
[[nodiscard]] prometheus::ClientMetric metric_of(MetricType type, double value, Labels labels);
// Bounds and sum are in units of 1/units_per_second seconds.
[[nodiscard]] prometheus::ClientMetric metric_of(const observe::BucketHistogram& histogram,
                                                 double units_per_second, Labels labels);

// Appends a family without values. The reference is valid until the next family is added.
inline prometheus::MetricFamily& add_family(Families& families, const char* name, const char* help,
                                            MetricType type) {
  return families.emplace_back(prometheus::MetricFamily{name, help, type, {}});
}

template <typename Subject, typename Specs, typename LabelsOf>
void add_metrics(Families& families, const Specs& specs, const std::vector<Subject>& subjects,
                 const LabelsOf& labels_of) {
  for (const MetricSpec<Subject>& spec : specs) {
    auto& family = add_family(families, spec.name, spec.help, spec.type);
    for (const Subject& subject : subjects)
      family.metric.push_back(metric_of(spec.type, spec.value(subject), labels_of(subject)));
  }
}

// The rows of `counters_of(subject)`.
template <typename Rows, typename Subject, typename CountersOf, typename LabelsOf>
void add_counters(Families& families, const Rows& rows, const std::vector<Subject>& subjects,
                  const CountersOf& counters_of, const LabelsOf& labels_of) {
  for (const auto& row : rows) {
    if (row.metric == nullptr) continue;
    auto& family = add_family(families, row.metric, row.help, kCounter);
    for (const Subject& subject : subjects) {
      family.metric.push_back(
          metric_of(kCounter, number(counters_of(subject).*row.count), labels_of(subject)));
    }
  }
}

template <typename Subject, typename HistogramOf, typename LabelsOf>
void add_histograms(Families& families, const char* name, const char* help, double units_per_second,
                    const std::vector<Subject>& subjects, const HistogramOf& histogram_of,
                    const LabelsOf& labels_of) {
  auto& family = add_family(families, name, help, MetricType::Histogram);
  for (const Subject& subject : subjects)
    family.metric.push_back(metric_of(histogram_of(subject), units_per_second, labels_of(subject)));
}

// The families with Triton's names (triton_metrics.cc).
void add_triton_families(Families& families, const serve::FrontendStatus& status);
void add_machine_families(Families& families, const MachineUsage& usage);
void add_summary_families(Families& families, const std::vector<serve::ModelStatus>& models);

}  // namespace gpulet::frontend
