#include "serve/plans/in_place_replacement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace gpulet::serve {

template <typename Stays>
std::vector<schedule::DeviceProcess> InPlaceReplacement::processes_on(
    const schedule::DeviceKey& device, const Stays& stays) const {
  std::vector<schedule::DeviceProcess> processes;
  for (const auto& [id, gpulet] : fleet_.backends().gpulets()) {
    if (gpulet.device != device) continue;
    schedule::DeviceProcess& process =
        processes.emplace_back(schedule::DeviceProcess{id, {}, gpulet.instance});
    for (const schedule::RunningModel& loaded : gpulet.models)
      process.models.push_back(loaded.name);
    process.planned = stays(id);
    process.settled = !gpulet.retiring && gpulet.state != GpuletState::preparing;
  }
  return processes;
}

std::set<schedule::DeviceKey> InPlaceReplacement::devices_for(const schedule::Plan& plan,
                                                              const schedule::Steps& steps) const {
  std::vector<schedule::RunningGpulet> running;
  for (const auto& [id, gpulet] : fleet_.backends().gpulets())
    running.push_back(as_running(id, gpulet));
  return schedule::devices_without_rollout_capacity(running, plan, steps,
                                                    fleet_.backends().cluster(), fleet_.profiles());
}

std::vector<PlannedOutage> InPlaceReplacement::outages_of(const schedule::Plan& plan,
                                                          const schedule::Steps& steps) const {
  std::vector<PlannedOutage> outages;
  for (const schedule::DeviceKey& key : devices_for(plan, steps)) {
    const schedule::Device& device = fleet_.backends().offer_of(key)->device;
    std::vector<const schedule::PlannedGpulet*> waiting;
    std::vector<std::size_t> index;
    for (const std::size_t created : steps.create) {
      if (plan.gpulets[created].device != key) continue;
      waiting.push_back(&plan.gpulets[created]);
      index.push_back(created);
    }
    const auto stays = [&steps](GpuletId id) {
      return std::any_of(steps.keep.begin(), steps.keep.end(),
                         [id](const auto& one) { return one.running == id; });
    };
    const profile::Profile* const profile = fleet_.profile_of(device.type);
    for (const schedule::Outage& expected :
         schedule::expected_outages(device, profile, processes_on(key, stays), waiting)) {
      const std::size_t until = index[expected.until];
      PlannedOutage outage = outage_of(key, expected.dark, GpuletId{until},
                                       deployment_.gpulets().expected_load(plan.gpulets[until]));
      if (!outage.dark.empty()) outages.push_back(std::move(outage));
    }
  }
  return outages;
}

void InPlaceReplacement::advance(Time now, FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  std::map<schedule::DeviceKey, std::vector<GpuletId>> waiting;
  for (const GpuletId id : rollout.postponed()) waiting[rollout.part_of(id).device].push_back(id);
  for (const auto& [key, gpulets] : waiting) {
    if (fleet_.backends().takes_gpulets(key)) {
      replace_on(fleet_.backends().offer_of(key)->device, gpulets, now, effects);
      continue;
    }
    // Another plan is made for its loss.
    for (const GpuletId id : gpulets) rollout.lost(id);
  }
}

void InPlaceReplacement::replace_on(const schedule::Device& device,
                                    const std::vector<GpuletId>& waiting, Time now,
                                    FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  std::vector<const schedule::PlannedGpulet*> parts;
  for (const GpuletId id : waiting) parts.push_back(&rollout.part_of(id));
  const std::vector<schedule::DeviceProcess> there =
      processes_on(device.key, [&rollout](GpuletId id) { return rollout.parts().contains(id); });
  const profile::Profile* const profile = fleet_.profile_of(device.type);
  const schedule::Starts starts = schedule::next_starts(device, profile, there, parts);
  for (const std::size_t at : starts.start) {
    const GpuletId id = waiting[at];
    rollout.create_postponed(id, now + options_.rollout_patience);
    if (starter_.proven(*parts[at]))
      rollout.wait_longer(id, now + deployment_.gpulets().patience(options_.rollout_patience));
    starter_.start(id, now, effects);
  }
  if (starts.end.empty()) return;
  std::set<std::string> models;
  for (const schedule::DeviceProcess& one : there) {
    if (std::binary_search(starts.end.begin(), starts.end.end(), one.id))
      models.insert(one.models.begin(), one.models.end());
  }
  // Gpulets elsewhere may let them end without an outage.
  if (!rollout.awaits_any_of(models, now)) end_for(waiting[starts.next], starts.end, now, effects);
}

