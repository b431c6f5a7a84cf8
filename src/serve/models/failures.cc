#include "serve/models/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/base/time.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kNodesThatConvict = 2;
// Backends find overdue processes themselves, within the bound; theirs began when the files were
// there and the process was started.
constexpr Duration kBackendsGrace = std::chrono::seconds(15);
// A gpulet that was told to end has ended by then.
constexpr Duration kEndsWithin = std::chrono::seconds(30);
// Models that load together for so long are tried one by one. A process that starts LibTorch, CUDA
// and a model on a busy machine takes several seconds, and their work is lost.
constexpr Duration kTogetherFor = std::chrono::seconds(10);
constexpr Duration kTogetherForEach = std::chrono::seconds(2);
// A version that does not load is tried again, less and less often.
constexpr Duration kLongestBeforeRetry = std::chrono::hours(1);

// The gpulet's models whose wanted version it holds.
std::vector<std::string> wanted_models(const ModelTable& models, const GpuletRecord& gpulet) {
  std::vector<std::string> names;
  for (const schedule::RunningModel& loaded : gpulet.models) {
    const NamedModel* const known = models.find(loaded.name);
    if (known != nullptr && known->wanted().id == loaded.version) names.push_back(loaded.name);
  }
  return names;
}

}  // namespace

// ---- gpulets

void FailureHandler::gpulet_failed(const GpuletRecord& gpulet, const GpuletReport& report,
                                   bool in_rollout, Time now, FrontendEffects& effects) {
  std::vector<std::string> names = wanted_models(models_.table(), gpulet);
  if (!report.failed_model.empty())
    std::erase_if(names, [&report](const auto& name) { return name != report.failed_model; });
  std::vector<std::string> unproven;
  std::copy_if(names.begin(), names.end(), std::back_inserter(unproven),
               [this](const auto& name) { return !models_.find(name)->wanted().proven; });
  FailureCause cause = report.cause;
  // The same file was loaded elsewhere, so the node's copy of it is at fault.
  if (cause == FailureCause::model_file && !names.empty() && unproven.empty())
    cause = FailureCause::node_store;
  ++counts_[cause];
  for (const std::string& name : names) {
    NamedModel& known = *models_.find(name);
    known.failure = {gpulet.device, cause, report.status, known.wanted().id};
  }

  if (is_machine_cause(cause)) {
    exclude(gpulet.device, report.id, cause, report.status, now, effects);
  } else if (cause == FailureCause::model_file) {
    for (const std::string& name : unproven)
      models_.setbacks().refuse_version(*models_.find(name), report.status, kNever, now, effects);
  } else if (cause == FailureCause::hung && !unproven.empty()) {
    did_not_load(unproven, gpulet, report.status, now, effects);
  } else {
    blame(unproven.empty() ? names : unproven, gpulet, report, now, effects);
  }
  // The gpulets that were created for the rollout stay for the next plan.
  if (in_rollout) deployment_.abandon(Abandoned::gpulet_failed);
  journal_.request_urgent_plan("a gpulet on " + device_name(gpulet.device) + " failed");
}

void FailureHandler::exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
                             const Status& why, Time now, FrontendEffects& effects) {
  const bool was_open = exclusions_.allows(device);
  exclusions_.failed(device, gpulet, cause, why, deployment_.gpulets().next_id(), now);
  if (!was_open) return;
  const Exclusion& excluded = *exclusions_.of(device);
  journal_.note(
      true,
      fmt::format("{} takes no new gpulets for {} s ({}): {}", excluded_name(excluded),
                  std::llround(to_seconds(excluded.until - now)), to_string(cause), why.message()),
      now, effects);
}

void FailureHandler::expire_exclusions(Time now) {
  for (const std::string& name : exclusions_.expire(now))
    journal_.request_plan(name + " is tried again");
  for (const auto& [model, node] : node_faults_.expire(now))
    journal_.request_plan(model + " is tried on node " + node + " again");
}

bool FailureHandler::has_other_node(const std::string& name, const ModelVersion& version) const {
  const schedule::Cluster cluster = fleet_.backends().cluster();
  return std::any_of(cluster.devices.begin(), cluster.devices.end(),
                     [&](const schedule::Device& device) {
                       return !version.failed_on.contains(device.key.node) &&
                              fleet_.profile_of(device.key, name) != nullptr;
                     });
}

