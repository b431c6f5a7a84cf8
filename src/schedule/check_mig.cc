#include "schedule/check_mig.h"

#include <algorithm>
#include <map>
#include <set>

namespace gpulet::schedule {
namespace {

using partition::MigInstance;
using partition::MigProfile;

std::set<std::string> models_of(const PlannedGpulet& gpulet) {
  std::set<std::string> models;
  for (const Assignment& one : gpulet.assignments) models.insert(one.model);
  return models;
}

double memory_mb(const PlannedGpulet& gpulet, const profile::Profile* profile) {
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

  std::vector<std::string> run(const std::vector<const PlannedGpulet*>& gpulets) {
    std::map<MigInstance, std::vector<const PlannedGpulet*>> in_instance;
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance) {
        wrong("a gpulet names no instance");
        continue;
      }
      in_instance[*gpulet->instance].push_back(gpulet);
    }
    for (const auto& [instance, processes] : in_instance) check_instance(instance, processes);
    return std::move(violations_);
  }

 private:
  void wrong(std::string what) { violations_.push_back(std::move(what)); }

  void check_instance(const MigInstance& instance,
                      const std::vector<const PlannedGpulet*>& processes) {
    const auto profiles = device_.mig->profiles();
    const auto known = std::find_if(profiles.begin(), profiles.end(), [&](const MigProfile& one) {
      return one.slices == instance.slices &&
             std::count(one.starts().begin(), one.starts().end(), instance.start) > 0;
    });
    const std::string name = to_string(instance);
    if (known == profiles.end()) {
      wrong(name + " is no instance of " + std::string(device_.mig->name()));
      return;
    }
    take_memory(instance, *known);
    check_processes(name, *known, processes);
  }

  // Slice by slice: what two instances share, neither can have.
  void take_memory(const MigInstance& instance, const MigProfile& profile) {
    for (std::uint32_t slice = 0; slice < profile.memory_slices; ++slice) {
      const auto [taken, free] = owner_.emplace(instance.start + slice, instance);
      if (free) continue;
      wrong(to_string(instance) + " and " + to_string(taken->second) + " share a memory slice");
      break;
    }
    if (device_.mig->allows_3g_beside_4g()) return;
    const auto has = [this](std::uint32_t slices) {
      return std::any_of(owner_.begin(), owner_.end(),
                         [slices](const auto& one) { return one.second.slices == slices; });
    };
    const bool last_of_both = instance.slices == 3 || instance.slices == 4;
    if (last_of_both && has(3) && has(4)) wrong("a 3g stands beside a 4g");
  }

  void check_processes(const std::string& name, const MigProfile& profile,
                       const std::vector<const PlannedGpulet*>& processes) {
    if (processes.size() > device_.processes_per_instance) {
      wrong(name + " holds " + std::to_string(processes.size()) + " gpulets, at most " +
            std::to_string(device_.processes_per_instance) + " are possible");
    }
    double needed_mb = 0;
    for (const PlannedGpulet* gpulet : processes) {
      needed_mb += memory_mb(*gpulet, profile_);
      if (gpulet->size.percent !=
          static_cast<int>(profile.slices * 100 / device_.mig->compute_slices())) {
        wrong(name + " is not " + std::to_string(gpulet->size.percent) + " % of the device");
      }
      if (models_of(*gpulet) != models_of(*processes.front()))
        wrong(name + " holds gpulets of different models");
    }
    if (needed_mb > profile.memory_mb) {
      wrong("the models in " + name + " need " + std::to_string(needed_mb) + " MB, it has " +
            std::to_string(profile.memory_mb) + " MB");
    }
  }

  const Device& device_;
  const profile::Profile* profile_;
  std::map<std::uint32_t, MigInstance> owner_;  // of each memory slice
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> check_mig(const Device& device,
                                   const std::vector<const PlannedGpulet*>& gpulets,
                                   const profile::Profile* profile) {
  if (device.mig) return MigChecker(device, profile).run(gpulets);
  const bool named = std::any_of(gpulets.begin(), gpulets.end(), [](const PlannedGpulet* gpulet) {
    return gpulet->instance.has_value();
  });
  if (!named) return {};
  return {"a gpulet names an instance, and MIG does not divide the device"};
}

}  // namespace gpulet::schedule
