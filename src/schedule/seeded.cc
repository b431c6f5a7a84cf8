#include "schedule/seeded.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace gpulet::schedule {
namespace {

class Seeding {
 public:
  Seeding(Problem& problem, const std::optional<DeviceKey>& cleared)
      : problem_(problem), cleared_(cleared), draft_(problem) {
    for (std::size_t model = 0; model < problem.models().size(); ++model)
      model_by_name_[problem.models()[model]->name] = model;
    for (std::size_t index = 0; index < problem.classes().size(); ++index) {
      for (const std::uint32_t device : problem.classes()[index].devices)
        class_by_key_[problem.devices()[device]->key] = index;
    }
  }

  Draft run() {
    for (const Device& device : busiest_first()) seed(device);
    // What they serve already, they may serve more of.
    for (const auto& [gpulet, model] : served_) {
      if (draft_.left(model) <= 0) continue;
      const double most = draft_.most_rate(gpulet, model);
      if (most > 0) draft_.add(gpulet, model, std::min(most, draft_.left(model)));
    }
    return std::move(draft_);
  }

 private:
  using Gpulets = std::vector<const PlannedGpulet*>;
  struct Device {
    std::size_t device_class = 0;
    double busy = 0;  // share times the part of its rounds that is filled
    Gpulets gpulets;
  };

  [[nodiscard]] std::vector<Device> busiest_first() const {
    std::map<DeviceKey, Device> by_key;
    for (const PlannedGpulet& gpulet : problem_.input().current->gpulets) {
      const auto known = class_by_key_.find(gpulet.device);
      if (known == class_by_key_.end() || gpulet.device == cleared_) continue;
      Device& device = by_key[gpulet.device];
      device.device_class = known->second;
      device.gpulets.push_back(&gpulet);
      for (const Assignment& one : gpulet.assignments)
        device.busy += gpulet.size.percent * one.latency_ms / gpulet.duty_cycle_ms;
    }
    std::vector<Device> devices;
    devices.reserve(by_key.size());
    for (auto& [key, device] : by_key) devices.push_back(std::move(device));
    std::stable_sort(devices.begin(), devices.end(),
                     [](const Device& a, const Device& b) { return a.busy > b.busy; });
    return devices;
  }

  void seed(const Device& device) {
    std::optional<std::uint32_t> host;
    for (const PlannedGpulet* gpulet : device.gpulets) {
      const std::vector<int>& sizes = problem_.classes()[device.device_class].sizes;
      const auto found = std::lower_bound(sizes.begin(), sizes.end(), gpulet->size.percent);
      if (found == sizes.end() || *found != gpulet->size.percent) continue;
      seed(*gpulet, device.device_class, static_cast<std::uint32_t>(found - sizes.begin()), &host);
    }
  }

  void seed(const PlannedGpulet& gpulet, std::size_t device_class, std::uint32_t size,
            std::optional<std::uint32_t>* host) {
    std::optional<std::size_t> made;
    for (const Assignment& one : gpulet.assignments) {
      const auto known = model_by_name_.find(one.model);
      if (known == model_by_name_.end()) continue;
      const std::size_t model = known->second;
      double rate = std::min(one.rate, draft_.left(model));
      if (rate <= 0) continue;
      if (!made) {
        rate = std::min(rate, most_of_new(model, device_class, size, *host));
        if (rate <= 0) continue;
        if (!*host) *host = draft_.open(device_class);
        made = draft_.add_gpulet(**host, size, model, rate);
      } else {
        if (!draft_.fits(*made, model, rate)) rate = draft_.most_rate(*made, model);
        if (rate <= 0) continue;
        draft_.add(*made, model, rate);
      }
      served_.emplace_back(*made, model);
    }
  }

  [[nodiscard]] double most_of_new(std::size_t model, std::size_t device_class, std::uint32_t size,
                                   const std::optional<std::uint32_t>& host) {
    if (host) return draft_.most_rate_of_new(*host, size, model);
    if (!draft_.can_open(device_class) || !draft_.memory_fits_empty(model, device_class)) return 0;
    return problem_.row(model, device_class, size).most_rate;
  }

  Problem& problem_;
  const std::optional<DeviceKey>& cleared_;
  Draft draft_;
  std::map<std::string_view, std::size_t> model_by_name_;
  std::map<DeviceKey, std::size_t> class_by_key_;
  std::vector<std::pair<std::size_t, std::size_t>> served_;  // gpulet and model
};

}  // namespace

Draft seeded_with_current(Problem& problem, const std::optional<DeviceKey>& cleared) {
  return Seeding(problem, cleared).run();
}

}  // namespace gpulet::schedule