void FailureHandler::blame(const std::vector<std::string>& names, const GpuletRecord& gpulet,
                           const GpuletReport& report, Time now, FrontendEffects& effects) {
  if (names.empty()) return;  // its versions are not wanted any more
  std::set<std::string> nodes;
  std::size_t turn = 0;
  bool tried_elsewhere = false;
  for (const std::string& name : names) {
    NamedModel& known = *models_.find(name);
    ModelVersion& version = known.wanted();
    version.failed_on.insert(gpulet.device.node);
    const bool convicted =
        version.failed_on.size() >= kNodesThatConvict || !has_other_node(name, version);
    // A model that serves elsewhere goes on; only this device is excluded.
    if (!convicted || (version.proven && models_.table().has_ready_slot(name))) {
      tried_elsewhere = true;
      continue;
    }
    nodes.insert(version.failed_on.begin(), version.failed_on.end());
    give_up(name, known, report.status, turn++, now, effects);
  }
  if (tried_elsewhere) {
    exclude(gpulet.device, report.id, report.cause, report.status, now, effects);
  } else {
    for (const std::string& node : nodes) exclusions_.absolve(node);
  }
}

void FailureHandler::give_up(const std::string& name, NamedModel& known, const Status& why,
                             std::size_t turn, Time now, FrontendEffects& effects) {
  // Models that failed together are tried again one by one, which shows the one at fault.
  const Time until =
      now + options_.backoff + static_cast<std::int64_t>(turn) * options_.exclusions.first;
  if (!known.wanted().proven) {
    models_.setbacks().refuse_version(known, why, until, now, effects);
    return;
  }
  known.wanted().failed_on.clear();
  models_.setbacks().back_off(name, until);
}

bool FailureHandler::park_failed(bool all_excluded) {
  bool all_wait = all_excluded;
  for (auto& [name, known] : models_.all()) {
    const bool waits = all_excluded && known.failure && !exclusions_.allows(known.failure->device);
    known.parked = waits && known.next && known.failure->version == known.next->id;
    known.stuck = waits && !known.next && !models_.table().has_ready_slot(name);
    if (waits && !known.parked && !known.stuck) all_wait = false;
  }
  return all_wait;
}

// ---- loading

std::vector<std::string> FailureHandler::unproven_in(const GpuletRecord& gpulet) const {
  std::vector<std::string> names = wanted_models(models_.table(), gpulet);
  std::erase_if(names, [this](const auto& name) { return models_.find(name)->wanted().proven; });
  return names;
}

Duration FailureHandler::bound_of(const GpuletRecord& gpulet) const {
  std::uint64_t bytes = 0;
  for (const std::string& name : wanted_models(models_.table(), gpulet))
    bytes += models_.table().served(models_.find(name)->wanted().index).file_bytes;
  return load_bound(options_.load_timeout, gpulet.models.size(), bytes);
}

void FailureHandler::did_not_load(const std::vector<std::string>& names, const GpuletRecord& gpulet,
                                  const Status& why, Time now, FrontendEffects& effects) {
  if (gpulet.models.size() > 1) return try_apart(gpulet, now, effects);
  refuse_slow(names.front(), why, now, effects);
}

void FailureHandler::try_apart(const GpuletRecord& gpulet, Time now, FrontendEffects& effects) {
  std::vector<std::string> names = unproven_in(gpulet);
  std::erase_if(names, [this](const auto& name) {
    return models_.find(name)->wanted().trial == Trial::suspect;
  });
  if (names.empty()) return;
  for (const std::string& name : names) models_.find(name)->wanted().trial = Trial::suspect;
  journal_.note(true,
                fmt::format("{} on {} load together for long: they are tried one by one",
                            counted(names.size(), "new model"), device_name(gpulet.device)),
                now, effects);
  journal_.request_urgent_plan("new models are tried one by one");
}

