#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "schedule/check_parts.h"

namespace gpulet::schedule {
namespace {

using partition::MigInstance;
using partition::MigProfile;

std::set<std::string> models_of(const PlannedGpulet& gpulet) {
  std::set<std::string> models;
  for (const Assignment& one : gpulet.assignments) models.insert(one.model);
  return models;
}

double required_mb(const PlannedGpulet& gpulet, const profile::Profile* profile) {
  double sum_mb = 0;
  for (const Assignment& one : gpulet.assignments) {
    const profile::ModelProfile* const measured =
        profile == nullptr ? nullptr : profile->find(one.model);
    if (measured != nullptr) sum_mb += measured->memory_mb.value_or(0);
  }
  return sum_mb;
}

class MigChecker {
 public:
  MigChecker(const Device& device, const profile::Profile* profile)
      : device_(device), profile_(profile) {}

  std::vector<Violation> run(const std::vector<const PlannedGpulet*>& gpulets) {
    std::map<MigInstance, std::vector<const PlannedGpulet*>> in_instance;
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance) {
        wrong(ViolationCause::no_instance);
        continue;
      }
      in_instance[*gpulet->instance].push_back(gpulet);
    }
    for (const auto& [instance, processes] : in_instance) check_instance(instance, processes);
    return std::move(violations_);
  }

 private:
  void wrong(ViolationCause cause, Violation values = {}) {
    values.cause = cause;
    values.device = device_.key;
    violations_.push_back(std::move(values));
  }

  void check_instance(const MigInstance& instance,
                      const std::vector<const PlannedGpulet*>& processes) {
    const auto profiles = device_.mig->profiles();
    const auto known = std::find_if(profiles.begin(), profiles.end(), [&](const MigProfile& one) {
      return one.slices == instance.slices &&
             std::count(one.starts().begin(), one.starts().end(), instance.start) > 0;
    });
    if (known == profiles.end()) {
      wrong(ViolationCause::unknown_instance,
            {.instance = instance, .type = std::string(device_.mig->name())});
      return;
    }
    reserve_memory(instance, *known);
    check_processes(instance, *known, processes);
  }

  // Reserves the instance's memory slices, which no other instance may use.
  void reserve_memory(const MigInstance& instance, const MigProfile& profile) {
    for (std::uint32_t slice = 0; slice < profile.memory_slices; ++slice) {
      const auto [taken, free] = owner_.emplace(instance.start + slice, instance);
      if (free) continue;
      wrong(ViolationCause::shared_memory_slice, {.instance = instance, .other = taken->second});
      break;
    }
    if (device_.mig->allows_3g_beside_4g()) return;
    const auto has = [this](std::uint32_t slices) {
      return std::any_of(owner_.begin(), owner_.end(),
                         [slices](const auto& one) { return one.second.slices == slices; });
    };
    const bool is_3g_or_4g = instance.slices == 3 || instance.slices == 4;
    if (is_3g_or_4g && has(3) && has(4)) wrong(ViolationCause::three_beside_four);
  }

  void check_processes(const MigInstance& instance, const MigProfile& profile,
                       const std::vector<const PlannedGpulet*>& processes) {
    if (processes.size() > device_.processes_per_instance) {
      wrong(ViolationCause::too_many_processes,
            {.instance = instance,
             .found = static_cast<double>(processes.size()),
             .expected = static_cast<double>(device_.processes_per_instance)});
    }
    double needed_mb = 0;
    for (const PlannedGpulet* gpulet : processes) {
      needed_mb += required_mb(*gpulet, profile_);
      if (gpulet->size.percent !=
          static_cast<int>(profile.slices * 100 / device_.mig->compute_slices())) {
        wrong(ViolationCause::instance_size,
              {.instance = instance, .found = static_cast<double>(gpulet->size.percent)});
      }
      if (models_of(*gpulet) != models_of(*processes.front()))
        wrong(ViolationCause::different_models, {.instance = instance});
    }
    if (processes.size() > 1 && profile_ != nullptr && profile_->knows_processes())
      check_several(instance, *processes.front(), static_cast<std::uint32_t>(processes.size()));
    if (needed_mb > profile.memory_mb) {
      wrong(ViolationCause::instance_memory,
            {.instance = instance, .found = needed_mb, .expected = profile.memory_mb});
    }
  }

  // What so many processes cost must be measured, which it is only for processes of one model.
  void check_several(const MigInstance& instance, const PlannedGpulet& gpulet,
                     std::uint32_t processes) {
    if (gpulet.assignments.size() > 1) {
      wrong(ViolationCause::processes_of_models,
            {.instance = instance,
             .found = static_cast<double>(processes),
             .expected = static_cast<double>(gpulet.assignments.size())});
      return;
    }
    for (const std::string& model : models_of(gpulet)) {
      const profile::ModelProfile* const measured = profile_->find(model);
      if (measured != nullptr && !measured->shared_latency.contains(processes))
        wrong(ViolationCause::processes_not_measured,
              {.model = model, .instance = instance, .found = static_cast<double>(processes)});
    }
  }

  const Device& device_;
  const profile::Profile* profile_;
  std::map<std::uint32_t, MigInstance> owner_;  // of each memory slice
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> check_mig(const Device& device,
                                 const std::vector<const PlannedGpulet*>& gpulets,
                                 const profile::Profile* profile) {
  if (device.mig) return MigChecker(device, profile).run(gpulets);
  const bool named = std::any_of(gpulets.begin(), gpulets.end(), [](const PlannedGpulet* gpulet) {
    return gpulet->instance.has_value();
  });
  if (!named) return {};
  return {{.cause = ViolationCause::instance_without_mig, .device = device.key}};
}

}  // namespace gpulet::schedule
