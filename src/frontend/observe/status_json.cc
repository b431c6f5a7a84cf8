#include "frontend/observe/status_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::frontend {
namespace {

using Json = nlohmann::ordered_json;

// Finds the parts of the status by their keys.
struct StatusIndex {
  std::set<std::pair<std::string_view, std::string_view>> estimated;  // device type, model
  std::unordered_map<std::string_view, const serve::ModelStatus*> models;
  std::map<std::pair<BackendId, schedule::DeviceKey>, std::vector<const serve::GpuletStatus*>>
      gpulets;
  std::map<schedule::DeviceKey, const serve::DeviceStatus*> devices;
  const std::vector<serve::Exclusion>* exclusions = nullptr;
};

StatusIndex index_of(const serve::FrontendStatus& status) {
  StatusIndex index;
  for (const serve::ModelStatus& one : status.models) index.models.emplace(one.name, &one);
  for (const serve::GpuletStatus& one : status.gpulets)
    index.gpulets[{one.gpulet.backend, one.gpulet.device}].push_back(&one);
  for (const serve::DeviceStatus& one : status.devices) index.devices.emplace(one.key, &one);
  for (const serve::EstimateStatus& one : status.estimates)
    index.estimated.emplace(one.device_type, one.model);
  index.exclusions = &status.exclusions;
  return index;
}

Json models_of(const StatusIndex& index, std::string_view device_type,
               const serve::GpuletStatus& gpulet) {
  Json models = Json::array();
  if (!gpulet.planned) {  // preparing or retiring: not in the plan in force
    for (const schedule::RunningModel& model : gpulet.gpulet.models) {
      models.push_back(
          {{"name", model.name}, {"rate", 0.0}, {"batch", 0}, {"latency_ms", 0.0}, {"queued", 0}});
    }
    return models;
  }
  for (const schedule::Assignment& assignment : gpulet.planned->assignments) {
    const auto found = index.models.find(assignment.model);
    models.push_back({{"name", assignment.model},
                      {"rate", assignment.rate},
                      {"batch", assignment.batch},
                      {"latency_ms", assignment.latency_ms},
                      {"estimated", index.estimated.contains({device_type, assignment.model})},
                      {"queued", found == index.models.end() ? 0 : found->second->queued}});
  }
  return models;
}

Json loading_of(const partition::LoadStages& stages) {
  return {{"read", to_ms(stages.read)},
          {"copy", to_ms(stages.copy)},
          {"warm", to_ms(stages.warm)},
          {"capture", to_ms(stages.capture)}};
}

// Of the process now, or as it found them when it loaded.
std::uint32_t sms_of(const serve::GpuletRecord& gpulet) {
  return gpulet.condition.sms > 0 ? gpulet.condition.sms : gpulet.found.sms;
}

Json gpulet_of(const StatusIndex& index, std::string_view device_type,
               const serve::GpuletStatus& gpulet) {
  const auto& statistics = gpulet.statistics;
  const double mean_batch = statistics.batches == 0 ? 0
                                                    : static_cast<double>(statistics.requests) /
                                                          static_cast<double>(statistics.batches);
  Json json{
      {"id", gpulet.id.value},
      {"size", gpulet.gpulet.size.percent},
      {"policy_size", (gpulet.planned ? policy_size(*gpulet.planned) : gpulet.gpulet.size).percent},
      {"instance", gpulet.gpulet.instance ? to_string(*gpulet.gpulet.instance) : ""},
      {"sms", sms_of(gpulet.gpulet)},
      {"shared_sms", gpulet.gpulet.condition.shared_sms},
      {"sizes_to_capture", gpulet.gpulet.condition.sizes_to_capture},
      {"loading_ms", loading_of(gpulet.gpulet.load_stages)},
      {"state", gpulet.gpulet.retiring ? "retiring" : to_string(gpulet.gpulet.state)},
      {"status", gpulet.gpulet.status.message()},
      {"duty_cycle_ms", gpulet.planned ? gpulet.planned->duty_cycle_ms : 0.0},
      {"in_flight", gpulet.in_flight},
      {"batches", statistics.batches},
      {"mean_batch", mean_batch},
      {"batch_fill", statistics.batch_fill()},
      {"busy", gpulet.busy},
      {"pace", gpulet.pace},
      {"models", models_of(index, device_type, gpulet)}};
  if (gpulet.planned && gpulet.planned->service != schedule::Service::rounds)
    json["service"] = schedule::to_string(gpulet.planned->service);
  if (gpulet.cores)
    json["cores"] = {{"asked", gpulet.cores->requested}, {"given", gpulet.cores->granted}};
  return json;
}

Json traits_of(const partition::Traits& traits) {
  return {{"step_percent", traits.step_percent},
          {"change", partition::to_string(traits.change)},
          {"fault", partition::to_string(traits.fault)},
          {"limits_memory", traits.limits_memory}};
}

const serve::DeviceStatus* device_status(const StatusIndex& index, const schedule::DeviceKey& key) {
  const auto found = index.devices.find(key);
  return found == index.devices.end() ? nullptr : found->second;
}

// The exclusion of a device or of its node; null: none.
const serve::Exclusion* exclusion_of(const StatusIndex& index, const schedule::DeviceKey& key) {
  const auto found = std::find_if(
      index.exclusions->begin(), index.exclusions->end(), [&key](const serve::Exclusion& one) {
        return one.node == key.node && (!one.device || *one.device == key.device);
      });
  return found == index.exclusions->end() ? nullptr : &*found;
}

// Whether new gpulets can be made on at least one of its devices.
bool is_ready(const StatusIndex& index, const serve::BackendRecord& backend) {
  return !backend.leaving && std::any_of(backend.devices.begin(), backend.devices.end(),
                                         [&index](const DeviceOffer& offer) {
                                           return offer.fault.ok() &&
                                                  exclusion_of(index, offer.device.key) == nullptr;
                                         });
}

Json exclusion_of(const serve::Exclusion& exclusion, Time now) {
  Json json{{"node", exclusion.node},
            {"device", nullptr},
            {"cause", to_string(exclusion.cause)},
            {"error", exclusion.error.message()},
            {"failures", exclusion.failures},
            {"retry_in_s", std::max(0.0, to_seconds(exclusion.until - now))}};
  if (exclusion.device) json["device"] = *exclusion.device;
  return json;
}

Json outage_of(const serve::PlannedOutage& outage) {
  Json json{
      {"node", outage.device.node}, {"device", outage.device.device},    {"gpulets", Json::array()},
      {"models", outage.models},    {"replaced_by", outage.until.value}, {"begun", outage.begun},
      {"expected_s", nullptr}};
  for (const GpuletId id : outage.dark) json["gpulets"].push_back(id.value);
  if (outage.expected) json["expected_s"] = to_seconds(*outage.expected);
  return json;
}

Json node_of(const StatusIndex& index, BackendId id, const serve::BackendRecord& backend) {
  Json devices = Json::array();
  for (const DeviceOffer& offer : backend.devices) {
    const serve::Exclusion* const excluded = exclusion_of(index, offer.device.key);
    const serve::DeviceStatus* const status = device_status(index, offer.device.key);
    Json gpulets = Json::array();
    if (const auto found = index.gpulets.find({id, offer.device.key});
        found != index.gpulets.end()) {
      for (const serve::GpuletStatus* gpulet : found->second)
        gpulets.push_back(gpulet_of(index, offer.device.type, *gpulet));
    }
    devices.push_back({{"device", offer.device.key.device},
                       {"type", offer.device.type},
                       {"partitioning", offer.device.partitioning},
                       {"mechanism", offer.mechanism},
                       {"traits", traits_of(offer.traits)},
                       {"memory_mb", offer.device.memory_mb},
                       {"planned_memory_mb", status == nullptr ? 0 : status->planned_memory_mb},
                       {"slowness", status == nullptr ? 1 : status->slowness},
                       {"fault", offer.fault.message()},
                       {"excluded", excluded == nullptr ? "" : excluded->error.message()},
                       {"gpulets", std::move(gpulets)}});
  }
  return {
      {"name", backend.node}, {"ready", is_ready(index, backend)}, {"devices", std::move(devices)}};
}

Json control_of(const serve::ModelControlStatus& control) {
  return {{"set_point_ms", control.set_point_ms},
          {"response_ms", control.response_ms},
          {"gpu_part", control.gpu_part},
          {"cores_asked", control.cores_requested},
          {"cores_given", control.cores_granted},
          {"periods", control.periods},
          {"violated_periods", control.violated_periods},
          {"on_gpu", control.on_gpu},
          {"on_cpu", control.on_cpu},
          {"core_seconds", control.core_seconds}};
}

Json controlled_node_of(const serve::NodeControlStatus& node) {
  return {{"node", node.key.node},       {"device", node.key.device},
          {"cores", node.cores},         {"asked", node.cores_requested},
          {"given", node.cores_granted}, {"contention", node.contention}};
}

Json outcomes_of(const serve::Outcomes& outcomes) {
  return {{"answered", outcomes.answered},
          {"late", outcomes.late},
          {"dropped", outcomes.dropped},
          {"failed", outcomes.failed}};
}

Json problem_of(const serve::Problem& problem) {
  Json json{{"cause", serve::to_string(problem.cause)},
            {"grave", problem.grave},
            {"model", problem.model},
            {"node", problem.node},
            {"device", nullptr},
            {"violated", problem.last_minute.violated()},
            {"text", problem.text},
            {"fix", problem.fix}};
  if (problem.device) json["device"] = *problem.device;
  return json;
}

Json correction_of(const serve::CorrectionStatus& one) {
  return {{"model", one.model},     {"type", one.device_type},  {"size", one.size.percent},
          {"factor", one.factor},   {"planned", one.planned},   {"tail", one.tail},
          {"batches", one.batches}, {"node", one.slowest.node}, {"device", one.slowest.device}};
}

Json estimate_of(const serve::EstimateStatus& one) {
  return {{"model", one.model},
          {"type", one.device_type},
          {"nearest", one.nearest},
          {"probes", one.probes}};
}

Json event_of(const serve::StatusEvent& event, const StatusContext& context) {
  return {{"at_s", to_seconds(event.time - context.started)},
          {"text", event.text},
          {"warning", event.warning},
          {"count", event.count}};
}

Json model_of(const serve::ModelStatus& model) {
  const serve::ModelCounters counters = sum_of(model.counters, model.elsewhere);
  Json json{{"name", model.name},
            {"kind", model.application ? "application" : "model"},
            {"state", to_string(model.state)},
            {"version", short_version(model.version)},
            {"slo_ms", model.slo_ms},
            {"rate_seen", model.rate_seen},
            {"rate_planned", model.rate_planned},
            {"rate_unserved", model.rate_unserved},
            {"reason", model.reason},
            {"queued", model.queued},
            {"offered", counters.offered},
            {"served", counters.served},
            {"late", counters.late},
            {"dropped", counters.dropped},
            {"failed", counters.failed},
            {"violations", counters.violations()},
            {"overdue", counters.overdue},
            {"discarded", counters.discarded},
            {"executions", model.statistics.executions},
            {"crashes", model.crashes},
            {"quarantined_for_s", to_seconds(model.quarantined_for)},
            {"p50_ms", model.p50_ms},
            {"p99_ms", model.p99_ms},
            {"last_minute", outcomes_of(model.last_minute)},
            {"pace", model.pace},
            {"correction", model.correction},
            {"estimated", model.estimated},
            {"disturbs", model.disturbs},
            {"extra_headroom", model.extra_headroom}};
  if (model.control) json["control"] = control_of(*model.control);
  if (!model.owner.empty()) json["owner"] = model.owner;
  for (const OwnerShare& one : model.owners)
    json["owners"].push_back({{"member", one.member}, {"weight", one.weight}});
  return json;
}

}  // namespace

