#include "frontend/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <vector>

#include "frontend/observe/metric_families.h"

namespace gpulet::frontend {
namespace {

using serve::CorrectionStatus;
using serve::DeviceStatus;
using serve::FrontendStatus;
using serve::GpuletStatus;
using serve::ModelControlStatus;
using serve::ModelStatus;
using serve::NodeControlStatus;

constexpr std::array<std::uint32_t, 9> kBatchBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};

// The subject of the frontend's own metrics.
struct FrontendView {
  const FrontendStatus* status;
  StatusContext context;
};

double flag(bool set) { return set ? 1 : 0; }

// ---- tables

constexpr auto kFrontendMetrics = std::to_array<MetricSpec<FrontendView>>({
    {"gpulet_start_time_seconds", "Start time of the frontend, in seconds since 1970.", kGauge,
     [](const FrontendView& one) {
       return one.context.unix_seconds - to_seconds(one.context.now - one.context.started);
     }},
    {"gpulet_clients", "Number of client connections.", kGauge,
     [](const FrontendView& one) { return number(one.context.clients); }},
    {"gpulet_event_loop_longest_pause_seconds",
     "Longest time that the event loop was blocked, during the last minute.", kGauge,
     [](const FrontendView& one) { return to_seconds(one.context.pauses.longest); }},
    {"gpulet_event_loop_long_pauses_total",
     "Number of times that the event loop was blocked for 5 ms or longer.", kCounter,
     [](const FrontendView& one) { return number(one.context.pauses.long_pauses); }},
    {"gpulet_log_lines_dropped_total",
     "Total lines of the log that nothing took from standard error fast enough.", kCounter,
     [](const FrontendView& one) { return number(one.context.logs.dropped); }},
    {"gpulet_audit_lines_dropped_total",
     "Total lines of the audit log that could not be written in time.", kCounter,
     [](const FrontendView& one) { return number(one.context.logs.audit_dropped); }},
    {"gpulet_audit_log_failing", "1 while the audit log is not being written.", kGauge,
     [](const FrontendView& one) { return flag(!one.context.logs.audit_problem.ok()); }},
    {"gpulet_nodes", "Number of connected backends.", kGauge,
     [](const FrontendView& one) { return number(one.status->backends.size()); }},
    {"gpulet_exclusions",
     "Number of nodes and devices that temporarily get no new gpulets, because the last ones "
     "failed there.",
     kGauge, [](const FrontendView& one) { return number(one.status->exclusions.size()); }},
    {"gpulet_devices", "Number of devices that the backends offer.", kGauge,
     [](const FrontendView& one) { return number(one.status->devices.size()); }},
    {"gpulet_devices_in_use", "Number of devices with gpulets of the plan in force.", kGauge,
     [](const FrontendView& one) {
       const auto& devices = one.status->devices;
       return number(static_cast<std::uint64_t>(
           std::count_if(devices.begin(), devices.end(),
                         [](const DeviceStatus& device) { return device.used.percent > 0; })));
     }},
    {"gpulet_plan_epoch", "Number of the plan in force.", kGauge,
     [](const FrontendView& one) { return number(one.status->epoch.value); }},
    {"gpulet_schedulable", "1 if the plan in force serves every rate in full.", kGauge,
     [](const FrontendView& one) { return flag(one.status->schedulable); }},
    {"gpulet_reorganising", "1 while a plan is being made or brought into force.", kGauge,
     [](const FrontendView& one) { return flag(one.status->reorganising); }},
});

constexpr auto kModelMetrics = std::to_array<MetricSpec<ModelStatus>>({
    {"gpulet_model_crashes_total",
     "Total processes that crashed while they ran batches of this model only.", kCounter,
     [](const ModelStatus& one) { return number(one.crashes); }},
    {"gpulet_model_quarantined", "1 while the model is in quarantine because its processes crash.",
     kGauge, [](const ModelStatus& one) { return flag(one.quarantined_for > Duration::zero()); }},
    {"gpulet_slo_violations_total",
     "Total requests without a result in time: late, dropped or failed.", kCounter,
     [](const ModelStatus& one) { return number(one.counters.violations()); }},
    {"gpulet_requests_pending",
     "Number of queued requests; for an application, requests in flight.", kGauge,
     [](const ModelStatus& one) { return number(one.queued); }},
    {"gpulet_request_rate", "Recent rate of requests, per second.", kGauge,
     [](const ModelStatus& one) { return one.rate_seen; }},
    {"gpulet_request_rate_planned",
     "Rate of requests that the plan in force was made for, per second.", kGauge,
     [](const ModelStatus& one) { return one.rate_planned; }},
    {"gpulet_request_rate_unserved",
     "Rate of requests that the plan in force cannot serve, per second.", kGauge,
     [](const ModelStatus& one) { return one.rate_unserved; }},
    {"gpulet_slo_seconds", "Latency objective.", kGauge,
     [](const ModelStatus& one) { return one.slo_ms / 1000; }},
    {"gpulet_model_ready", "1 if a gpulet serves the model.", kGauge,
     [](const ModelStatus& one) { return flag(one.state == ModelState::ready); }},
    {"gpulet_request_transfer_seconds_total",
     "Total time of transferring requests to gpulets and results back.", kCounter,
     [](const ModelStatus& one) {
       return one.statistics.input.seconds() + one.statistics.output.seconds();
     }},
    {"gpulet_model_disturbs",
     "1 while the model has gpulets of its own because some of its batches block others.", kGauge,
     [](const ModelStatus& one) { return flag(!one.disturbs.empty()); }},
    {"gpulet_model_extra_headroom_ratio",
     "Factor by which plans raise the model's rate because requests were late.", kGauge,
     [](const ModelStatus& one) { return one.extra_headroom; }},
    {"gpulet_batch_execution_seconds_total", "Total execution time of batches.", kCounter,
     [](const ModelStatus& one) {
       double seconds = 0;
       for (const auto& batches : one.statistics.batches) seconds += batches.executed.seconds();
       return seconds;
     }},
});

constexpr auto kCorrectionMetrics = std::to_array<MetricSpec<CorrectionStatus>>({
    {"gpulet_model_correction_ratio",
     "Latency of the model's batches, divided by that of its profile.", kGauge,
     [](const CorrectionStatus& one) { return one.factor; }},
    {"gpulet_model_correction_planned_ratio", "The same as the last plan assumed it.", kGauge,
     [](const CorrectionStatus& one) { return one.planned; }},
    {"gpulet_model_correction_tail_ratio",
     "The same for the slowest hundredth of the batches; 0 with too few batches.", kGauge,
     [](const CorrectionStatus& one) { return one.tail; }},
});

constexpr auto kGpuletMetrics = std::to_array<MetricSpec<GpuletStatus>>({
    {"gpulet_gpulet_share_ratio", "Share of the device that the gpulet has.", kGauge,
     [](const GpuletStatus& one) { return one.gpulet.size.fraction(); }},
    {"gpulet_gpulet_busy_ratio",
     "Fraction of the last ten seconds that the gpulet executed batches.", kGauge,
     [](const GpuletStatus& one) { return one.busy; }},
    {"gpulet_gpulet_batch_fill_ratio",
     "Requests in the gpulet's batches, as a fraction of their planned capacity, since it was "
     "created.",
     kGauge, [](const GpuletStatus& one) { return one.statistics.batch_fill(); }},
    {"gpulet_gpulet_ready", "1 if the gpulet accepts batches.", kGauge,
     [](const GpuletStatus& one) {
       return flag(one.gpulet.state == GpuletState::ready && !one.gpulet.retiring);
     }},
    {"gpulet_gpulet_batches_in_flight", "Number of batches that the gpulet holds.", kGauge,
     [](const GpuletStatus& one) { return number(one.in_flight); }},
    {"gpulet_gpulet_duty_cycle_seconds", "Planned duration of one round of all its models.", kGauge,
     [](const GpuletStatus& one) { return one.planned ? one.planned->duty_cycle_ms / 1000 : 0.0; }},
    {"gpulet_gpulet_batches_total", "Total batches executed.", kCounter,
     [](const GpuletStatus& one) { return number(one.statistics.batches); }},
    {"gpulet_gpulet_requests_total", "Total requests in the executed batches.", kCounter,
     [](const GpuletStatus& one) { return number(one.statistics.requests); }},
    {"gpulet_gpulet_batch_places_total",
     "Total planned capacity of the executed batches, in requests.", kCounter,
     [](const GpuletStatus& one) { return number(one.statistics.planned); }},
    {"gpulet_gpulet_execution_seconds_total", "Total execution time of the batches.", kCounter,
     [](const GpuletStatus& one) { return to_seconds(one.statistics.executed); }},
    {"gpulet_gpulet_shared_sms",
     "Number of the gpulet's SMs that other gpulets may use as well, such as while shares change.",
     kGauge, [](const GpuletStatus& one) { return number(one.gpulet.condition.shared_sms); }},
    {"gpulet_gpulet_sizes_to_capture",
     "Number of batch sizes that the gpulet will still capture as CUDA graphs.", kGauge,
     [](const GpuletStatus& one) { return number(one.gpulet.condition.sizes_to_capture); }},
});

constexpr auto kDeviceMetrics = std::to_array<MetricSpec<DeviceStatus>>({
    {"gpulet_device_share_used_ratio", "Sum of the shares of its gpulets in the plan in force.",
     kGauge, [](const DeviceStatus& one) { return one.used.fraction(); }},
    {"gpulet_device_busy_ratio",
     "Fraction of the last ten seconds that its gpulets executed batches, weighted by their "
     "shares.",
     kGauge, [](const DeviceStatus& one) { return one.busy; }},
    {"gpulet_device_memory_bytes", "Memory of the device; 0 if unlimited.", kGauge,
     [](const DeviceStatus& one) { return one.memory_mb * kBytesPerMegabyte; }},
    {"gpulet_device_memory_planned_bytes",
     "Memory of the models in its gpulets, according to their profiles.", kGauge,
     [](const DeviceStatus& one) { return one.planned_memory_mb * kBytesPerMegabyte; }},
    {"gpulet_device_slowness_ratio",
     "Time of its batches divided by that of other devices of its type where it is a slow device; "
     "otherwise 1.",
     kGauge, [](const DeviceStatus& one) { return one.slowness; }},
});

// ---- labels

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

Labels model_labels(const ModelStatus& one) {
  return {{"model", one.name}, {"kind", one.application ? "application" : "model"}};
}

// ---- families

void add_frontend(Families& families, const FrontendStatus& status, const StatusContext& context) {
  const auto no_labels = [](const auto&) { return Labels(); };
  const std::vector<FrontendView> frontend{{&status, context}};
  add_metrics(families, kFrontendMetrics, frontend, no_labels);
  const auto reorganisations = [](const FrontendView& one) -> const auto& {
    return one.status->reorganisations;
  };
  add_counters(families, serve::kReorganisationCounters, frontend, reorganisations, no_labels);
  auto& state = add_family(families, "gpulet_frontend_state",
                           "1 for the current state of the frontend.", kGauge);
  for (const char* const name :
       {"starting", "serving", "unavailable", "forwarding", "standby", "draining"})
    state.metric.push_back(metric_of(kGauge, flag(status.state == name), {{"state", name}}));
  auto& excluded = add_family(
      families, "gpulet_excluded",
      "1 for each node (empty device label) or device that temporarily gets no new gpulets.",
      kGauge);
  for (const serve::Exclusion& one : status.exclusions) {
    Labels labels{{"node", one.node},
                  {"device", one.device ? std::to_string(*one.device) : std::string()},
                  {"cause", std::string(to_string(one.cause))}};
    excluded.metric.push_back(metric_of(kGauge, 1, std::move(labels)));
  }
  auto& failures = add_family(families, "gpulet_gpulet_failures_total",
                              "Total gpulets that failed, by the cause of the failure.", kCounter);
  for (const auto& [cause, count] : status.failures) {
    failures.metric.push_back(
        metric_of(kCounter, number(count), {{"cause", std::string(to_string(cause))}}));
  }
  auto& violations = add_family(
      families, "gpulet_backend_violations_total",
      "Total connections closed because the backend violated the protocol, by kind.", kCounter);
  for (std::size_t kind = 0; kind < serve::kPeerViolations; ++kind) {
    const auto name = serve::to_string(static_cast<serve::PeerViolation>(kind));
    violations.metric.push_back(
        metric_of(kCounter, number(status.violations[kind]), {{"kind", std::string(name)}}));
  }
  add_histograms(
      families, "gpulet_reorganisation_duration_seconds",
      "Time from the decision for a plan until the plan was in force.", 1,
      std::vector<const FrontendStatus*>{&status},
      [](const FrontendStatus* one) { return one->reorganisations.took; }, no_labels);
}

void add_loading(Families& families, const std::vector<GpuletStatus>& gpulets) {
  auto& family = add_family(families, "gpulet_gpulet_loading_seconds",
                            "Time that the stages of loading the gpulet's models took: read, copy, "
                            "warm and capture.",
                            kGauge);
  for (const GpuletStatus& one : gpulets) {
    const partition::LoadStages& stages = one.gpulet.load_stages;
    for (const auto& [stage, took] :
         {std::pair("read", stages.read), std::pair("copy", stages.copy),
          std::pair("warm", stages.warm), std::pair("capture", stages.capture)})
      family.metric.push_back(
          metric_of(kGauge, to_seconds(took), with(labels_of(one), "stage", stage)));
  }
}

void add_cluster(Families& families, const FrontendStatus& status, const ClusterView& view) {
  const auto add = [&families](const char* name, const char* help, MetricType type, double value) {
    add_family(families, name, help, type).metric.push_back(metric_of(type, value, {}));
  };
  const serve::LeadershipStatus& leadership = status.leadership;
  const serve::ForwardingStatus& forwarding = status.forwarding;
  add("gpulet_cluster_leads", "1 if this frontend leads its cluster.", kGauge,
      flag(leadership.leads));
  add("gpulet_cluster_term", "Term of this frontend's last leadership; 0: none.", kGauge,
      number(leadership.term.value));
  add("gpulet_cluster_members", "Frontends that are registered in the cluster.", kGauge,
      number(view.members.size()));
  add("gpulet_cluster_doubtful", "1 if another frontend may lead by now, and this one cannot tell.",
      kGauge, flag(view.doubtful));
  add("gpulet_cluster_superseded_total",
      "Total messages of backends that obey a frontend of a higher term.", kCounter,
      number(leadership.superseded));
  add("gpulet_cluster_owned_gpulets", "Gpulets whose batches this frontend sends.", kGauge,
      number(status.owned_gpulets));
  add("gpulet_cluster_forwards_waiting", "Requests that wait for a frontend that serves them.",
      kGauge, number(forwarding.waiting));
  add("gpulet_cluster_forwards_in_flight", "Requests at other frontends.", kGauge,
      number(forwarding.in_flight));
  add("gpulet_cluster_forwards_sent_total",
      "Total requests sent to another frontend; one that is sent again counts again.", kCounter,
      number(forwarding.sent));
  auto& outcomes = add_family(
      families, "gpulet_cluster_forwards_total",
      "Total outcomes of sent requests: answered; elsewhere (the frontend did not serve it); "
      "failed (no frontend answered).",
      kCounter);
  for (const auto& [name, count] :
       {std::pair("answered", forwarding.answered), std::pair("elsewhere", forwarding.elsewhere),
        std::pair("failed", forwarding.failed)})
    outcomes.metric.push_back(metric_of(kCounter, number(count), {{"outcome", name}}));
  auto& store = add_family(families, "gpulet_cluster_store_state",
                           "1 for the state of the cluster's store.", kGauge);
  for (const cluster::StoreState state :
       {cluster::StoreState::connecting, cluster::StoreState::here, cluster::StoreState::away,
        cluster::StoreState::refused, cluster::StoreState::conflict}) {
    store.metric.push_back(metric_of(kGauge, flag(view.store == state),
                                     {{"state", std::string(cluster::to_string(state))}}));
  }
}

prometheus::ClientMetric batch_sizes(const ModelStatus& one) {
  prometheus::ClientMetric metric;
  metric.label = model_labels(one);
  std::uint64_t requests = 0;
  std::uint64_t batches = 0;
  const auto& by_size = one.statistics.batches;
  std::size_t size = 0;
  for (const std::uint32_t bound : kBatchBounds) {
    for (; size < std::min<std::size_t>(bound, by_size.size()); ++size) {
      batches += by_size[size].executed.count();
      requests += by_size[size].executed.count() * (size + 1);
    }
    metric.histogram.bucket.push_back({batches, static_cast<double>(bound)});
  }
  for (; size < by_size.size(); ++size) {
    batches += by_size[size].executed.count();
    requests += by_size[size].executed.count() * (size + 1);
  }
  metric.histogram.sample_count = batches;  // applications run no batches themselves
  metric.histogram.sample_sum = number(requests);
  return metric;
}

void add_models(Families& families, const FrontendStatus& status, const StatusContext& context) {
  const auto counters = [](const ModelStatus& one) -> const auto& { return one.counters; };
  add_counters(families, serve::kModelCounters, status.models, counters, model_labels);
  add_metrics(families, kModelMetrics, status.models, model_labels);
  add_histograms(
      families, "gpulet_request_latency_seconds",
      "Time from arrival to the answer, of successful requests.", 1, status.models,
      [](const ModelStatus& one) { return one.statistics.latency; }, model_labels);
  add_histograms(
      families, "gpulet_request_queue_seconds", "Time before execution, of successful requests.", 1,
      status.models, [](const ModelStatus& one) { return one.statistics.queued; }, model_labels);
  add_histograms(
      families, "gpulet_request_execution_seconds",
      "Execution time of the batch that contained the request, of successful requests.", 1,
      status.models, [](const ModelStatus& one) { return one.statistics.executed; }, model_labels);

  auto& failed = add_family(families, "gpulet_requests_failed_total",
                            "Total requests without a result, by the code of the error.", kCounter);
  for (const ModelStatus& one : status.models) {
    for (std::size_t code = 1; code < serve::kStatusCodes; ++code) {
      const auto reason = to_string(static_cast<StatusCode>(code));
      failed.metric.push_back(metric_of(kCounter, number(one.statistics.failures[code]),
                                        with(model_labels(one), "reason", std::string(reason))));
    }
  }
  auto& sizes = add_family(families, "gpulet_batch_size",
                           "Number of requests in each executed batch.", MetricType::Histogram);
  for (const ModelStatus& one : status.models) {
    if (!one.application) sizes.metric.push_back(batch_sizes(one));
  }
  auto& info = add_family(families, "gpulet_model_info", "Version and state of the model.", kGauge);
  for (const ModelStatus& one : status.models) {
    Labels about = with(model_labels(one), "version", short_version(one.version));
    about = with(std::move(about), "state", std::string(to_string(one.state)));
    info.metric.push_back(metric_of(kGauge, 1, std::move(about)));
  }
  auto& last = add_family(families, "gpulet_last_success_timestamp_seconds",
                          "Time of the last successful request, in seconds since 1970.", kGauge);
  for (const ModelStatus& one : status.models) {
    if (one.statistics.last_success == Time()) continue;
    const double ago = to_seconds(context.now - one.statistics.last_success);
    last.metric.push_back(metric_of(kGauge, context.unix_seconds - ago, model_labels(one)));
  }
}

Labels labels_of(const CorrectionStatus& one) {
  return {{"model", one.model},
          {"device_type", one.device_type},
          {"size", std::to_string(one.size.percent)}};
}

void add_gpulets(Families& families, const FrontendStatus& status) {
  add_metrics(families, kCorrectionMetrics, status.corrections,
              [](const CorrectionStatus& one) { return labels_of(one); });
  add_metrics(families, kGpuletMetrics, status.gpulets,
              [](const GpuletStatus& one) { return labels_of(one); });
  add_loading(families, status.gpulets);
  add_metrics(families, kDeviceMetrics, status.devices,
              [](const DeviceStatus& one) { return with(labels_of(one.key), "type", one.type); });
  const auto add_planned = [&](const char* name, const char* help, auto value_of) {
    auto& family = add_family(families, name, help, kGauge);
    for (const GpuletStatus& one : status.gpulets) {
      if (!one.planned) continue;
      for (const schedule::Assignment& part : one.planned->assignments)
        family.metric.push_back(
            metric_of(kGauge, value_of(part), with(labels_of(one), "model", part.model)));
    }
  };
  add_planned("gpulet_gpulet_model_rate_planned",
              "Planned rate of the model on this gpulet, in requests per second.",
              [](const schedule::Assignment& part) { return part.rate; });
  add_planned("gpulet_gpulet_model_batch_planned", "Largest planned batch of the model in a round.",
              [](const schedule::Assignment& part) { return number(part.batch); });
}

// ---- controlled models and the nodes whose cores they share (policy roma)

struct ControlledModel {
  const serve::ModelStatus* model;
  const ModelControlStatus* control;
};

constexpr double kMillisecondsPerSecond = 1000;

constexpr auto kControlledModelMetrics = std::to_array<MetricSpec<ControlledModel>>({
    {"gpulet_control_set_point_seconds", "Set point of the response time.", kGauge,
     [](const ControlledModel& one) { return one.control->set_point_ms / kMillisecondsPerSecond; }},
    {"gpulet_control_response_seconds",
     "Response time during the last control period; 0 if no request was answered.", kGauge,
     [](const ControlledModel& one) { return one.control->response_ms / kMillisecondsPerSecond; }},
    {"gpulet_control_cores_asked", "CPU cores that the model's instances request.", kGauge,
     [](const ControlledModel& one) { return one.control->cores_requested; }},
    {"gpulet_control_cores_given", "CPU cores that the model's instances are granted.", kGauge,
     [](const ControlledModel& one) { return one.control->cores_granted; }},
    {"gpulet_control_core_seconds_total", "Total core-seconds granted to the model's instances.",
     kCounter, [](const ControlledModel& one) { return one.control->core_seconds; }},
    {"gpulet_control_periods_total", "Total control periods in which requests were answered.",
     kCounter,
     [](const ControlledModel& one) { return static_cast<double>(one.control->periods); }},
    {"gpulet_control_violated_periods_total",
     "Total control periods with a response time above the objective.", kCounter,
     [](const ControlledModel& one) { return static_cast<double>(one.control->violated_periods); }},
});

constexpr auto kControlledNodeMetrics = std::to_array<MetricSpec<NodeControlStatus>>({
    {"gpulet_control_node_cores", "CPU cores of the node.", kGauge,
     [](const NodeControlStatus& one) { return one.cores; }},
    {"gpulet_control_node_cores_asked", "CPU cores that all instances on the node request.", kGauge,
     [](const NodeControlStatus& one) { return one.cores_requested; }},
    {"gpulet_control_node_cores_given", "CPU cores that all instances on the node are granted.",
     kGauge, [](const NodeControlStatus& one) { return one.cores_granted; }},
    {"gpulet_control_contention_ratio",
     "Available CPU cores divided by requested CPU cores; 0 if no instance requests any.", kGauge,
     [](const NodeControlStatus& one) { return one.contention; }},
});

void add_requests_by_device(Families& families, const std::vector<ControlledModel>& models) {
  auto& family = add_family(families, "gpulet_control_requests_total",
                            "Total requests answered, by the kind of device.", kCounter);
  for (const ControlledModel& one : models) {
    for (const auto& [kind, count] :
         {std::pair("gpu", one.control->on_gpu), std::pair("cpu", one.control->on_cpu)}) {
      family.metric.push_back(
          metric_of(kCounter, number(count), with(model_labels(*one.model), "device_kind", kind)));
    }
  }
}

void add_control_families(Families& families, const serve::FrontendStatus& status) {
  std::vector<ControlledModel> models;
  for (const serve::ModelStatus& model : status.models) {
    if (model.control) models.push_back({&model, &*model.control});
  }
  add_metrics(families, kControlledModelMetrics, models,
              [](const ControlledModel& one) { return model_labels(*one.model); });
  add_requests_by_device(families, models);
  add_metrics(families, kControlledNodeMetrics, status.controlled_nodes,
              [](const NodeControlStatus& one) { return labels_of(one.key); });
}

// ---- clients, by the name of their token

struct Client {
  const std::string* token;
  const access::ClientCounters* counters;
};

constexpr auto kClientMetrics = std::to_array<MetricSpec<Client>>({
    {"gpulet_client_requests_total",
     "Total requests admitted for the token (empty label: no token).", kCounter,
     [](const Client& one) { return number(one.counters->requests); }},
    {"gpulet_client_device_seconds_total",
     "Total planned time of whole devices for the admitted requests.", kCounter,
     [](const Client& one) { return one.counters->device_s; }},
    {"gpulet_client_denied_total", "Total inference calls refused for lack of the right.", kCounter,
     [](const Client& one) { return number(one.counters->denied); }},
});

void add_client_families(Families& families, const access::CountersByClient& clients) {
  std::vector<Client> subjects;
  for (const auto& [token, counters] : clients) subjects.push_back({&token, &counters});
  add_metrics(families, kClientMetrics, subjects, [](const Client& one) {
    return Labels{{"token", *one.token}};
  });
  auto& limited =
      add_family(families, "gpulet_client_limited_total",
                 "Total calls refused because of a limit of the token or address.", kCounter);
  for (const Client& one : subjects) {
    const std::array<std::pair<const char*, std::uint64_t>, 3> by_limit{
        {{"requests_per_s", one.counters->limited_requests},
         {"device_ms_per_s", one.counters->limited_device_time},
         {"max_requests", one.counters->limited_in_flight}}};
    for (const auto& [limit, count] : by_limit) {
      limited.metric.push_back(
          metric_of(kCounter, number(count), {{"token", *one.token}, {"limit", limit}}));
    }
  }
}

}  // namespace

prometheus::ClientMetric metric_of(MetricType type, double value, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (type == kCounter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

prometheus::ClientMetric metric_of(const observe::BucketHistogram& histogram,
                                   double units_per_second, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.histogram.sample_count = histogram.count();
  metric.histogram.sample_sum = histogram.sum().seconds() * units_per_second;
  const auto cumulative = histogram.cumulative();
  for (std::size_t i = 0; i < cumulative.size(); ++i) {
    metric.histogram.bucket.push_back(
        {cumulative[i], to_seconds(observe::BucketHistogram::bound(i)) * units_per_second});
  }
  return metric;
}

std::string metrics_text(const FrontendStatus& status, const StatusContext& context,
                         const MetricsExtras& extras) {
  Families families;
  add_frontend(families, status, context);
  if (context.cluster) add_cluster(families, status, *context.cluster);
  add_models(families, status, context);
  add_gpulets(families, status);
  add_control_families(families, status);
  if (!context.by_token.empty()) add_client_families(families, context.by_token);
  add_triton_families(families, status);
  add_machine_families(families, extras.machine);
  if (extras.summaries) add_summary_families(families, status.models);
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gpulet::frontend