// Models with the same file, such as the buckets of one with dynamic dimensions, share its fate.
void FailureHandler::refuse_slow(const std::string& name, const Status& why, Time now,
                                 FrontendEffects& effects) {
  const std::string file(file_of_version(models_.find(name)->wanted().id));
  std::vector<std::string> names;
  for (const auto& [other, known] : models_.all()) {
    const ModelVersion& version = known.wanted();
    const bool refused = known.refused && known.refused->id == version.id;
    if (!version.proven && !refused && file_of_version(version.id) == file) names.push_back(other);
  }
  for (const std::string& one : names) {
    NamedModel& known = *models_.find(one);
    const std::string id = known.wanted().id;
    if (known.slow_version != id) known.slow_loads = 0;
    known.slow_version = id;
    const Duration pause = backoff_after(++known.slow_loads, options_.backoff, kLongestBeforeRetry);
    models_.setbacks().refuse_version(known, why, now + pause, now, effects);
  }
}

std::vector<FailureHandler::Overdue> FailureHandler::watch(Time now, FrontendEffects& effects) {
  std::vector<Overdue> overdue;
  std::map<GpuletId, Time> unready;
  std::map<GpuletId, Time> ending;
  std::vector<GpuletRecord> together;
  for (const auto& [id, gpulet] : fleet_.backends().gpulets()) {
    if (gpulet.retiring) {
      const auto known = ending_since_.find(id);
      Time since = known == ending_since_.end() ? now : known->second;
      if (now - since >= kEndsWithin) {
        exclude(gpulet.device, deployment_.gpulets().next_id(), FailureCause::hung,
                {StatusCode::timeout, fmt::format("{} was told to end and has not for {:.0f} s",
                                                  name_of(id), to_seconds(kEndsWithin))},
                now, effects);
        since = now;
      }
      ending.emplace(id, since);
      continue;
    }
    const bool loads =
        gpulet.issued && fleet_.backends().commanded(gpulet.backend) &&
        (gpulet.state == GpuletState::preparing || gpulet.state == GpuletState::restarting);
    if (!loads) continue;
    const auto known = unready_since_.find(id);
    const Time since = known != unready_since_.end()            ? known->second
                       : gpulet.state == GpuletState::preparing ? gpulet.since
                                                                : now;
    unready.emplace(id, since);
    const Duration bound = bound_of(gpulet);
    if (now - since >= bound + kBackendsGrace) {
      overdue.push_back(
          {id,
           {StatusCode::timeout, fmt::format("it did not load its models within {:.0f} s "
                                             "(load_timeout_s, and the time for its file)",
                                             to_seconds(bound))}});
    } else if (gpulet.models.size() > 1 &&
               now - since >= kTogetherFor + static_cast<std::int64_t>(gpulet.models.size()) *
                                                 kTogetherForEach) {
      together.push_back(gpulet);
    }
  }
  for (const GpuletRecord& gpulet : together) try_apart(gpulet, now, effects);
  unready_since_ = std::move(unready);
  ending_since_ = std::move(ending);
  std::vector<std::pair<std::string, Status>> slow;
  for (const auto& [name, known] : models_.all()) {
    const ModelVersion& version = known.wanted();
    if (version.proven || !version.tried_since || version.trial < Trial::alone) continue;
    const Duration bound =
        load_bound(options_.load_timeout, 1, models_.table().served(version.index).file_bytes);
    if (now - *version.tried_since < bound + kBackendsGrace) continue;
    slow.push_back({name,
                    {StatusCode::timeout,
                     fmt::format("no gpulet loaded it within {:.0f} s (load_timeout_s, and the "
                                 "time for its file)",
                                 to_seconds(bound))}});
  }
  for (const auto& [name, why] : slow) {
    // Its file may have been refused with another model's.
    if (models_.find(name)->wanted().tried_since) refuse_slow(name, why, now, effects);
  }
  return overdue;
}

// ---- batches and processes

std::set<std::string> FailureHandler::other_nodes(const std::string& name,
                                                  const std::string& node) const {
  std::set<std::string> nodes;
  for (const schedule::Device& device : fleet_.backends().cluster().devices) {
    if (device.key.node != node && exclusions_.allows(device.key) &&
        fleet_.profile_of(device.key, name) != nullptr)
      nodes.insert(device.key.node);
  }
  return nodes;
}

std::set<NodeFaults::Pair> FailureHandler::not_on(const schedule::Cluster& cluster) const {
  std::set<NodeFaults::Pair> pairs;
  for (const NodeFaults::Pair& pair : node_faults_.in_force()) {
    const std::string& model = pair.first;
    const bool elsewhere =
        std::any_of(cluster.devices.begin(), cluster.devices.end(), [&](const auto& device) {
          return !node_faults_.in_force().contains({model, device.key.node}) &&
                 fleet_.profile_of(device.key, model) != nullptr;
        });
    if (elsewhere) pairs.insert(pair);
  }
  return pairs;
}

