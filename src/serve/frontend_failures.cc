// FrontendCore: gpulets that fail. A failure of the machine excludes the node or the device, one of
// the file refuses the version, and where neither is known, the model is tried on another node
// before it is blamed.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "gpulet/serve/frontend_core.h"
#include "serve/wording.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kNodesThatConvict = 2;

}  // namespace

std::vector<std::string> FrontendCore::wanted_models(const FleetGpulet& gpulet) const {
  std::vector<std::string> names;
  for (const schedule::LoadedModel& loaded : gpulet.models) {
    const NamedModel* const known = versions_.find(loaded.name);
    if (known != nullptr && known->wanted().id == loaded.version) names.push_back(loaded.name);
  }
  return names;
}

void FrontendCore::gpulet_failed(const FleetGpulet& gpulet, const GpuletReport& report,
                                 bool on_its_way, Time now, FrontendEffects& effects) {
  std::vector<std::string> names = wanted_models(gpulet);
  if (!report.failed_model.empty())
    std::erase_if(names, [&report](const auto& name) { return name != report.failed_model; });
  std::vector<std::string> unproven;
  std::copy_if(names.begin(), names.end(), std::back_inserter(unproven),
               [this](const auto& name) { return !versions_.find(name)->wanted().proven; });
  FailureCause cause = report.cause;
  // The same file was loaded elsewhere, so that this copy of it is at fault.
  if (cause == FailureCause::model_file && !names.empty() && unproven.empty())
    cause = FailureCause::node_store;
  ++failures_[cause];
  for (const std::string& name : names) {
    NamedModel& known = *versions_.find(name);
    known.failure = {gpulet.device, cause, report.status, known.wanted().id};
  }

  if (is_machine_cause(cause)) {
    exclude(gpulet.device, report.id, cause, report.status, now, effects);
  } else if (cause == FailureCause::model_file) {
    for (const std::string& name : unproven)
      refuse_version(*versions_.find(name), report.status, kNever, now, effects);
  } else {
    suspect(unproven.empty() ? names : unproven, gpulet, report, now, effects);
  }
  if (on_its_way) abandon_rollout();
  want_plan("a gpulet on " + device_name(gpulet.device) + " failed");
  plan_urgent_ = true;
}

void FrontendCore::exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
                           const Status& why, Time now, FrontendEffects& effects) {
  const bool was_open = exclusions_.allows(device);
  exclusions_.failed(device, gpulet, cause, why, GpuletId{next_gpulet_}, now);
  if (!was_open) return;
  const Exclusion& excluded = *exclusions_.of(device);
  note(true,
       excluded_name(excluded) + " takes no new gpulets for " +
           std::to_string(std::llround(to_seconds(excluded.until - now))) + " s (" +
           std::string(to_string(cause)) + "): " + why.message(),
       now, effects);
}

bool FrontendCore::has_other_node(const std::string& name, const ModelVersion& version) const {
  const schedule::Cluster cluster = fleet_.cluster();
  return std::any_of(cluster.devices.begin(), cluster.devices.end(),
                     [&](const schedule::Device& device) {
                       return !version.failed_on.contains(device.key.node) &&
                              profile_of(device.key, name) != nullptr;
                     });
}

void FrontendCore::suspect(const std::vector<std::string>& names, const FleetGpulet& gpulet,
                           const GpuletReport& report, Time now, FrontendEffects& effects) {
  if (names.empty()) return;  // nothing of it is wanted any more
  std::set<std::string> nodes;
  std::size_t turn = 0;
  bool tried_elsewhere = false;
  for (const std::string& name : names) {
    NamedModel& known = *versions_.find(name);
    ModelVersion& version = known.wanted();
    version.failed_on.insert(gpulet.device.node);
    const bool convicted =
        version.failed_on.size() >= kNodesThatConvict || !has_other_node(name, version);
    // What serves it elsewhere goes on: it is this device that is left alone.
    if (!convicted || (version.proven && has_ready_lane(name))) {
      tried_elsewhere = true;
      continue;
    }
    nodes.insert(version.failed_on.begin(), version.failed_on.end());
    give_up(known, {gpulet.device, report.cause, report.status}, turn++, now, effects);
  }
  if (tried_elsewhere) {
    exclude(gpulet.device, report.id, report.cause, report.status, now, effects);
  } else {
    for (const std::string& node : nodes) exclusions_.absolve(node);
  }
}

void FrontendCore::give_up(NamedModel& known, const ModelFailure& failure, std::size_t turn,
                           Time now, FrontendEffects& effects) {
  // Those that failed together are tried again one by one: that shows who is to blame.
  const Time until =
      now + options_.hold_back + static_cast<std::int64_t>(turn) * options_.exclusions.first;
  if (!known.wanted().proven) {
    refuse_version(known, failure.why, until, now, effects);
    return;
  }
  known.wanted().failed_on.clear();
  held_back_[dispatcher_.models()[known.wanted().index].name] = until;
}

void FrontendCore::abandon_rollout() {
  stages_.clear();
  rollout_.reset();
}

std::set<schedule::DeviceKey> FrontendCore::closed_devices(const schedule::Cluster& cluster) const {
  std::set<schedule::DeviceKey> closed;
  for (const schedule::Device& device : cluster.devices) {
    if (!exclusions_.allows(device.key)) closed.insert(device.key);
  }
  return closed;
}

bool FrontendCore::park_failed(bool nothing_is_open) {
  bool all_wait = nothing_is_open;
  for (auto& [name, known] : versions_.named()) {
    const bool waits =
        nothing_is_open && known.failure && !exclusions_.allows(known.failure->device);
    known.parked = waits && known.next && known.failure->version == known.next->id;
    known.stuck = waits && !known.next && !has_ready_lane(name);
    if (waits && !known.parked && !known.stuck) all_wait = false;
  }
  return all_wait;
}

std::vector<schedule::PlannedGpulet> FrontendCore::keep_on(
    const std::set<schedule::DeviceKey>& closed,
    const std::vector<schedule::ModelDemand>& demands) {
  kept_.clear();
  std::vector<schedule::PlannedGpulet> kept;
  for (const auto& [id, planned] : serving_) {
    const FleetGpulet* const gpulet = fleet_.find(id);
    if (!closed.contains(planned.device) || gpulet == nullptr || gpulet->retiring) continue;
    schedule::PlannedGpulet part = planned;
    std::erase_if(part.assignments, [&](const schedule::Assignment& one) {
      const auto demand = std::find_if(demands.begin(), demands.end(), [&one](const auto& asked) {
        return asked.name == one.model && asked.slo_ms == one.slo_ms &&
               asked.max_batch >= one.batch;
      });
      if (demand == demands.end()) return true;
      const std::string& wanted = versions_.find(one.model)->wanted().id;
      return std::none_of(gpulet->models.begin(), gpulet->models.end(),
                          [&](const schedule::LoadedModel& loaded) {
                            return loaded.name == one.model && loaded.version == wanted;
                          });
    });
    if (part.assignments.empty()) continue;
    kept_.insert(id);
    kept.push_back(std::move(part));
  }
  return kept;
}

std::string FrontendCore::failure_of(const NamedModel& known) const {
  if (!known.failure) return "its gpulet failed";
  return "its gpulet on " + device_name(known.failure->device) + " failed (" +
         std::string(to_string(known.failure->cause)) + "): " + known.failure->why.message();
}

}  // namespace gpulet::serve
