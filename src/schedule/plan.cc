#include "gpulet/schedule/plan.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace gpulet::schedule {

double Plan::unserved_rate() const {
  return std::accumulate(unserved.begin(), unserved.end(), 0.0,
                         [](double sum, const Unserved& one) { return sum + one.rate; });
}

std::uint32_t Plan::devices_used() const {
  std::set<DeviceKey> devices;
  for (const PlannedGpulet& gpulet : gpulets) devices.insert(gpulet.device);
  return static_cast<std::uint32_t>(devices.size());
}

bool serves_better(const Plan& made, const Plan& in_force) {
  constexpr double kNegligible = 1e-6;  // requests per second
  const double gained = in_force.unserved_rate() - made.unserved_rate();
  if (gained > kNegligible) return true;
  return gained > -kNegligible && made.devices_used() < in_force.devices_used();
}

std::uint32_t processes_beside(std::span<const PlannedGpulet> gpulets,
                               const PlannedGpulet& gpulet) {
  if (!gpulet.instance) return 1;
  return static_cast<std::uint32_t>(
      std::count_if(gpulets.begin(), gpulets.end(), [&gpulet](const PlannedGpulet& other) {
        return other.instance == gpulet.instance && other.device == gpulet.device;
      }));
}

}  // namespace gpulet::schedule
