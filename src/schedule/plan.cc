#include "gpulet/schedule/plan.h"

#include <set>

namespace gpulet::schedule {

std::uint32_t Plan::devices_used() const {
  std::set<DeviceKey> devices;
  for (const PlannedGpulet& gpulet : gpulets) devices.insert(gpulet.device);
  return static_cast<std::uint32_t>(devices.size());
}

}  // namespace gpulet::schedule
