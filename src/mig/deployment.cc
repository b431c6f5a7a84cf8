#include "gpulet/mig/deployment.h"

namespace gpulet::mig {
namespace {

// Sums of rates may differ from a need by rounding.
constexpr double kTolerance = 1e-9;

}  // namespace

double rate_of(const Placed& placed, const Task& task) {
  const auto profiles = task.geometry.profiles();
  for (std::size_t at = 0; at < profiles.size(); ++at) {
    if (profiles[at].slices == placed.instance.slices)
      return task.services[placed.service].rate_on[at];
  }
  return 0;
}

std::vector<double> throughput(const Deployment& deployment, const Task& task) {
  std::vector<double> rates(task.services.size(), 0);
  for (const Configuration& device : deployment.devices) {
    for (const Placed& placed : device) rates[placed.service] += rate_of(placed, task);
  }
  return rates;
}

std::vector<std::string> faults(const Deployment& deployment, const Task& task) {
  std::vector<std::string> faults;
  for (std::size_t index = 0; index < deployment.devices.size(); ++index) {
    const std::string where = "device " + std::to_string(index) + ": ";
    const Configuration& device = deployment.devices[index];
    if (device.empty()) faults.push_back(where + "it has no instance");
    partition::MigLayout layout;
    std::string written;
    for (const Placed& placed : device) {
      layout.push_back(placed.instance);
      written += " " + to_string(placed.instance);
      if (placed.service >= task.services.size()) {
        faults.push_back(where + to_string(placed.instance) + " runs a service that is none");
        return faults;
      }
      if (rate_of(placed, task) > 0) continue;
      faults.push_back(where + to_string(placed.instance) + " does not serve " +
                       task.services[placed.service].name);
    }
    if (!task.geometry.legal(layout)) faults.push_back(where + "no legal layout:" + written);
  }
  const std::vector<double> rates = throughput(deployment, task);
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const double need = task.services[service].need;
    if (rates[service] >= need * (1 - kTolerance)) continue;
    faults.push_back(task.services[service].name + " has " + std::to_string(rates[service]) +
                     " requests/s of " + std::to_string(need));
  }
  return faults;
}

}  // namespace gpulet::mig
