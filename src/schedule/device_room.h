// DeviceRoom: what a device can hold at the same time, of gpulets whose own rounds are known to be
// valid. The rules are those of check(), computed without its sentences. Pure; any thread.
#pragma once

#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

class DeviceRoom {
 public:
  // `profile`: of the device's type; null: it has none. `slowdowns`: null: gpulets do not slow each
  // other down. All outlive it.
  DeviceRoom(const Device& device, const profile::Profile* profile,
             const profile::InterferenceModel* slowdowns)
      : device_(device), profile_(profile), slowdowns_(slowdowns) {}

  // Whether the device can hold the gpulets: their sizes, number, memory, MIG instances and kinds
  // of service fit, and no assignment is slowed down more than it allows. The same must hold
  // without spare share (scaling.h).
  [[nodiscard]] bool holds(const std::vector<const PlannedGpulet*>& gpulets) const;

 private:
  [[nodiscard]] bool holds_as_they_are(const std::vector<const PlannedGpulet*>& gpulets) const;
  [[nodiscard]] bool shares_fit(const std::vector<const PlannedGpulet*>& gpulets) const;
  [[nodiscard]] bool memory_fits(const std::vector<const PlannedGpulet*>& gpulets) const;
  [[nodiscard]] bool services_fit(const std::vector<const PlannedGpulet*>& gpulets) const;
  [[nodiscard]] bool slowdowns_fit(const std::vector<const PlannedGpulet*>& gpulets) const;
  [[nodiscard]] bool slowdown_fits(const PlannedGpulet& gpulet,
                                   const std::vector<const PlannedGpulet*>& gpulets) const;

  const Device& device_;
  const profile::Profile* profile_;
  const profile::InterferenceModel* slowdowns_;
};

// The memory of the model, as profiled, in MB; 0: unknown.
[[nodiscard]] double model_memory_mb(const profile::Profile* profile, const std::string& model);

}  // namespace gpulet::schedule
