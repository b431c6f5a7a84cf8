#include "schedule/mig/mig_placing.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "schedule/mig/arrangement.h"

namespace gpulet::schedule {
namespace {

// How many slices of what is wanted run already, wherever on the device.
std::uint32_t overlap(const InstanceKinds& wanted, const InstanceKinds& running) {
  std::uint32_t slices = 0;
  for (const auto& [kind, count] : wanted) {
    const auto there = running.find(kind);
    if (there != running.end()) slices += kind.slices * std::min(count, there->second);
  }
  return slices;
}

// A device for each of the wanted: the one with the largest overlap; without any, an empty one
// before one whose instances would have to go first.
std::vector<std::size_t> choose_devices(const std::vector<InstanceKinds>& wanted,
                                        const std::vector<InstanceKinds>& running) {
  struct Pair {
    std::uint32_t slices;
    std::size_t device, index;
  };
  std::vector<Pair> pairs;
  for (std::size_t device = 0; device < running.size(); ++device) {
    if (running[device].empty()) continue;
    for (std::size_t index = 0; index < wanted.size(); ++index) {
      const std::uint32_t slices = overlap(wanted[index], running[device]);
      if (slices > 0) pairs.push_back({slices, device, index});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.slices > b.slices; });
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> device_of(wanted.size(), kNone);
  std::vector<bool> taken(running.size(), false);
  for (const Pair& pair : pairs) {
    if (taken[pair.device] || device_of[pair.index] != kNone) continue;
    device_of[pair.index] = pair.device;
    taken[pair.device] = true;
  }
  std::vector<std::size_t> rest;
  for (std::size_t device = 0; device < running.size(); ++device) {
    if (!taken[device]) rest.push_back(device);
  }
  std::stable_partition(rest.begin(), rest.end(),
                        [&](std::size_t device) { return running[device].empty(); });
  std::size_t next = 0;
  for (std::size_t& device : device_of) {
    if (device == kNone) device = rest[next++];
  }
  return device_of;
}

class InstancePlacement {
 public:
  InstancePlacement(const Draft& draft, std::vector<std::uint32_t>* real)
      : draft_(draft), problem_(draft.problem()), real_(real), place_(draft.gpulets().size()) {}

  std::vector<std::optional<partition::MigInstance>> run() {
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      if (problem_.classes()[index].example->mig) place_class(index);
    }
    return std::move(place_);
  }

 private:
  // Models of a gpulet by name, as a number.
  std::uint32_t content_of(std::vector<std::string> models) {
    std::sort(models.begin(), models.end());
    return contents_.emplace(std::move(models), static_cast<std::uint32_t>(contents_.size()))
        .first->second;
  }

  InstanceKind kind_of(const DraftGpulet& gpulet) {
    const DeviceClass& known = draft_.class_of(gpulet.device);
    std::vector<std::string> models;
    for (const Turn& turn : gpulet.turns) models.push_back(problem_.models()[turn.model]->name);
    return {known.example->mig->profiles()[gpulet.size].slices, content_of(std::move(models))};
  }

  void place_class(std::size_t index) {
    const DeviceClass& known = problem_.classes()[index];
    // The draft's devices of the class, with what each wants.
    std::vector<std::uint32_t> drafted;
    std::map<std::uint32_t, std::vector<std::size_t>> gpulets;  // by the draft's device
    for (std::size_t at = 0; at < draft_.gpulets().size(); ++at) {
      const DraftGpulet& gpulet = draft_.gpulets()[at];
      if (gpulet.turns.empty() || draft_.devices()[gpulet.device].device_class != index) continue;
      gpulets[gpulet.device].push_back(at);
    }
    std::vector<InstanceKinds> wanted;
    for (const auto& [device, of_device] : gpulets) {
      drafted.push_back(device);
      InstanceKinds& kinds = wanted.emplace_back();
      for (const std::size_t at : of_device) ++kinds[kind_of(draft_.gpulets()[at])];
    }
    const std::vector<std::vector<PlacedInstance>> running = running_on(known);
    std::vector<InstanceKinds> there(running.size());
    for (std::size_t device = 0; device < running.size(); ++device) {
      for (const PlacedInstance& one : running[device])
        ++there[device][{one.instance.slices, one.content}];
    }
    const std::vector<std::size_t> device_of = choose_devices(wanted, there);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      (*real_)[drafted[at]] = known.devices[device_of[at]];
      give(gpulets[drafted[at]], arrange(*known.example->mig, wanted[at], running[device_of[at]]));
    }
  }

  void give(const std::vector<std::size_t>& gpulets, std::vector<PlacedInstance> instances) {
    for (const std::size_t at : gpulets) {
      const InstanceKind kind = kind_of(draft_.gpulets()[at]);
      const auto its =
          std::find_if(instances.begin(), instances.end(), [&](const PlacedInstance& one) {
            return one.instance.slices == kind.slices && one.content == kind.content;
          });
      place_[at] = its->instance;
      instances.erase(its);
    }
  }

  // Beside the class's devices.
  std::vector<std::vector<PlacedInstance>> running_on(const DeviceClass& known) {
    std::vector<std::vector<PlacedInstance>> running(known.devices.size());
    if (problem_.input().current == nullptr) return running;
    std::map<DeviceKey, std::size_t> device_of;
    for (std::size_t at = 0; at < known.devices.size(); ++at)
      device_of[problem_.devices()[known.devices[at]]->key] = at;
    for (const PlannedGpulet& gpulet : problem_.input().current->gpulets) {
      const auto device = device_of.find(gpulet.device);
      if (device == device_of.end() || !gpulet.instance) continue;
      std::vector<std::string> models;
      for (const Assignment& one : gpulet.assignments) models.push_back(one.model);
      const PlacedInstance placed{*gpulet.instance, content_of(std::move(models))};
      std::vector<PlacedInstance>& there = running[device->second];
      // Processes that share an instance are one.
      if (std::find(there.begin(), there.end(), placed) == there.end()) there.push_back(placed);
    }
    return running;
  }

  const Draft& draft_;
  const Problem& problem_;
  std::vector<std::uint32_t>* real_;
  std::vector<std::optional<partition::MigInstance>> place_;
  std::map<std::vector<std::string>, std::uint32_t> contents_;
};

}  // namespace

std::vector<std::optional<partition::MigInstance>> place_instances(
    const Draft& draft, std::vector<std::uint32_t>* real) {
  return InstancePlacement(draft, real).run();
}

}  // namespace gpulet::schedule
