#include <fmt/format.h>

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
  template <typename... Values>
  void wrong(fmt::format_string<const Values&...> format, const Values&... values) {
    violations_.push_back(fmt::format(format, values...));
  }

  void check_instance(const MigInstance& instance,
                      const std::vector<const PlannedGpulet*>& processes) {
    const auto profiles = device_.mig->profiles();
    const auto known = std::find_if(profiles.begin(), profiles.end(), [&](const MigProfile& one) {
      return one.slices == instance.slices &&
             std::count(one.starts().begin(), one.starts().end(), instance.start) > 0;
    });
    const std::string name = to_string(instance);
    if (known == profiles.end()) {
      wrong("{} is not an instance of {}", name, device_.mig->name());
      return;
    }
    reserve_memory(instance, *known);
    check_processes(name, *known, processes);
  }

  // Reserves the instance's memory slices, which no other instance may use.
  void reserve_memory(const MigInstance& instance, const MigProfile& profile) {
    for (std::uint32_t slice = 0; slice < profile.memory_slices; ++slice) {
      const auto [taken, free] = owner_.emplace(instance.start + slice, instance);
      if (free) continue;
      wrong("{} and {} share a memory slice", to_string(instance), to_string(taken->second));
      break;
    }
    if (device_.mig->allows_3g_beside_4g()) return;
    const auto has = [this](std::uint32_t slices) {
      return std::any_of(owner_.begin(), owner_.end(),
                         [slices](const auto& one) { return one.second.slices == slices; });
    };
    const bool is_3g_or_4g = instance.slices == 3 || instance.slices == 4;
    if (is_3g_or_4g && has(3) && has(4)) wrong("a 3g and a 4g cannot exist together");
  }

  void check_processes(const std::string& name, const MigProfile& profile,
                       const std::vector<const PlannedGpulet*>& processes) {
    if (processes.size() > device_.processes_per_instance) {
      wrong("{} holds {} gpulets, at most {} are possible", name, processes.size(),
            device_.processes_per_instance);
    }
    double needed_mb = 0;
    for (const PlannedGpulet* gpulet : processes) {
      needed_mb += required_mb(*gpulet, profile_);
      if (gpulet->size.percent !=
          static_cast<int>(profile.slices * 100 / device_.mig->compute_slices())) {
        wrong("{} is not {} % of the device", name, gpulet->size.percent);
      }
      if (models_of(*gpulet) != models_of(*processes.front()))
        wrong("{} holds gpulets of different models", name);
    }
    if (processes.size() > 1 && profile_ != nullptr && profile_->knows_processes())
      check_several(name, *processes.front(), static_cast<std::uint32_t>(processes.size()));
    if (needed_mb > profile.memory_mb) {
      wrong("the models in {} need {:f} MB, it has {:f} MB", name, needed_mb, profile.memory_mb);
    }
  }

  // What so many processes cost must be measured, which it is only for processes of one model.
  void check_several(const std::string& name, const PlannedGpulet& gpulet,
                     std::uint32_t processes) {
    if (gpulet.assignments.size() > 1) {
      wrong("{} holds {} processes of {} models, which was not measured", name, processes,
            gpulet.assignments.size());
      return;
    }
    for (const std::string& model : models_of(gpulet)) {
      const profile::ModelProfile* const measured = profile_->find(model);
      if (measured != nullptr && !measured->shared_latency.contains(processes))
        wrong("{} holds {} processes of '{}', which was not measured", name, processes, model);
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
  return {"a gpulet names a MIG instance, but MIG does not divide the device"};
}

}  // namespace gpulet::schedule
