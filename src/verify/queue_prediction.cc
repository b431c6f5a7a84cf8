#include "verify/queue_prediction.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "verify/batch_times.h"

namespace gpulet::verify {

using schedule::Assignment;
using schedule::Cluster;
using schedule::Device;
using schedule::DeviceKey;
using schedule::Plan;
using schedule::PlanInput;
using schedule::PlannedGpulet;

namespace {

// Of the model, and of all that share gpulets or devices with it.
constexpr double kMostRequestsOfModel = 90'000;
constexpr double kMostRequests = 400'000;
// In a gpulet. With more, what a request costs to simulate and how many requests a round takes grow
// too far.
constexpr std::size_t kMostModels = 64;
constexpr std::uint64_t kSeed = 1;

// What a slot of SharedQueues stands for.
struct Place {
  const Assignment* assignment = nullptr;
  Share size;
  const profile::InterferenceModel* interference = nullptr;  // null: neighbours slow nobody down
};

// Slowdowns of batches by each other, each looked up once.
class Slowdowns {
 public:
  explicit Slowdowns(const std::vector<std::vector<Place>>& places) : places_(places) {}

  double operator()(const RunningBatch& self, const RunningBatch& other) {
    const Place& place = place_of(self);
    if (place.interference == nullptr) return 1;
    const auto [found, added] = known_.try_emplace({key_of(self), key_of(other)}, 1.0);
    if (added) found->second = place.interference->slowdown(traits_of(self), traits_of(other));
    return found->second;
  }

 private:
  using Key = std::tuple<std::size_t, std::size_t, std::uint32_t>;

  static Key key_of(const RunningBatch& batch) { return {batch.gpulet, batch.slot, batch.count}; }
  [[nodiscard]] const Place& place_of(const RunningBatch& batch) const {
    return places_[batch.gpulet][batch.slot];
  }
  [[nodiscard]] profile::BatchTraits traits_of(const RunningBatch& batch) const {
    const Place& place = place_of(batch);
    return place.interference->traits(place.assignment->model, batch.count, place.size);
  }

  const std::vector<std::vector<Place>>& places_;  // by gpulet and slot
  std::map<std::pair<Key, Key>, double> known_;
};

const Device* device_of(const Cluster& cluster, const DeviceKey& key) {
  const auto found = std::lower_bound(
      cluster.devices.begin(), cluster.devices.end(), key,
      [](const Device& device, const DeviceKey& wanted) { return device.key < wanted; });
  return found != cluster.devices.end() && found->key == key ? &*found : nullptr;
}

const profile::InterferenceModel* interference_on(const Device& device, const PlanInput& input) {
  if (input.interference == nullptr || device.mig) return nullptr;  // MIG isolates instances
  const auto found = input.interference->find(device.type);
  return found == input.interference->end() ? nullptr : &found->second;
}

constexpr std::size_t kMostDevices = 4;

// Adds devices of the model while there is room.
void add_devices_of(const Plan& plan, std::string_view model, std::set<DeviceKey>& devices) {
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (devices.size() == kMostDevices) return;
    const bool serves_it =
        std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                    [model](const auto& one) { return one.model == model && one.rate > 0; });
    if (serves_it) devices.insert(gpulet.device);
  }
}

// Models that the device serves less of than other devices do: what they cannot serve in time
// comes here, far more than the plan says.
std::set<std::string_view> visitors_of(const Plan& plan, const DeviceKey& device) {
  struct Rates {
    double here = 0;
    double elsewhere = 0;
  };
  std::map<std::string_view, Rates> rates;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.device != device) continue;
    for (const Assignment& one : gpulet.assignments) rates[one.model].here += one.rate;
  }
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.device == device) continue;
    for (const Assignment& one : gpulet.assignments) {
      const auto known = rates.find(one.model);
      if (known != rates.end()) known->second.elsewhere += one.rate;
    }
  }
  std::set<std::string_view> visitors;
  for (const auto& [model, rate] : rates) {
    if (rate.elsewhere > rate.here) visitors.insert(model);
  }
  return visitors;
}

}  // namespace

std::vector<const PlannedGpulet*> gpulets_around(const Plan& plan, std::string_view model,
                                                 const DeviceKey& device) {
  std::set<DeviceKey> devices{device};
  add_devices_of(plan, model, devices);
  for (const std::string_view visitor : visitors_of(plan, device))
    add_devices_of(plan, visitor, devices);
  std::vector<const PlannedGpulet*> gpulets;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (devices.contains(gpulet.device)) gpulets.push_back(&gpulet);
  }
  return gpulets;
}

