#include "serve/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kNodesThatConvict = 2;

}  // namespace

// ---- gpulets

void FailureHandler::gpulet_failed(const GpuletRecord& gpulet, const GpuletReport& report,
                                   bool in_rollout, Time now, FrontendEffects& effects) {
  std::vector<std::string> names = core_.models.wanted_models(gpulet);
  if (!report.failed_model.empty())
    std::erase_if(names, [&report](const auto& name) { return name != report.failed_model; });
  std::vector<std::string> unproven;
  std::copy_if(names.begin(), names.end(), std::back_inserter(unproven),
               [this](const auto& name) { return !core_.models.find(name)->wanted().proven; });
  FailureCause cause = report.cause;
  // The same file was loaded elsewhere, so the node's copy of it is at fault.
  if (cause == FailureCause::model_file && !names.empty() && unproven.empty())
    cause = FailureCause::node_store;
  ++counts_[cause];
  for (const std::string& name : names) {
    NamedModel& known = *core_.models.find(name);
    known.failure = {gpulet.device, cause, report.status, known.wanted().id};
  }

  if (is_machine_cause(cause)) {
    exclude(gpulet.device, report.id, cause, report.status, now, effects);
  } else if (cause == FailureCause::model_file) {
    for (const std::string& name : unproven)
      core_.models.refuse_version(*core_.models.find(name), report.status, kNever, now, effects);
  } else {
    blame(unproven.empty() ? names : unproven, gpulet, report, now, effects);
  }
  // The gpulets that were created for the rollout stay for the next plan.
  if (in_rollout) core_.deployment.abandon_rollout();
  core_.plan_requests.add_urgent("a gpulet on " + device_name(gpulet.device) + " failed");
}

void FailureHandler::exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
                             const Status& why, Time now, FrontendEffects& effects) {
  const bool was_open = core_.exclusions.allows(device);
  core_.exclusions.failed(device, gpulet, cause, why, core_.deployment.next_gpulet(), now);
  if (!was_open) return;
  const Exclusion& excluded = *core_.exclusions.of(device);
  core_.log.note(
      true,
      fmt::format("{} takes no new gpulets for {} s ({}): {}", excluded_name(excluded),
                  std::llround(to_seconds(excluded.until - now)), to_string(cause), why.message()),
      now, effects);
}

void FailureHandler::expire_exclusions(Time now) {
  for (const std::string& name : core_.exclusions.expire(now))
    core_.plan_requests.add(name + " is tried again");
}

bool FailureHandler::has_other_node(const std::string& name, const ModelVersion& version) const {
  const schedule::Cluster cluster = core_.backends.cluster();
  return std::any_of(
      cluster.devices.begin(), cluster.devices.end(), [&](const schedule::Device& device) {
        return !version.failed_on.contains(device.key.node) &&
               core_.profiles.find(core_.backends.offer_of(device.key), name) != nullptr;
      });
}

void FailureHandler::blame(const std::vector<std::string>& names, const GpuletRecord& gpulet,
                           const GpuletReport& report, Time now, FrontendEffects& effects) {
  if (names.empty()) return;  // its versions are not wanted any more
  std::set<std::string> nodes;
  std::size_t turn = 0;
  bool tried_elsewhere = false;
  for (const std::string& name : names) {
    NamedModel& known = *core_.models.find(name);
    ModelVersion& version = known.wanted();
    version.failed_on.insert(gpulet.device.node);
    const bool convicted =
        version.failed_on.size() >= kNodesThatConvict || !has_other_node(name, version);
    // A model that serves elsewhere goes on; only this device is excluded.
    if (!convicted || (version.proven && core_.models.has_ready_slot(name))) {
      tried_elsewhere = true;
      continue;
    }
    nodes.insert(version.failed_on.begin(), version.failed_on.end());
    give_up(name, known, report.status, turn++, now, effects);
  }
  if (tried_elsewhere) {
    exclude(gpulet.device, report.id, report.cause, report.status, now, effects);
  } else {
    for (const std::string& node : nodes) core_.exclusions.absolve(node);
  }
}

void FailureHandler::give_up(const std::string& name, NamedModel& known, const Status& why,
                             std::size_t turn, Time now, FrontendEffects& effects) {
  // Models that failed together are tried again one by one, which shows the one at fault.
  const Time until =
      now + options_.backoff + static_cast<std::int64_t>(turn) * options_.exclusions.first;
  if (!known.wanted().proven) {
    core_.models.refuse_version(known, why, until, now, effects);
    return;
  }
  known.wanted().failed_on.clear();
  core_.models.back_off(name, until);
}

bool FailureHandler::park_failed(bool all_excluded) {
  bool all_wait = all_excluded;
  for (auto& [name, known] : core_.models.all()) {
    const bool waits =
        all_excluded && known.failure && !core_.exclusions.allows(known.failure->device);
    known.parked = waits && known.next && known.failure->version == known.next->id;
    known.stuck = waits && !known.next && !core_.models.has_ready_slot(name);
    if (waits && !known.parked && !known.stuck) all_wait = false;
  }
  return all_wait;
}

// ---- processes

void FailureHandler::process_lost(const ProcessLost& lost, Time now, FrontendEffects& effects) {
  const GpuletRecord* const gpulet = core_.backends.find(lost.gpulet);
  const std::string device =
      gpulet == nullptr ? std::string() : " on " + device_name(gpulet->device);
  const std::string how = how_it_ended(lost.cause, lost.end);
  core_.log.note(true,
                 fmt::format("the process serving {}{} {} while running {}", joined(lost.models),
                             device, how, counted(lost.requests, "request")),
                 now, effects);
  if (lost.cause != FailureCause::model_crash) return;
  Quarantine& quarantine = core_.models.quarantine();
  const bool is_known = lost.models.size() == 1;
  for (const std::string& name : lost.models) {
    if (core_.models.find(name) == nullptr) continue;
    const bool first = !quarantine.suspects(name);
    if (!is_known) {
      quarantine.suspect(name, now);
    } else if (quarantine.crashed(name, how, now)) {
      core_.models.enter_quarantine(name, now, effects);
    }
    if (first && shares_a_gpulet(name))
      core_.plan_requests.add_urgent("processes of " + name + " crash: it gets gpulets of its own");
  }
}

bool FailureHandler::shares_a_gpulet(const std::string& name) const {
  const Deployment::Serving& serving = core_.deployment.serving();
  return std::any_of(serving.begin(), serving.end(), [&name](const auto& entry) {
    const std::vector<schedule::Assignment>& held = entry.second.assignments;
    return held.size() > 1 && std::any_of(held.begin(), held.end(),
                                          [&name](const auto& one) { return one.model == name; });
  });
}

}  // namespace gpulet::serve
