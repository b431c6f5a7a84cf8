#include "schedule/mig/deployment_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace gpulet::schedule::mig {
namespace {

// Relative tolerance for sums of rates. The optimiser's is far below that of faults(), and far
// above the rounding error of a sum.
constexpr double kRounding = 1e-10;
constexpr double kFaultTolerance = 1e-9;

std::vector<LayoutShape> shapes_of(const partition::MigGeometry& geometry) {
  const auto profiles = geometry.profiles();
  std::vector<LayoutShape> shapes;
  for (partition::MigLayout& layout : geometry.maximal_layouts()) {
    std::sort(layout.begin(), layout.end(), [](const auto& a, const auto& b) {
      return a.slices != b.slices ? a.slices > b.slices : a.start < b.start;
    });
    LayoutShape shape;
    for (const partition::MigInstance& instance : layout) {
      const auto profile = std::find_if(
          profiles.begin(), profiles.end(),
          [&](const partition::MigProfile& known) { return known.slices == instance.slices; });
      shape.profiles.push_back(static_cast<std::uint32_t>(profile - profiles.begin()));
    }
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const LayoutShape& other) {
      return other.profiles == shape.profiles;
    });
    if (known) continue;
    shape.layout = std::move(layout);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

// Assigns starts from the first shape that contains all instances of the mix.
DeviceConfiguration place_one(const InstanceMix& mix, const std::vector<LayoutShape>& shapes) {
  for (const LayoutShape& shape : shapes) {
    if (shape.layout.size() < mix.size) continue;
    std::vector<bool> taken(shape.layout.size(), false);
    DeviceConfiguration placed;
    for (const UnplacedInstance& instance : mix.instances()) {
      std::size_t at = 0;
      while (at < taken.size() && (taken[at] || shape.profiles[at] != instance.profile)) ++at;
      if (at == taken.size()) break;
      taken[at] = true;
      placed.push_back({shape.layout[at], instance.service});
    }
    if (placed.size() < mix.size) continue;
    std::sort(placed.begin(), placed.end(), [](const PlacedService& a, const PlacedService& b) {
      return a.instance.start < b.instance.start;
    });
    return placed;
  }
  throw std::logic_error("a mix of instances that fits no MIG layout");
}

}  // namespace

void InstanceMix::remove(std::size_t at) {
  for (; at + 1 < size; ++at) items[at] = items[at + 1];
  --size;
}

std::size_t LayoutShape::count(std::uint32_t profile) const {
  return static_cast<std::size_t>(std::count(profiles.begin(), profiles.end(), profile));
}

DeploymentContext::DeploymentContext(const DeploymentTask& task)
    : compute_slices_(task.geometry.compute_slices()), shapes_(shapes_of(task.geometry)) {
  for (const partition::MigProfile& profile : task.geometry.profiles())
    slices_.push_back(profile.slices);
  for (const Service& service : task.services) {
    rate_.insert(rate_.end(), service.rate_on.begin(), service.rate_on.end());
    rate_.resize((need_.size() + 1) * slices_.size(), 0);
    need_.push_back(0);
    double most = 0;
    for (const LayoutShape& shape : shapes_) {
      double sum = 0;
      for (const std::uint32_t profile : shape.profiles) sum += rate(need_.size() - 1, profile);
      most = std::max(most, sum);
    }
    device_rate_.push_back(most);
    if (most > 0) need_.back() = service.need;
  }
}

double DeploymentContext::unmet_after(std::size_t service, double unmet, double served) const {
  unmet -= served;
  return unmet <= need_[service] * kRounding ? 0 : unmet;
}

void DeploymentContext::serve(const InstanceMix& mix, std::vector<double>& unmet) const {
  for (const UnplacedInstance& instance : mix.instances())
    unmet[instance.service] =
        unmet_after(instance.service, unmet[instance.service], rate(instance));
}

Deployment DeploymentContext::place(std::span<const InstanceMix> devices) const {
  Deployment deployment;
  for (const InstanceMix& mix : devices) deployment.devices.push_back(place_one(mix, shapes_));
  return deployment;
}

std::size_t whole_devices_for(double bound) {
  return static_cast<std::size_t>(std::ceil(std::max(0.0, bound - 1e-6)));
}

double rate_of(const PlacedService& placed, const DeploymentTask& task) {
  const auto profiles = task.geometry.profiles();
  for (std::size_t at = 0; at < profiles.size(); ++at) {
    if (profiles[at].slices == placed.instance.slices)
      return task.services[placed.service].rate_on[at];
  }
  return 0;
}

std::vector<double> throughput(const Deployment& deployment, const DeploymentTask& task) {
  std::vector<double> rates(task.services.size(), 0);
  for (const DeviceConfiguration& device : deployment.devices) {
    for (const PlacedService& placed : device) rates[placed.service] += rate_of(placed, task);
  }
  return rates;
}

std::vector<std::string> faults(const Deployment& deployment, const DeploymentTask& task) {
  std::vector<std::string> faults;
  for (std::size_t index = 0; index < deployment.devices.size(); ++index) {
    const std::string where = fmt::format("device {}: ", index);
    const DeviceConfiguration& device = deployment.devices[index];
    if (device.empty()) faults.push_back(where + "no instances");
    partition::MigLayout layout;
    std::string written;
    for (const PlacedService& placed : device) {
      layout.push_back(placed.instance);
      written += " " + to_string(placed.instance);
      if (placed.service >= task.services.size()) {
        faults.push_back(where + to_string(placed.instance) + " runs an unknown service");
        return faults;
      }
      if (rate_of(placed, task) > 0) continue;
      faults.push_back(fmt::format("{}{} does not serve {}", where, to_string(placed.instance),
                                   task.services[placed.service].name));
    }
    if (!task.geometry.legal(layout)) faults.push_back(where + "illegal layout:" + written);
  }
  const std::vector<double> rates = throughput(deployment, task);
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const double need = task.services[service].need;
    if (rates[service] >= need * (1 - kFaultTolerance)) continue;
    faults.push_back(fmt::format("{} has {:f} requests/s of {:f}", task.services[service].name,
                                 rates[service], need));
  }
  return faults;
}

}  // namespace gpulet::schedule::mig