namespace {

// The part of a plan that a model's queue depends on.
class PartOfPlan {
 public:
  PartOfPlan(const Plan& plan, const PlanInput& input) : plan_(plan), input_(input) {}

  // Returns false where the gpulet cannot be simulated.
  [[nodiscard]] bool add(const PlannedGpulet& gpulet) {
    const Device* const device = device_of(input_.cluster, gpulet.device);
    if (device == nullptr || gpulet.service != schedule::Service::rounds) return false;
    if (gpulet.assignments.size() > kMostModels) return false;
    const auto profile = input_.profiles->find(device->type);
    if (profile == input_.profiles->end() || schedule::processes_beside(plan_.gpulets, gpulet) > 1)
      return false;
    SharedGpulet shared;
    shared.device = devices_.try_emplace(gpulet.device, devices_.size()).first->second;
    shared.duty_cycle = from_ms(gpulet.duty_cycle_ms);
    std::vector<Place> places;
    for (const Assignment& assignment : gpulet.assignments) {
      if (!(assignment.rate > 0)) continue;
      auto times = batch_times(assignment, gpulet.size, 1, input_.options.margin, profile->second);
      if (!times) return false;
      shared.slots.push_back(slot_of(assignment, *std::move(times)));
      places.push_back({&assignment, gpulet.size, interference_on(*device, input_)});
    }
    if (shared.slots.empty()) return true;
    queues_.gpulets.push_back(std::move(shared));
    places_.push_back(std::move(places));
    return true;
  }

  // Empty for a model without a rate.
  [[nodiscard]] SimulatedViolations late(const std::vector<AskedModel>& models,
                                         const SimulationLength& length) {
    std::vector<AskedQueue> asked;
    std::vector<std::size_t> positions;  // in `models`, parallel to `asked`
    for (std::size_t at = 0; at < models.size(); ++at) {
      const auto number = numbers_.find(models[at].name);
      if (number == numbers_.end()) continue;
      asked.push_back(
          {number->second, requests_for(number->second, length.effort), models[at].expected});
      positions.push_back(at);
    }
    Slowdowns slowdowns(places_);
    const bool slows = std::any_of(places_.begin(), places_.end(), [](const auto& places) {
      return places.front().interference != nullptr;
    });
    if (slows) queues_.slowdown = std::ref(slowdowns);
    const LateParts known = simulate_late(queues_, asked, kSeed, length.limit);
    queues_.slowdown = nullptr;
    SimulatedViolations simulated{{}, known.requests};
    simulated.late.resize(models.size());
    for (std::size_t at = 0; at < positions.size(); ++at)
      simulated.late[positions[at]] = known.parts[at];
    return simulated;
  }

 private:
  // Of all models, for so many of that queue's that the part of late ones is known.
  [[nodiscard]] std::size_t requests_for(std::size_t queue, double effort) const {
    double rate = 0;
    for (const SharedQueue& one : queues_.queues) rate += one.rate;
    return static_cast<std::size_t>(
        effort * std::min(kMostRequestsOfModel * rate / queues_.queues[queue].rate, kMostRequests));
  }

  SharedSlot slot_of(const Assignment& assignment, BatchTimes times) {
    const auto [number, added] = numbers_.try_emplace(assignment.model, queues_.queues.size());
    if (added) queues_.queues.push_back({0, from_ms(assignment.slo_ms)});
    queues_.queues[number->second].rate += assignment.rate;
    SharedSlot slot{
        number->second, assignment.rate, {}, std::move(times.alone_ms), std::move(times.cv)};
    for (const double ms : times.expected_ms) slot.execution.push_back(from_ms(ms));
    return slot;
  }

  const Plan& plan_;
  const PlanInput& input_;
  SharedQueues queues_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // of the queues, by model
  std::map<DeviceKey, std::size_t> devices_;                 // numbered
  std::vector<std::vector<Place>> places_;                   // parallel to the gpulets and slots
};

}  // namespace

SimulatedViolations simulate_violations(const Plan& plan, const PlanInput& input,
                                        const std::vector<const PlannedGpulet*>& gpulets,
                                        const std::vector<AskedModel>& models,
                                        const SimulationLength& length) {
  PartOfPlan part(plan, input);
  for (const PlannedGpulet* gpulet : gpulets) {
    if (!part.add(*gpulet)) return {std::vector<std::optional<LatePart>>(models.size()), 0};
  }
  return part.late(models, length);
}

}  // namespace gpulet::verify
