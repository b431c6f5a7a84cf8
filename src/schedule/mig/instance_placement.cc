// Maps the MIG devices of a plan to real devices, and the instances on each to starts.
#include <algorithm>
#include <compare>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "schedule/plan_output.h"

namespace gpulet::schedule {
namespace {

// An instance without a start: its profile, and a number for the set of its models.
struct InstanceKind {
  std::uint32_t slices = 0;
  std::uint32_t content = 0;

  friend auto operator<=>(const InstanceKind&, const InstanceKind&) = default;
};
using InstanceKinds = std::map<InstanceKind, std::uint32_t>;  // with the number of instances

struct PlacedInstance {
  partition::MigInstance instance;
  std::uint32_t content = 0;

  friend bool operator==(const PlacedInstance&, const PlacedInstance&) = default;
};

// A legal layout of the wanted instances that keeps as many of the running ones as possible. Branch
// and bound over the memory slices from first to last; at each start it tries the running instance
// first. REQUIRES: there is a legal layout.
class Arrangement {
 public:
  Arrangement(const partition::MigGeometry& geometry, const InstanceKinds& wanted,
              const std::vector<PlacedInstance>& running)
      : geometry_(geometry), left_(wanted) {
    for (const PlacedInstance& placed : running)
      running_[placed.instance.start] = {placed.instance.slices, placed.content};
    for (const auto& [kind, count] : wanted) count_ += count;
  }

  std::vector<PlacedInstance> run() {
    place_from(0);
    if (best_.size() != count_)
      throw std::logic_error("the MIG instances of a device have no legal layout");
    return std::move(best_);
  }

 private:
  [[nodiscard]] bool runs_at(const InstanceKind& kind, std::uint32_t start) const {
    const auto there = running_.find(start);
    return there != running_.end() && there->second == kind;
  }

  // An upper bound on the running instances that the rest of the layout can keep.
  [[nodiscard]] std::size_t keepable(std::uint32_t start) const {
    InstanceKinds there;
    for (auto at = running_.lower_bound(start); at != running_.end(); ++at) ++there[at->second];
    std::size_t kept = 0;
    for (const auto& [kind, count] : left_) {
      const auto found = there.find(kind);
      if (found != there.end()) kept += std::min(count, found->second);
    }
    return kept;
  }

  void place_from(std::uint32_t start) {
    if (found_ && kept_ + keepable(start) <= best_kept_) return;
    if (placed_.size() == count_) {
      best_ = placed_;
      best_kept_ = kept_;
      found_ = true;
      return;
    }
    if (start >= geometry_.memory_slices()) return;
    for (const InstanceKind& kind : kinds_to_try(start)) try_at(start, kind);
    place_from(start + 1);
  }

  [[nodiscard]] std::vector<InstanceKind> kinds_to_try(std::uint32_t start) const {
    std::vector<InstanceKind> kinds;
    for (const auto& [kind, count] : left_) {
      if (count > 0 && geometry_.exists({kind.slices, start})) kinds.push_back(kind);
    }
    std::stable_partition(kinds.begin(), kinds.end(),
                          [&](const InstanceKind& kind) { return runs_at(kind, start); });
    return kinds;
  }

  void try_at(std::uint32_t start, const InstanceKind& kind) {
    const std::size_t keeps = runs_at(kind, start) ? 1 : 0;
    --left_[kind];
    placed_.push_back({{kind.slices, start}, kind.content});
    kept_ += keeps;
    place_from(start + geometry_.find(kind.slices)->memory_slices);
    kept_ -= keeps;
    placed_.pop_back();
    ++left_[kind];
  }

  const partition::MigGeometry& geometry_;
  InstanceKinds left_;
  std::map<std::uint32_t, InstanceKind> running_;  // by start
  std::size_t count_ = 0;
  std::vector<PlacedInstance> placed_;
  std::size_t kept_ = 0;
  std::vector<PlacedInstance> best_;
  std::size_t best_kept_ = 0;
  bool found_ = false;
};

// The slices of the wanted instances that already run somewhere on the device.
std::uint32_t overlap(const InstanceKinds& wanted, const InstanceKinds& running) {
  std::uint32_t slices = 0;
  for (const auto& [kind, count] : wanted) {
    const auto there = running.find(kind);
    if (there != running.end()) slices += kind.slices * std::min(count, there->second);
  }
  return slices;
}

// Assigns a device to each set of wanted instances, the largest overlaps first. Sets without
// overlap get idle devices first, because other devices have to remove their instances before.
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
  InstancePlacement(const PlanBuilder& builder, std::vector<std::uint32_t>* real)
      : builder_(builder),
        context_(builder.context()),
        real_(real),
        place_(builder.gpulets().size()) {}

