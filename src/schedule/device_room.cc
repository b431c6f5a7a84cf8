#include "schedule/device_room.h"

#include <algorithm>
#include <set>
#include <string>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/scaling.h"
#include "schedule/check_parts.h"

namespace gpulet::schedule {
namespace {

bool any_has_rounds(const std::vector<const PlannedGpulet*>& gpulets) {
  return std::any_of(gpulets.begin(), gpulets.end(), [](const PlannedGpulet* gpulet) {
    return gpulet->service == Service::rounds;
  });
}

}  // namespace

double model_memory_mb(const profile::Profile* profile, const std::string& model) {
  const profile::ModelProfile* const measured = profile == nullptr ? nullptr : profile->find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

bool DeviceRoom::holds(const std::vector<const PlannedGpulet*>& gpulets) const {
  if (!holds_as_they_are(gpulets)) return false;
  const bool uses_spare =
      std::any_of(gpulets.begin(), gpulets.end(),
                  [](const PlannedGpulet* gpulet) { return gpulet->policy_choice.has_value(); });
  if (!uses_spare) return true;
  std::vector<PlannedGpulet> chosen;
  chosen.reserve(gpulets.size());
  for (const PlannedGpulet* const gpulet : gpulets) chosen.push_back(without_spare(*gpulet));
  std::vector<const PlannedGpulet*> pointers;
  pointers.reserve(chosen.size());
  for (const PlannedGpulet& gpulet : chosen) pointers.push_back(&gpulet);
  return holds_as_they_are(pointers);
}

bool DeviceRoom::holds_as_they_are(const std::vector<const PlannedGpulet*>& gpulets) const {
  return shares_fit(gpulets) && memory_fits(gpulets) && services_fit(gpulets) &&
         check_mig(device_, gpulets, profile_).empty() && slowdowns_fit(gpulets);
}

bool DeviceRoom::shares_fit(const std::vector<const PlannedGpulet*>& gpulets) const {
  int percent = 0;
  // The gpulets of one MIG instance share its size, which counts once.
  std::set<partition::MigInstance> instances;
  for (const PlannedGpulet* const gpulet : gpulets) {
    if (!gpulet->instance || instances.insert(*gpulet->instance).second)
      percent += gpulet->size.percent;
  }
  if (percent > kWholeDevice.percent) return false;
  return !any_has_rounds(gpulets) || gpulets.size() <= device_.max_partitions;
}

bool DeviceRoom::memory_fits(const std::vector<const PlannedGpulet*>& gpulets) const {
  if (!(device_.memory_mb > 0)) return true;
  double sum_mb = 0;
  for (const PlannedGpulet* const gpulet : gpulets) {
    for (const Assignment& one : gpulet->assignments)
      sum_mb += model_memory_mb(profile_, one.model);
  }
  return sum_mb <= device_.memory_mb;
}

bool DeviceRoom::services_fit(const std::vector<const PlannedGpulet*>& gpulets) const {
  return check_services(device_, gpulets).empty();
}

bool DeviceRoom::slowdowns_fit(const std::vector<const PlannedGpulet*>& gpulets) const {
  const bool isolated = device_.mig.has_value() || gpulets.size() < 2;
  if (slowdowns_ == nullptr || isolated || !any_has_rounds(gpulets)) return true;
  return std::all_of(gpulets.begin(), gpulets.end(),
                     [&](const PlannedGpulet* gpulet) { return slowdown_fits(*gpulet, gpulets); });
}

bool DeviceRoom::slowdown_fits(const PlannedGpulet& gpulet,
                               const std::vector<const PlannedGpulet*>& gpulets) const {
  const auto traits = [this](const Assignment& of, const PlannedGpulet& where) {
    return slowdowns_->traits(of.model, of.batch, where.size);
  };
  for (const Assignment& one : gpulet.assignments) {
    const profile::BatchTraits own = traits(one, gpulet);
    double expected = 1;
    for (const PlannedGpulet* const other : gpulets) {
      if (other == &gpulet) continue;
      double worst = 1;
      for (const Assignment& beside : other->assignments)
        worst = std::max(worst, slowdowns_->slowdown(own, traits(beside, *other)));
      expected = profile::add_neighbour(expected, worst);
    }
    if (expected > one.slowdown * (1 + kCheckTolerance)) return false;
  }
  return true;
}

}  // namespace gpulet::schedule
