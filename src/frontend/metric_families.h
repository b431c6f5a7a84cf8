// Metric families from tables: a Measure says what is told of one row (a model, a gpulet, a device,
// the frontend); all rows' values become one family.
#pragma once

#include <prometheus/metric_family.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/gate.h"
#include "gpulet/observe/bucket_histogram.h"
#include "gpulet/serve/frontend_core.h"
#include "machine_usage.h"

namespace gpulet::frontend {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::MetricType;

template <typename Row>
struct Measure {
  const char* name;
  const char* help;
  MetricType type;  // Counter or Gauge
  double (*value)(const Row&);
};

[[nodiscard]] inline double number(std::uint64_t count) { return static_cast<double>(count); }
[[nodiscard]] prometheus::ClientMetric metric_of(MetricType type, double value, Labels labels);
// Its bounds and sum are told in parts of a second, so many to one.
[[nodiscard]] prometheus::ClientMetric metric_of(const observe::BucketHistogram& histogram,
                                                 double parts_of_a_second, Labels labels);

template <typename Row, typename Measures, typename LabelsOf>
void add_measures(Families& families, const Measures& measures, const std::vector<Row>& rows,
                  const LabelsOf& labels_of) {
  for (const Measure<Row>& measure : measures) {
    prometheus::MetricFamily family{measure.name, measure.help, measure.type, {}};
    for (const Row& row : rows)
      family.metric.push_back(metric_of(measure.type, measure.value(row), labels_of(row)));
    families.push_back(std::move(family));
  }
}

template <typename Row, typename HistogramOf, typename LabelsOf>
void add_histograms(Families& families, const char* name, const char* help,
                    double parts_of_a_second, const std::vector<Row>& rows,
                    const HistogramOf& histogram_of, const LabelsOf& labels_of) {
  prometheus::MetricFamily family{name, help, MetricType::Histogram, {}};
  for (const Row& row : rows)
    family.metric.push_back(metric_of(histogram_of(row), parts_of_a_second, labels_of(row)));
  families.push_back(std::move(family));
}

// Of all our own families of a model or an application.
[[nodiscard]] Labels model_labels(const serve::ModelStatus& one);

// The families of what is controlled (control_metrics.cc).
void add_control_families(Families& families, const serve::FrontendStatus& status);

// The families of clients, by the names of their tokens (client_metrics.cc).
void add_client_families(Families& families, const net::CountersByClient& clients);

// The families that are named as Triton names them (triton_metrics.cc).
void add_triton_families(Families& families, const serve::FrontendStatus& status);
void add_machine_families(Families& families, const MachineUsage& usage);
void add_summary_families(Families& families, const std::vector<serve::ModelStatus>& models);

}  // namespace gpulet::frontend
