// Gpulets of a device that cannot hold new processes beside all old ones: which new processes start
// now, and which old ones end first, one gpulet at a time. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// A gpulet's process on the device.
struct DeviceProcess {
  GpuletId id;
  std::vector<std::string> models;
  std::optional<partition::MigInstance> instance{};
  bool planned = false;  // the plan to come has its gpulet
  bool settled = true;   // it neither loads nor ends

  friend bool operator==(const DeviceProcess&, const DeviceProcess&) = default;
};

struct Starts {
  std::vector<std::size_t>
      start;  // of the waiting gpulets, ascending: the device has room for them
  // Old gpulets to end so that `next` has room. Empty where something starts, loads or ends.
  std::vector<GpuletId> end;
  std::size_t next = 0;
};

// `profile`: of the device's type; null: it has none. Where nothing starts, the waiting gpulet
// whose place costs the fewest old gpulets comes next: those that share a model with it end first,
// then those of most memory. A gpulet for which there would be no room without any old one starts
// when all of them have ended.
[[nodiscard]] Starts next_starts(const Device& device, const profile::Profile* profile,
                                 const std::vector<DeviceProcess>& there,
                                 const std::vector<const PlannedGpulet*>& waiting);

// Old gpulets that end before the gpulet that replaces them can load.
struct Outage {
  std::vector<GpuletId> dark;
  std::size_t until = 0;  // of the waiting gpulets: that one serves again
};

// What next_starts() will lead to, if each old gpulet ends where those that replace it are ready.
[[nodiscard]] std::vector<Outage> expected_outages(const Device& device,
                                                   const profile::Profile* profile,
                                                   std::vector<DeviceProcess> there,
                                                   std::vector<const PlannedGpulet*> waiting);

}  // namespace gpulet::schedule