void FailureHandler::leave_node(const std::string& name, const std::string& node,
                                const std::string& why, Time now, FrontendEffects& effects) {
  journal_.note(true,
                fmt::format("model {} gets no gpulets on node {} for {:.0f} s: {}", name, node,
                            to_seconds(node_faults_.pause_of(name, node)), why),
                now, effects);
  journal_.request_urgent_plan("batches of " + name + " fail on node " + node);
}

void FailureHandler::batch_failed(GpuletId id, ModelIndex model, const Status& why, Time now,
                                  FrontendEffects& effects) {
  const GpuletRecord* const gpulet = fleet_.backends().find(id);
  const std::string& name = models_.table().name_of(model);
  if (gpulet == nullptr || models_.find(name) == nullptr) return;
  const std::string& node = gpulet->device.node;
  if (node_faults_.failed(name, node, false, other_nodes(name, node), now))
    leave_node(name, node, why.message(), now, effects);
}

void FailureHandler::batch_ran(GpuletId id, ModelIndex model) {
  const GpuletRecord* const gpulet = fleet_.backends().find(id);
  if (gpulet != nullptr)
    node_faults_.succeeded(models_.table().name_of(model), gpulet->device.node);
}

void FailureHandler::gpulet_silent(const GpuletRecord& gpulet, Time now, FrontendEffects& effects) {
  journal_.note(true,
                fmt::format("a gpulet on {} does not answer its batches: it is replaced",
                            device_name(gpulet.device)),
                now, effects);
  journal_.request_urgent_plan("a gpulet on " + device_name(gpulet.device) + " is silent");
  const std::string& node = gpulet.device.node;
  for (const schedule::RunningModel& loaded : gpulet.models) {
    if (models_.find(loaded.name) == nullptr) continue;
    if (node_faults_.failed(loaded.name, node, true, other_nodes(loaded.name, node), now))
      leave_node(loaded.name, node, "its batches are not answered", now, effects);
  }
}

void FailureHandler::process_lost(const ProcessLost& lost, Time now, FrontendEffects& effects) {
  const GpuletRecord* const gpulet = fleet_.backends().find(lost.gpulet);
  const std::string device =
      gpulet == nullptr ? std::string() : " on " + device_name(gpulet->device);
  const std::string how = how_it_ended(lost.cause, lost.end);
  journal_.note(true,
                fmt::format("the process serving {}{} {} while running {}", joined(lost.models),
                            device, how, counted(lost.requests, "request")),
                now, effects);
  const std::string node = gpulet == nullptr ? std::string() : gpulet->device.node;
  Quarantine& quarantine = models_.setbacks().quarantine();
  const bool is_known = lost.models.size() == 1;
  for (const std::string& name : lost.models) {
    if (models_.find(name) == nullptr) continue;
    const bool first = !quarantine.suspects(name);
    const std::set<std::string> others =
        node.empty() ? std::set<std::string>() : other_nodes(name, node);
    if (is_known && !node.empty() && node_faults_.failed(name, node, true, others, now))
      leave_node(name, node, fmt::format("processes serving it there {}", how), now, effects);
    if (lost.cause == FailureCause::hung) {
      quarantine.hung(name, now);
    } else if (!is_known) {
      quarantine.suspect(name, now);
    } else if (quarantine.crashed(name, how, now, {node, !others.empty()})) {
      node_faults_.forget(name);
      models_.setbacks().enter_quarantine(name, now, effects);
    }
    if (first && shares_a_gpulet(name)) {
      journal_.request_urgent_plan(
          fmt::format("processes of {} {}: it gets gpulets of its own", name,
                      lost.cause == FailureCause::hung ? "hang" : "crash"));
    }
  }
}

bool FailureHandler::shares_a_gpulet(const std::string& name) const {
  const ServingPlan::Serving& serving = deployment_.in_force().serving();
  return std::any_of(serving.begin(), serving.end(), [&name](const auto& entry) {
    const std::vector<schedule::Assignment>& held = entry.second.assignments;
    return held.size() > 1 && std::any_of(held.begin(), held.end(),
                                          [&name](const auto& one) { return one.model == name; });
  });
}

}  // namespace gpulet::serve
