#include "simulate/experienced.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace gpulet::simulate {
namespace {

using schedule::Assignment;
using schedule::PlannedGpulet;

class Experience {
 public:
  Experience(const schedule::Cluster& cluster, const Knowledge& knowledge) : knowledge_(knowledge) {
    for (const schedule::Device& device : cluster.devices) device_of_[device.key] = &device;
  }

  // Empty: unknown.
  [[nodiscard]] std::optional<double> latency_ms(const schedule::Plan& plan,
                                                 const PlannedGpulet& gpulet,
                                                 const Assignment& assignment) const {
    const auto device = device_of_.find(gpulet.device);
    if (device == device_of_.end()) return std::nullopt;
    const auto profile = knowledge_.profiles->find(device->second->type);
    if (profile == knowledge_.profiles->end()) return std::nullopt;
    const profile::ModelProfile* const model = profile->second.find(assignment.model);
    if (model == nullptr) return std::nullopt;
    const std::optional<double> alone_ms =
        model->latency_of(schedule::processes_beside(plan.gpulets, gpulet))
            .latency_ms(assignment.batch, gpulet.size);
    if (!alone_ms) return std::nullopt;
    return *alone_ms * slowdown(plan, gpulet, assignment, *device->second);
  }

 private:
  [[nodiscard]] double slowdown(const schedule::Plan& plan, const PlannedGpulet& gpulet,
                                const Assignment& assignment,
                                const schedule::Device& device) const {
    if (knowledge_.simulated == nullptr || device.mig) return 1;
    const auto model = knowledge_.simulated->find(device.type);
    if (model == knowledge_.simulated->end()) return 1;
    const auto traits = [&](const Assignment& of, const PlannedGpulet& where) {
      return model->second.traits(of.model, of.batch, where.size);
    };
    double slowdown = 1;
    for (const PlannedGpulet& other : plan.gpulets) {
      if (&other == &gpulet || other.device != gpulet.device) continue;
      double worst = 1;
      for (const Assignment& beside : other.assignments) {
        worst = std::max(worst,
                         model->second.slowdown(traits(assignment, gpulet), traits(beside, other)));
      }
      slowdown = profile::add_neighbour(slowdown, worst);
    }
    return slowdown;
  }

  const Knowledge& knowledge_;
  std::map<schedule::DeviceKey, const schedule::Device*> device_of_;
};

}  // namespace

schedule::Plan as_experienced(schedule::Plan plan, const schedule::Cluster& cluster,
                              const Knowledge& knowledge) {
  const Experience experience(cluster, knowledge);
  std::vector<double> latencies_ms;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    for (const Assignment& one : gpulet.assignments)
      latencies_ms.push_back(experience.latency_ms(plan, gpulet, one).value_or(one.latency_ms));
  }
  auto next = latencies_ms.begin();
  for (PlannedGpulet& gpulet : plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.latency_ms = *next++;
  }
  return plan;
}

}  // namespace gpulet::simulate
