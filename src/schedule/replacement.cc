#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "gpulet/schedule/reconcile.h"
#include "schedule/device_room.h"

namespace gpulet::schedule {
namespace {

using DeviceProcesses = std::vector<DeviceProcess>;

std::vector<std::string> model_names(const PlannedGpulet& planned) {
  std::vector<std::string> models;
  for (const Assignment& one : planned.assignments) models.push_back(one.model);
  return models;
}

bool shares_a_model(const DeviceProcess& process, const PlannedGpulet& planned) {
  return std::any_of(planned.assignments.begin(), planned.assignments.end(), [&](const auto& one) {
    return std::find(process.models.begin(), process.models.end(), one.model) !=
           process.models.end();
  });
}

class Replacing {
 public:
  Replacing(const Device& device, const profile::Profile* profile)
      : device_(device), profile_(profile) {}

  [[nodiscard]] bool fits(const DeviceProcesses& there, const PlannedGpulet& planned) const {
    if (device_.memory_mb > 0) {
      double sum_mb = memory_mb(model_names(planned));
      for (const DeviceProcess& one : there) sum_mb += memory_mb(one.models);
      if (sum_mb > device_.memory_mb) return false;
    }
    if (!device_.mig || !planned.instance) return true;
    std::size_t inside = 0;
    for (const DeviceProcess& one : there) {
      if (!one.instance) continue;
      if (*one.instance == *planned.instance) {
        ++inside;
      } else if (!device_.mig->compatible(*one.instance, *planned.instance)) {
        return false;
      }
    }
    return inside < device_.processes_per_instance;
  }

  // The old gpulets that have to end for that one; all of them where that does not suffice either.
  [[nodiscard]] std::vector<GpuletId> to_end(DeviceProcesses there,
                                             const PlannedGpulet& planned) const {
    std::stable_sort(there.begin(), there.end(), [&](const auto& a, const auto& b) {
      const auto rank = [&](const DeviceProcess& one) {
        return std::pair(!shares_a_model(one, planned), -memory_mb(one.models));
      };
      return rank(a) < rank(b);
    });
    std::vector<GpuletId> ended;
    while (!fits(there, planned)) {
      const auto old = std::find_if(there.begin(), there.end(), [&](const DeviceProcess& one) {
        return !one.planned && ends_usefully(there, one, planned);
      });
      if (old == there.end()) break;
      ended.push_back(old->id);
      there.erase(old);
    }
    std::sort(ended.begin(), ended.end());
    return ended;
  }

 private:
  [[nodiscard]] double memory_mb(const std::vector<std::string>& models) const {
    return std::accumulate(models.begin(), models.end(), 0.0,
                           [this](double sum_mb, const std::string& model) {
                             return sum_mb + model_memory_mb(profile_, model);
                           });
  }

  // Its end brings the gpulet nearer to its place.
  [[nodiscard]] bool ends_usefully(const DeviceProcesses& there, const DeviceProcess& old,
                                   const PlannedGpulet& planned) const {
    if (device_.mig && planned.instance && old.instance) {
      const bool in_the_way = *old.instance == *planned.instance ||
                              !device_.mig->compatible(*old.instance, *planned.instance);
      if (in_the_way) return true;
    }
    double sum_mb = memory_mb(model_names(planned));
    for (const DeviceProcess& one : there) sum_mb += memory_mb(one.models);
    return device_.memory_mb > 0 && sum_mb > device_.memory_mb && memory_mb(old.models) > 0;
  }

  const Device& device_;
  const profile::Profile* profile_;
};

bool has_old_process(const DeviceProcesses& there) {
  return std::any_of(there.begin(), there.end(),
                     [](const DeviceProcess& one) { return !one.planned; });
}

}  // namespace

Starts next_starts(const Device& device, const profile::Profile* profile,
                   const std::vector<DeviceProcess>& there,
                   const std::vector<const PlannedGpulet*>& waiting) {
  const Replacing replacing(device, profile);
  Starts starts;
  DeviceProcesses filled = there;
  for (std::size_t at = 0; at < waiting.size(); ++at) {
    if (!replacing.fits(filled, *waiting[at])) continue;
    starts.start.push_back(at);
    filled.push_back({{}, model_names(*waiting[at]), waiting[at]->instance, true, false});
  }
  const bool unsettled = std::any_of(there.begin(), there.end(),
                                     [](const DeviceProcess& one) { return !one.settled; });
  if (!starts.start.empty() || unsettled || waiting.empty()) return starts;
  if (!has_old_process(there)) {
    starts.start.push_back(0);
    return starts;
  }
  for (std::size_t at = 0; at < waiting.size(); ++at) {
    std::vector<GpuletId> end = replacing.to_end(there, *waiting[at]);
    if (at > 0 && end.size() >= starts.end.size()) continue;
    starts.end = std::move(end);
    starts.next = at;
  }
  if (starts.end.empty()) starts.start.push_back(starts.next);  // no end would help it
  return starts;
}

std::vector<Outage> expected_outages(const Device& device, const profile::Profile* profile,
                                     std::vector<DeviceProcess> there,
                                     std::vector<const PlannedGpulet*> waiting) {
  std::erase_if(there, [](const DeviceProcess& one) { return !one.planned && !one.settled; });
  for (DeviceProcess& one : there) one.settled = true;
  std::vector<std::size_t> index(waiting.size());
  std::iota(index.begin(), index.end(), 0);
  std::vector<Outage> outages;
  while (!waiting.empty()) {
    const Starts starts = next_starts(device, profile, there, waiting);
    if (!starts.end.empty()) {
      outages.push_back({starts.end, index[starts.next]});
      std::erase_if(there, [&](const DeviceProcess& one) {
        return std::binary_search(starts.end.begin(), starts.end.end(), one.id);
      });
      continue;
    }
    for (auto at = starts.start.rbegin(); at != starts.start.rend(); ++at) {
      const auto offset = static_cast<std::ptrdiff_t>(*at);
      there.push_back({{}, model_names(*waiting[*at]), waiting[*at]->instance, true, true});
      waiting.erase(waiting.begin() + offset);
      index.erase(index.begin() + offset);
    }
    std::set<std::string> missing;  // models of the waiting gpulets
    for (const PlannedGpulet* const one : waiting) {
      for (const Assignment& assignment : one->assignments) missing.insert(assignment.model);
    }
    std::erase_if(there, [&missing](const DeviceProcess& one) {
      return !one.planned &&
             std::none_of(one.models.begin(), one.models.end(),
                          [&](const auto& model) { return missing.contains(model); });
    });
  }
  return outages;
}

}  // namespace gpulet::schedule