  std::vector<std::optional<partition::MigInstance>> run() {
    for (std::size_t index = 0; index < context_.classes().size(); ++index) {
      if (context_.classes()[index].example->mig) place_class(index);
    }
    return std::move(place_);
  }

 private:
  // A number for the set of models.
  std::uint32_t content_of(std::vector<std::string> models) {
    std::sort(models.begin(), models.end());
    return contents_.emplace(std::move(models), static_cast<std::uint32_t>(contents_.size()))
        .first->second;
  }

  InstanceKind kind_of(const BuilderGpulet& gpulet) {
    const DeviceClass& known = builder_.class_of(gpulet.device);
    std::vector<std::string> models;
    for (const BatchSlot& slot : gpulet.slots)
      models.push_back(context_.models()[slot.model]->name);
    return {known.example->mig->profiles()[gpulet.size].slices, content_of(std::move(models))};
  }

  void place_class(std::size_t index) {
    const DeviceClass& known = context_.classes()[index];
    std::vector<std::uint32_t> devices;
    std::map<std::uint32_t, std::vector<std::size_t>> gpulets;  // by builder device
    for (std::size_t at = 0; at < builder_.gpulets().size(); ++at) {
      const BuilderGpulet& gpulet = builder_.gpulets()[at];
      if (gpulet.slots.empty() || builder_.devices()[gpulet.device].device_class != index) continue;
      gpulets[gpulet.device].push_back(at);
    }
    std::vector<InstanceKinds> wanted;
    for (const auto& [device, of_device] : gpulets) {
      devices.push_back(device);
      InstanceKinds& kinds = wanted.emplace_back();
      for (const std::size_t at : of_device) ++kinds[kind_of(builder_.gpulets()[at])];
    }
    const std::vector<std::vector<PlacedInstance>> running = running_on(known);
    std::vector<InstanceKinds> there(running.size());
    for (std::size_t device = 0; device < running.size(); ++device) {
      for (const PlacedInstance& one : running[device])
        ++there[device][{one.instance.slices, one.content}];
    }
    const std::vector<std::size_t> device_of = choose_devices(wanted, there);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      (*real_)[devices[at]] = known.devices[device_of[at]];
      assign(gpulets[devices[at]],
             Arrangement(*known.example->mig, wanted[at], running[device_of[at]]).run());
    }
  }

  void assign(const std::vector<std::size_t>& gpulets, std::vector<PlacedInstance> instances) {
    for (const std::size_t at : gpulets) {
      const InstanceKind kind = kind_of(builder_.gpulets()[at]);
      const auto its =
          std::find_if(instances.begin(), instances.end(), [&](const PlacedInstance& one) {
            return one.instance.slices == kind.slices && one.content == kind.content;
          });
      place_[at] = its->instance;
      instances.erase(its);
    }
  }

  // The running instances, indexed like the devices of the class.
  std::vector<std::vector<PlacedInstance>> running_on(const DeviceClass& known) {
    std::vector<std::vector<PlacedInstance>> running(known.devices.size());
    if (context_.input().current == nullptr) return running;
    std::map<DeviceKey, std::size_t> device_of;
    for (std::size_t at = 0; at < known.devices.size(); ++at)
      device_of[context_.devices()[known.devices[at]]->key] = at;
    for (const PlannedGpulet& gpulet : context_.input().current->gpulets) {
      const auto device = device_of.find(gpulet.device);
      if (device == device_of.end() || !gpulet.instance) continue;
      std::vector<std::string> models;
      for (const Assignment& one : gpulet.assignments) models.push_back(one.model);
      const PlacedInstance placed{*gpulet.instance, content_of(std::move(models))};
      std::vector<PlacedInstance>& there = running[device->second];
      // Several processes may share an instance.
      if (std::find(there.begin(), there.end(), placed) == there.end()) there.push_back(placed);
    }
    return running;
  }

  const PlanBuilder& builder_;
  const PlanContext& context_;
  std::vector<std::uint32_t>* real_;
  std::vector<std::optional<partition::MigInstance>> place_;
  std::map<std::vector<std::string>, std::uint32_t> contents_;
};

}  // namespace

std::vector<std::optional<partition::MigInstance>> place_instances(
    const PlanBuilder& builder, std::vector<std::uint32_t>* real) {
  return InstancePlacement(builder, real).run();
}

}  // namespace gpulet::schedule