void InPlaceReplacement::end_for(GpuletId next, const std::vector<GpuletId>& dark, Time now,
                                 FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  const schedule::PlannedGpulet& planned = rollout.part_of(next);
  PlannedOutage outage =
      outage_of(planned.device, dark, next, deployment_.gpulets().expected_load(planned));
  deployment_.in_force().stop_serving(dark);
  routes_.update(now, effects);
  for (const GpuletId id : dark) deployment_.gpulets().retire(id, effects);
  deployment_.in_force().outages().begin(std::move(outage));
  deployment_.set_gpulets_changed();  // their share is free
  rollout.await_leaving(planned.device, now + options_.leave_within);
}

PlannedOutage InPlaceReplacement::outage_of(const schedule::DeviceKey& device,
                                            const std::vector<GpuletId>& ended, GpuletId until,
                                            std::optional<Duration> expected) const {
  PlannedOutage outage{device, {}, {}, until, expected};
  std::set<std::string> models;
  for (const GpuletId id : ended) {
    const auto serves = deployment_.in_force().serving().find(id);
    if (serves == deployment_.in_force().serving().end()) continue;
    outage.dark.push_back(id);
    for (const schedule::Assignment& one : serves->second.assignments) models.insert(one.model);
  }
  outage.models.assign(models.begin(), models.end());
  return outage;
}

// A device that old gpulets do not leave takes no new ones, as if these had failed there.
void InPlaceReplacement::give_up_devices(Time now, FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  for (const GpuletId id : rollout.postponed()) {
    const schedule::DeviceKey device = rollout.part_of(id).device;
    if (!rollout.overdue(device, now)) {
      journal_.request_plan("gpulets that are replaced in place wait for their turn");
      continue;
    }
    const Status late(StatusCode::timeout,
                      "gpulets that were told to end are still on it: a new one cannot start");
    failures_.exclude(device, id, FailureCause::hung, late, now, effects);
    journal_.request_urgent_plan("gpulets did not leave their device in time");
  }
}

std::set<std::string> InPlaceReplacement::trials_in_place(const schedule::Plan& plan,
                                                          const schedule::Steps& steps) const {
  const std::vector<schedule::RunningGpulet> running = fleet_.backends().running();
  const std::set<schedule::DeviceKey> in_place = schedule::devices_without_rollout_capacity(
      running, plan, steps, fleet_.backends().cluster(), fleet_.profiles());
  std::set<schedule::DeviceKey> serving;  // where gpulets would end that serve
  for (const auto& [id, planned] : deployment_.in_force().serving()) {
    const bool stays = std::any_of(steps.keep.begin(), steps.keep.end(),
                                   [id = id](const auto& one) { return one.running == id; });
    const bool needed =
        std::any_of(planned.assignments.begin(), planned.assignments.end(),
                    [this](const auto& one) { return starter_.is_served(one.model); });
    if (!stays && needed) serving.insert(planned.device);
  }
  std::set<std::string> models;
  for (const std::size_t index : steps.create) {
    const schedule::PlannedGpulet& planned = plan.gpulets[index];
    if (!in_place.contains(planned.device) || !serving.contains(planned.device)) continue;
    for (const schedule::Assignment& one : planned.assignments) {
      if (starter_.unproven(one.model)) models.insert(one.model);
    }
  }
  return models;
}

}  // namespace gpulet::serve
