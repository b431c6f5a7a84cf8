#include "frontend/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "frontend/metric_families.h"

namespace gpulet::frontend {
namespace {

using serve::DeviceStatus;
using serve::FrontendStatus;
using serve::GpuletStatus;
using serve::ModelStatus;

constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;
constexpr std::array<std::uint32_t, 9> kBatchBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};

// What is told of the frontend as a whole.
struct Whole {
  const FrontendStatus* status;
  StatusMoment moment;
};

double flag(bool set) { return set ? 1 : 0; }

// ---- the tables

constexpr std::array kOfFrontend = {
    Measure<Whole>{"gpulet_start_time_seconds", "When the frontend started, in seconds since 1970.",
                   MetricType::Gauge,
                   [](const Whole& whole) {
                     return whole.moment.unix_seconds -
                            to_seconds(whole.moment.now - whole.moment.started);
                   }},
    Measure<Whole>{"gpulet_clients", "Connections of clients.", MetricType::Gauge,
                   [](const Whole& whole) { return number(whole.moment.clients); }},
    Measure<Whole>{"gpulet_event_loop_longest_pause_seconds",
                   "The longest time that the event loop was held up, of the last minute.",
                   MetricType::Gauge,
                   [](const Whole& whole) { return to_seconds(whole.moment.pauses.longest); }},
    Measure<Whole>{"gpulet_event_loop_long_pauses_total",
                   "How often the event loop was held up for 5 ms or longer.", MetricType::Counter,
                   [](const Whole& whole) { return number(whole.moment.pauses.long_ones); }},
    Measure<Whole>{"gpulet_nodes", "Backends that are connected.", MetricType::Gauge,
                   [](const Whole& whole) { return number(whole.status->backends.size()); }},
    Measure<Whole>{"gpulet_exclusions",
                   "Nodes and devices that take no new gpulets for a while, because the last ones "
                   "failed there.",
                   MetricType::Gauge,
                   [](const Whole& whole) { return number(whole.status->exclusions.size()); }},
    Measure<Whole>{"gpulet_devices", "Devices that the backends offer.", MetricType::Gauge,
                   [](const Whole& whole) { return number(whole.status->devices.size()); }},
    Measure<Whole>{"gpulet_devices_in_use", "Devices that hold gpulets of the plan in force.",
                   MetricType::Gauge,
                   [](const Whole& whole) {
                     const auto& devices = whole.status->devices;
                     return number(static_cast<std::uint64_t>(std::count_if(
                         devices.begin(), devices.end(),
                         [](const DeviceStatus& one) { return one.used.percent > 0; })));
                   }},
    Measure<Whole>{"gpulet_plan_epoch", "Number of the plan in force.", MetricType::Gauge,
                   [](const Whole& whole) { return number(whole.status->epoch.value); }},
    Measure<Whole>{"gpulet_schedulable", "1 where the plan in force serves every rate.",
                   MetricType::Gauge,
                   [](const Whole& whole) { return flag(whole.status->schedulable); }},
    Measure<Whole>{"gpulet_reorganising", "1 while a plan is being made or on its way into force.",
                   MetricType::Gauge,
                   [](const Whole& whole) { return flag(whole.status->reorganising); }},
    Measure<Whole>{
        "gpulet_plans_unschedulable_total", "Plans that left some rate without a place.",
        MetricType::Counter,
        [](const Whole& whole) { return number(whole.status->reorganisations.unschedulable); }},
    Measure<Whole>{
        "gpulet_devices_taken_total", "Devices that plans took into use.", MetricType::Counter,
        [](const Whole& whole) { return number(whole.status->reorganisations.devices_taken); }},
    Measure<Whole>{"gpulet_devices_given_back_total", "Devices that plans gave back.",
                   MetricType::Counter,
                   [](const Whole& whole) {
                     return number(whole.status->reorganisations.devices_given_back);
                   }},
};

constexpr std::array kOfModels = {
    Measure<ModelStatus>{"gpulet_requests_total", "Requests that came.", MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.offered); }},
    Measure<ModelStatus>{"gpulet_requests_succeeded_total",
                         "Requests that were answered with a result.", MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.served); }},
    Measure<ModelStatus>{"gpulet_requests_late_total",
                         "Requests that were answered with a result after their deadline.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.late); }},
    Measure<ModelStatus>{
        "gpulet_requests_overdue_total",
        "Requests that were answered too_late at their deadline, while their batch was running.",
        MetricType::Counter, [](const ModelStatus& one) { return number(one.counters.overdue); }},
    Measure<ModelStatus>{
        "gpulet_results_discarded_total",
        "Results that came when their request had been answered, and were thrown away.",
        MetricType::Counter, [](const ModelStatus& one) { return number(one.counters.discarded); }},
    Measure<ModelStatus>{"gpulet_model_crashes_total",
                         "Processes that ended while they ran its batches and nothing else.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.crashes); }},
    Measure<ModelStatus>{
        "gpulet_model_quarantined", "1 while it is in quarantine because its processes crash.",
        MetricType::Gauge,
        [](const ModelStatus& one) { return flag(one.quarantined_for > Duration::zero()); }},
    Measure<ModelStatus>{"gpulet_slo_violations_total",
                         "Requests that had no result in time: late, dropped or failed.",
                         MetricType::Counter,
                         [](const ModelStatus& one) { return number(one.counters.violations()); }},
    Measure<ModelStatus>{
        "gpulet_requests_pending", "Requests that wait; of an application, those under way.",
        MetricType::Gauge, [](const ModelStatus& one) { return number(one.queued); }},
    Measure<ModelStatus>{"gpulet_request_rate", "Requests per second, as seen of late.",
                         MetricType::Gauge, [](const ModelStatus& one) { return one.rate_seen; }},
    Measure<ModelStatus>{
        "gpulet_request_rate_planned", "Requests per second that the plan in force was made for.",
        MetricType::Gauge, [](const ModelStatus& one) { return one.rate_planned; }},
    Measure<ModelStatus>{
        "gpulet_request_rate_unserved", "Requests per second without a place in the plan in force.",
        MetricType::Gauge, [](const ModelStatus& one) { return one.rate_unserved; }},
    Measure<ModelStatus>{"gpulet_slo_seconds", "The latency objective.", MetricType::Gauge,
                         [](const ModelStatus& one) { return one.slo_ms / 1000; }},
    Measure<ModelStatus>{
        "gpulet_model_ready", "1 where a gpulet serves it.", MetricType::Gauge,
        [](const ModelStatus& one) { return flag(one.state == serve::ModelState::ready); }},
    Measure<ModelStatus>{"gpulet_request_transfer_seconds_total",
                         "Time that requests were on their way to gpulets and back.",
                         MetricType::Counter,
                         [](const ModelStatus& one) {
                           return one.statistics.input.seconds() + one.statistics.output.seconds();
                         }},
    Measure<ModelStatus>{"gpulet_batch_execution_seconds_total", "Time that its batches executed.",
                         MetricType::Counter,
                         [](const ModelStatus& one) {
                           double seconds = 0;
                           for (const auto& of_size : one.statistics.batches)
                             seconds += of_size.executed.seconds();
                           return seconds;
                         }},
};

constexpr std::array kOfGpulets = {
    Measure<GpuletStatus>{"gpulet_gpulet_share_ratio", "Its share of the device.",
                          MetricType::Gauge,
                          [](const GpuletStatus& one) { return one.gpulet.size.fraction(); }},
    Measure<GpuletStatus>{"gpulet_gpulet_busy_ratio", "Part of the last moment that it executed.",
                          MetricType::Gauge, [](const GpuletStatus& one) { return one.busy; }},
    Measure<GpuletStatus>{
        "gpulet_gpulet_batch_fill_ratio",
        "Requests in its batches, of those that the plan had room for, since it was made.",
        MetricType::Gauge, [](const GpuletStatus& one) { return one.statistics.batch_fill(); }},
    Measure<GpuletStatus>{"gpulet_gpulet_ready", "1 where it takes batches.", MetricType::Gauge,
                          [](const GpuletStatus& one) {
                            return flag(one.gpulet.state == serve::GpuletState::ready &&
                                        !one.gpulet.retiring);
                          }},
    Measure<GpuletStatus>{"gpulet_gpulet_batches_in_flight", "Batches that it holds.",
                          MetricType::Gauge,
                          [](const GpuletStatus& one) { return number(one.in_flight); }},
    Measure<GpuletStatus>{"gpulet_gpulet_duty_cycle_seconds",
                          "One round of all its models, as planned.", MetricType::Gauge,
                          [](const GpuletStatus& one) {
                            return one.planned ? one.planned->duty_cycle_ms / 1000 : 0.0;
                          }},
    Measure<GpuletStatus>{"gpulet_gpulet_batches_total", "Batches that it executed.",
                          MetricType::Counter,
                          [](const GpuletStatus& one) { return number(one.statistics.batches); }},
    Measure<GpuletStatus>{"gpulet_gpulet_requests_total", "Requests in these batches.",
                          MetricType::Counter,
                          [](const GpuletStatus& one) { return number(one.statistics.requests); }},
    Measure<GpuletStatus>{"gpulet_gpulet_batch_places_total",
                          "Requests that the plan had room for in these batches.",
                          MetricType::Counter,
                          [](const GpuletStatus& one) { return number(one.statistics.planned); }},
    Measure<GpuletStatus>{
        "gpulet_gpulet_execution_seconds_total", "Time that these batches executed.",
        MetricType::Counter,
        [](const GpuletStatus& one) { return to_seconds(one.statistics.executed); }},
};

constexpr std::array kOfDevices = {
    Measure<DeviceStatus>{
        "gpulet_device_share_used_ratio", "Shares of its gpulets of the plan in force, together.",
        MetricType::Gauge, [](const DeviceStatus& one) { return one.used.fraction(); }},
    Measure<DeviceStatus>{"gpulet_device_busy_ratio",
                          "Part of the last moment that its gpulets executed, by their shares.",
                          MetricType::Gauge, [](const DeviceStatus& one) { return one.busy; }},
    Measure<DeviceStatus>{
        "gpulet_device_memory_bytes", "Its memory; 0 where there is no limit.", MetricType::Gauge,
        [](const DeviceStatus& one) { return one.memory_mb * kBytesPerMegabyte; }},
    Measure<DeviceStatus>{
        "gpulet_device_memory_planned_bytes", "Memory of the models in its gpulets, as profiled.",
        MetricType::Gauge,
        [](const DeviceStatus& one) { return one.planned_memory_mb * kBytesPerMegabyte; }},
};

// ---- what no table holds

Labels labels_of(const schedule::DeviceKey& key) {
  return {{"node", key.node}, {"device", std::to_string(key.device)}};
}

Labels labels_of(const GpuletStatus& one) {
  Labels labels = labels_of(one.gpulet.device);
  labels.push_back({"gpulet", std::to_string(one.id.value)});
  return labels;
}

Labels with(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

void add_frontend(Families& families, const FrontendStatus& status, const StatusMoment& moment) {
  const auto no_labels = [](const auto&) { return Labels(); };
  add_measures(families, kOfFrontend, std::vector<Whole>{{&status, moment}}, no_labels);
  prometheus::MetricFamily state{
      "gpulet_frontend_state", "1 for the state that it is in.", MetricType::Gauge, {}};
  for (const char* const name : {"starting", "serving", "unavailable", "draining"}) {
    state.metric.push_back(
        metric_of(MetricType::Gauge, flag(status.state == name), {{"state", name}}));
  }
  families.push_back(std::move(state));
  prometheus::MetricFamily excluded{
      "gpulet_excluded",
      "1 for a node (its device label is empty) or a device that takes no new gpulets for a while.",
      MetricType::Gauge,
      {}};
  for (const serve::Exclusion& one : status.exclusions) {
    Labels labels{{"node", one.node},
                  {"device", one.device ? std::to_string(*one.device) : std::string()},
                  {"cause", std::string(to_string(one.cause))}};
    excluded.metric.push_back(metric_of(MetricType::Gauge, 1, std::move(labels)));
  }
  families.push_back(std::move(excluded));
  prometheus::MetricFamily failures{"gpulet_gpulet_failures_total",
                                    "Gpulets that failed, by what the failure counts against.",
                                    MetricType::Counter,
                                    {}};
  for (const auto& [cause, count] : status.failures) {
    failures.metric.push_back(
        metric_of(MetricType::Counter, number(count), {{"cause", std::string(to_string(cause))}}));
  }
  families.push_back(std::move(failures));
  prometheus::MetricFamily violations{
      "gpulet_backend_violations_total",
      "Connections of backends that were ended because of what the backend did, by kind.",
      MetricType::Counter,
      {}};
  for (std::size_t kind = 0; kind < serve::kPeerViolations; ++kind) {
    const auto name = serve::to_string(static_cast<serve::PeerViolation>(kind));
    violations.metric.push_back(metric_of(MetricType::Counter, number(status.violations[kind]),
                                          {{"kind", std::string(name)}}));
  }
  families.push_back(std::move(violations));
  add_histograms(
      families, "gpulet_reorganisation_duration_seconds",
      "From the decision for a plan to serving by it; a plan that came into force each.", 1,
      std::vector<const FrontendStatus*>{&status},
      [](const FrontendStatus* one) { return one->reorganisations.took; }, no_labels);
}

prometheus::ClientMetric batch_sizes(const ModelStatus& one) {
  prometheus::ClientMetric metric;
  metric.label = model_labels(one);
  std::uint64_t requests = 0;
  std::uint64_t batches = 0;
  const auto& of_sizes = one.statistics.batches;
  std::size_t size = 0;
  for (const std::uint32_t bound : kBatchBounds) {
    for (; size < std::min<std::size_t>(bound, of_sizes.size()); ++size) {
      batches += of_sizes[size].executed.count();
      requests += of_sizes[size].executed.count() * (size + 1);
    }
    metric.histogram.bucket.push_back({batches, static_cast<double>(bound)});
  }
  for (; size < of_sizes.size(); ++size) {
    batches += of_sizes[size].executed.count();
    requests += of_sizes[size].executed.count() * (size + 1);
  }
  metric.histogram.sample_count = batches;  // an application executes without any
  metric.histogram.sample_sum = number(requests);
  return metric;
}

void add_models(Families& families, const FrontendStatus& status, const StatusMoment& moment) {
  add_measures(families, kOfModels, status.models, model_labels);
  add_histograms(
      families, "gpulet_request_latency_seconds", "From arrival to the answer, of successes.", 1,
      status.models, [](const ModelStatus& one) { return one.statistics.latency; }, model_labels);
  add_histograms(
      families, "gpulet_request_queue_seconds", "Before execution, of successes.", 1, status.models,
      [](const ModelStatus& one) { return one.statistics.queued; }, model_labels);
  add_histograms(
      families, "gpulet_request_execution_seconds",
      "Execution of the batch that it was in, of successes.", 1, status.models,
      [](const ModelStatus& one) { return one.statistics.executed; }, model_labels);

  prometheus::MetricFamily failed{"gpulet_requests_failed_total",
                                  "Requests without a result, by what they were told.",
                                  MetricType::Counter,
                                  {}};
  prometheus::MetricFamily sizes{"gpulet_batch_size",
                                 "Requests in the batches that were executed.",
                                 MetricType::Histogram,
                                 {}};
  prometheus::MetricFamily info{
      "gpulet_model_info", "What is there under the name.", MetricType::Gauge, {}};
  prometheus::MetricFamily last{"gpulet_last_success_timestamp_seconds",
                                "When a request had a result last, in seconds since 1970.",
                                MetricType::Gauge,
                                {}};
  for (const ModelStatus& one : status.models) {
    for (std::size_t code = 1; code < serve::kStatusCodes; ++code) {
      const auto reason = to_string(static_cast<StatusCode>(code));
      failed.metric.push_back(metric_of(MetricType::Counter, number(one.statistics.failures[code]),
                                        with(model_labels(one), "reason", std::string(reason))));
    }
    if (!one.application) sizes.metric.push_back(batch_sizes(one));
    Labels about = with(model_labels(one), "version", serve::short_version(one.version));
    about = with(std::move(about), "state", std::string(serve::to_string(one.state)));
    info.metric.push_back(metric_of(MetricType::Gauge, 1, std::move(about)));
    if (one.statistics.last_success == Time()) continue;
    const double ago = to_seconds(moment.now - one.statistics.last_success);
    last.metric.push_back(
        metric_of(MetricType::Gauge, moment.unix_seconds - ago, model_labels(one)));
  }
  for (auto* family : {&failed, &sizes, &info, &last}) families.push_back(std::move(*family));
}

void add_gpulets(Families& families, const FrontendStatus& status) {
  add_measures(families, kOfGpulets, status.gpulets,
               [](const GpuletStatus& one) { return labels_of(one); });
  add_measures(families, kOfDevices, status.devices,
               [](const DeviceStatus& one) { return with(labels_of(one.key), "type", one.type); });
  prometheus::MetricFamily rates{"gpulet_gpulet_model_rate_planned",
                                 "Requests per second of the model that the plan sends to it.",
                                 MetricType::Gauge,
                                 {}};
  prometheus::MetricFamily batches{"gpulet_gpulet_model_batch_planned",
                                   "The largest batch of the model in a round.",
                                   MetricType::Gauge,
                                   {}};
  for (const GpuletStatus& one : status.gpulets) {
    if (!one.planned) continue;
    for (const schedule::Assignment& part : one.planned->assignments) {
      const Labels labels = with(labels_of(one), "model", part.model);
      rates.metric.push_back(metric_of(MetricType::Gauge, part.rate, labels));
      batches.metric.push_back(metric_of(MetricType::Gauge, part.batch, labels));
    }
  }
  families.push_back(std::move(rates));
  families.push_back(std::move(batches));
}

}  // namespace

Labels model_labels(const ModelStatus& one) {
  return {{"model", one.name}, {"kind", one.application ? "application" : "model"}};
}

prometheus::ClientMetric metric_of(MetricType type, double value, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

prometheus::ClientMetric metric_of(const observe::BucketHistogram& histogram,
                                   double parts_of_a_second, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.histogram.sample_count = histogram.count();
  metric.histogram.sample_sum = histogram.sum().seconds() * parts_of_a_second;
  const auto cumulative = histogram.cumulative();
  for (std::size_t i = 0; i < cumulative.size(); ++i) {
    metric.histogram.bucket.push_back(
        {cumulative[i], to_seconds(observe::BucketHistogram::bound(i)) * parts_of_a_second});
  }
  return metric;
}

std::string metrics_text(const FrontendStatus& status, const StatusMoment& moment,
                         const MetricsExtras& extras) {
  Families families;
  add_frontend(families, status, moment);
  add_models(families, status, moment);
  add_gpulets(families, status);
  add_control_families(families, status);
  if (!moment.by_token.empty()) add_client_families(families, moment.by_token);
  add_triton_families(families, status);
  add_machine_families(families, extras.machine);
  if (extras.summaries) add_summary_families(families, status.models);
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gpulet::frontend