namespace {

Json forwarding_of(const serve::ForwardingStatus& forwarding) {
  return {{"route", forwarding.route},         {"connected", forwarding.connected},
          {"waiting", forwarding.waiting},     {"in_flight", forwarding.in_flight},
          {"sent", forwarding.sent},           {"answered", forwarding.answered},
          {"elsewhere", forwarding.elsewhere}, {"failed", forwarding.failed}};
}

Json cluster_of(const serve::FrontendStatus& status, const ClusterView& view) {
  const serve::LeadershipStatus& leadership = status.leadership;
  Json members = Json::array();
  for (const cluster::Member& one : view.members)
    members.push_back({{"name", one.name}, {"address", one.address}});
  Json owners = Json::array();
  for (const serve::OwnerStatus& one : status.owners) {
    owners.push_back({{"member", one.member},
                      {"groups", one.groups},
                      {"gpulets", one.gpulets},
                      {"rate", one.rate}});
  }
  return {{"name", view.name},
          {"member", view.member},
          {"leads", leadership.leads},
          {"leader", leadership.leader},
          {"term", leadership.term.value},
          {"doubtful", view.doubtful},
          {"superseded", leadership.superseded},
          {"store", cluster::to_string(view.store)},
          {"store_fault", view.store_fault.message()},
          {"forwarding", forwarding_of(status.forwarding)},
          {"owned_gpulets", status.owned_gpulets},
          {"owners", std::move(owners)},
          {"members", std::move(members)}};
}

}  // namespace

