#include "schedule/mig/most_served.h"

#include <algorithm>
#include <map>
#include <vector>

namespace gpulet::schedule {
namespace {

// The sum over services of the part of each that the device completes.
double gain_of(const mig::Configuration& device, const mig::Task& task,
               const std::vector<double>& needed) {
  std::map<std::uint32_t, double> rates;
  for (const mig::Placed& placed : device) rates[placed.service] += mig::rate_of(placed, task);
  double gain = 0;
  for (const auto& [service, rate] : rates)
    gain += std::min(rate, needed[service]) / task.services[service].need;
  return gain;
}

}  // namespace

mig::Deployment most_served(const mig::Deployment& deployment, const mig::Task& task,
                            std::size_t devices) {
  std::vector<double> needed;
  for (const mig::Service& service : task.services) needed.push_back(service.need);
  std::vector<mig::Configuration> rest = deployment.devices;
  mig::Deployment chosen;
  while (chosen.devices.size() < devices) {
    std::size_t best = 0;
    double best_gain = -1;
    for (std::size_t at = 0; at < rest.size(); ++at) {
      const double gain = gain_of(rest[at], task, needed);
      if (gain <= best_gain) continue;
      best = at;
      best_gain = gain;
    }
    for (const mig::Placed& placed : rest[best]) {
      double& need = needed[placed.service];
      need = std::max(0.0, need - mig::rate_of(placed, task));
    }
    chosen.devices.push_back(std::move(rest[best]));
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return chosen;
}

}  // namespace gpulet::schedule