std::vector<serve::Problem> problems_of(const serve::FrontendStatus& status,
                                        const StatusContext& context) {
  std::vector<serve::Problem> problems = serve::find_problems(status);
  if (context.logs.audit_problem.ok()) return problems;
  serve::Problem problem;
  problem.cause = serve::ProblemCause::audit_log;
  problem.text = "The audit log is not being written: " + context.logs.audit_problem.message() +
                 ". Administrative calls may go unrecorded.";
  problem.fix =
      "Free space on its disk or restart its reader; correct \"audit_log\" of the frontend's file.";
  problems.insert(problems.begin(), std::move(problem));
  return problems;
}

std::string status_json(const serve::FrontendStatus& status, const StatusContext& context) {
  const StatusIndex index = index_of(status);
  Json document;
  document["frontend"] = {
      {"state", status.state},
      {"ready", status.ready},
      {"uptime_s", to_seconds(context.now - context.started)},
      {"started_unix_s", context.unix_seconds - to_seconds(context.now - context.started)},
      {"policy", status.policy},
      {"epoch", status.epoch.value},
      {"clients", context.clients},
      {"reorganising", status.reorganising},
      {"schedulable", status.schedulable},
      {"longest_pause_ms", to_ms(context.pauses.longest)},
      {"longest_pause_ran", context.pauses.longest_task},
      {"long_pauses", context.pauses.long_pauses},
      {"log_lines_dropped", context.logs.dropped},
      {"audit_lines_dropped", context.logs.audit_dropped}};
  if (context.cluster) document["cluster"] = cluster_of(status, *context.cluster);
  const serve::ReorganisationCounters& reorganisations = status.reorganisations;
  document["reorganisations"] = {{"plans", reorganisations.plans},
                                 {"devices_taken", reorganisations.devices_taken},
                                 {"devices_given_back", reorganisations.devices_given_back},
                                 {"unschedulable", reorganisations.unschedulable},
                                 {"last_took_ms", to_ms(reorganisations.last_took)},
                                 {"longest_took_ms", to_ms(reorganisations.longest_took)}};
  Json violations = Json::object();
  for (std::size_t kind = 0; kind < serve::kPeerViolations; ++kind) {
    if (status.violations[kind] == 0) continue;
    const auto name = serve::to_string(static_cast<serve::PeerViolation>(kind));
    violations[std::string(name)] = status.violations[kind];
  }
  document["backend_violations"] = std::move(violations);
  document["problems"] = Json::array();
  for (const serve::Problem& problem : problems_of(status, context))
    document["problems"].push_back(problem_of(problem));
  document["nodes"] = Json::array();
  for (const auto& [id, backend] : status.backends) {
    if (!backend.node.empty()) document["nodes"].push_back(node_of(index, id, backend));
  }
  std::sort(document["nodes"].begin(), document["nodes"].end(),
            [](const Json& a, const Json& b) { return a["name"] < b["name"]; });
  document["exclusions"] = Json::array();
  for (const serve::Exclusion& exclusion : status.exclusions)
    document["exclusions"].push_back(exclusion_of(exclusion, context.now));
  document["outages"] = Json::array();
  for (const serve::PlannedOutage& outage : status.outages)
    document["outages"].push_back(outage_of(outage));
  document["models"] = Json::array();
  for (const serve::ModelStatus& model : status.models)
    document["models"].push_back(model_of(model));
  for (const serve::NodeControlStatus& node : status.controlled_nodes)
    document["controlled_nodes"].push_back(controlled_node_of(node));
  document["corrections"] = Json::array();
  for (const serve::CorrectionStatus& one : status.corrections)
    document["corrections"].push_back(correction_of(one));
  document["estimates"] = Json::array();
  for (const serve::EstimateStatus& one : status.estimates)
    document["estimates"].push_back(estimate_of(one));
  document["file_problems"] = status.file_problems;
  document["events"] = Json::array();
  for (const serve::StatusEvent& event : status.events)
    document["events"].push_back(event_of(event, context));
  return json_line(document);  // problems quote paths, which need not be UTF-8
}

}  // namespace gpulet::frontend
