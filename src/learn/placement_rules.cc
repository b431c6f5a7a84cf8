#include "gpulet/learn/placement_rules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace gpulet::learn {
namespace {

using schedule::Device;
using schedule::ModelDemand;
using schedule::Plan;
using schedule::PlanInput;

constexpr double kMoreThanAnyPlaceHolds = 1e6;  // requests per second
constexpr double kRounding = 1e-6;              // of a rate as a float

// Of the model loaded on that device, where it was measured; else 0.
double memory_mb(const PlanInput& input, const Device& device, const std::string& model) {
  const auto profile = input.profiles->find(device.type);
  if (profile == input.profiles->end()) return 0;
  const profile::ModelProfile* const measured = profile->second.find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

double memory_of_all_mb(const PlacementTask& task, const PlanInput& input, const Device& device) {
  double sum_mb = 0;
  for (const TaskModel& model : task.models) sum_mb += memory_mb(input, device, model.name);
  return sum_mb;
}

float used_memory(const PlacementTask& task, const PlanInput& input, const Device& device) {
  if (input.current == nullptr) return 0;
  double used_mb = 0;
  for (const schedule::PlannedGpulet& gpulet : input.current->gpulets) {
    if (gpulet.device != device.key) continue;
    for (const schedule::Assignment& one : gpulet.assignments)
      used_mb += memory_mb(input, device, one.model);
  }
  const double whole_mb =
      device.memory_mb > 0 ? device.memory_mb : memory_of_all_mb(task, input, device);
  return whole_mb > 0 ? static_cast<float>(used_mb / whole_mb) : 0;
}

}  // namespace

std::vector<float> observe(const PlacementTask& task, const PlanInput& input) {
  std::vector<float> seen;
  seen.reserve(task.observation_size());
  for (const Device& device : task.devices) seen.push_back(used_memory(task, input, device));
  for (const TaskModel& model : task.models) {
    const auto demand =
        std::find_if(input.demands.begin(), input.demands.end(),
                     [&](const ModelDemand& one) { return one.name == model.name; });
    const bool asked = demand != input.demands.end();
    const double within_slo = std::max(1.0, model.highest_rate * model.slo_ms / 1000);
    seen.push_back(asked ? static_cast<float>(demand->rate / model.highest_rate) : 0);
    seen.push_back(asked ? static_cast<float>(demand->queued / within_slo) : 0);
  }
  return seen;
}

// What the choices made so far leave.
struct PlacementRules::Room {
  std::vector<int> percent;
  std::vector<std::uint32_t> partitions;
  std::vector<double> memory_mb;
  std::uint32_t devices = 0;  // in use
};

PlacementRules::PlacementRules(const PlacementTask& task, const PlanInput& input)
    : task_(task),
      input_(input),
      device_of_(task.devices.size()),
      demand_of_(task.models.size()),
      memory_mb_(task.devices.size()),
      head_sizes_(task.models.size(), task.places()) {
  for (std::size_t device = 0; device < task.devices.size(); ++device) {
    for (const Share size : task.devices[device].sizes) places_.push_back({device, size});
    for (const TaskModel& model : task.models)
      memory_mb_[device].push_back(memory_mb(input, task.devices[device], model.name));
    const std::vector<Device>& there = input.cluster.devices;
    const auto found = std::find_if(there.begin(), there.end(), [&](const Device& one) {
      return one.key == task.devices[device].key;
    });
    if (found != there.end())
      device_of_[device] = static_cast<std::uint32_t>(found - there.begin());
  }
  for (std::size_t model = 0; model < task.models.size(); ++model) {
    const auto found =
        std::find_if(input.demands.begin(), input.demands.end(),
                     [&](const ModelDemand& one) { return one.name == task.models[model].name; });
    if (found != input.demands.end() && found->rate > 0)
      demand_of_[model] = static_cast<std::uint32_t>(found - input.demands.begin());
  }
  measure_capacities();
}

void PlacementRules::measure_capacities() {
  PlanInput alone = input_;
  alone.current = nullptr;
  alone.options.max_devices.reset();
  for (ModelDemand& demand : alone.demands) demand.rate = kMoreThanAnyPlaceHolds;
  schedule::BatchSearch search(alone);
  capacities_.assign(task_.models.size() * places_.size(), 0);
  for (std::size_t model = 0; model < task_.models.size(); ++model) {
    if (!demand_of_[model]) continue;
    std::map<std::pair<std::string_view, Share>, double> known;  // by type and size of the place
    for (std::size_t at = 0; at < places_.size(); ++at) {
      const auto& [device, size] = places_[at];
      if (!device_of_[device]) continue;
      const auto [entry, is_new] = known.try_emplace({task_.devices[device].type, size}, 0);
      if (is_new) {
        const schedule::ModelPlace place{*demand_of_[model], *device_of_[device], size};
        const Plan plan = search.decide({&place, 1});
        if (!plan.gpulets.empty()) entry->second = plan.gpulets[0].assignments[0].rate;
      }
      capacities_[model * places_.size() + at] = entry->second;
    }
  }
}

PlacementRules::Room PlacementRules::room_after(std::span<const std::uint32_t> chosen) const {
  Room room;
  for (const Device& device : task_.devices) {
    room.percent.push_back(kWholeDevice.percent);
    room.partitions.push_back(device.max_partitions);
    room.memory_mb.push_back(device.memory_mb > 0 ? device.memory_mb
                                                  : std::numeric_limits<double>::infinity());
  }
  for (std::size_t model = 0; model < chosen.size(); ++model) {
    if (chosen[model] > 0) take(room, model, chosen[model] - 1);
  }
  return room;
}

void PlacementRules::take(Room& room, std::size_t model, std::size_t place) const {
  const auto& [device, size] = places_[place];
  if (room.percent[device] == kWholeDevice.percent) ++room.devices;
  room.percent[device] -= size.percent;
  --room.partitions[device];
  room.memory_mb[device] -= memory_mb_[device][model];
}

bool PlacementRules::has_room(const Room& room, std::size_t model, std::size_t place) const {
  const auto& [device, size] = places_[place];
  const bool open = room.percent[device] < kWholeDevice.percent ||
                    room.devices < input_.options.max_devices.value_or(
                                       static_cast<std::uint32_t>(task_.devices.size()));
  return open && capacity(model, place) > 0 && size.percent <= room.percent[device] &&
         room.partitions[device] > 0 && memory_mb_[device][model] <= room.memory_mb[device];
}

// Each of them takes its smallest place where most is left.
bool PlacementRules::leaves_room(Room room, std::span<const float> observation,
                                 std::size_t head) const {
  for (std::size_t model = head + 1; model < task_.models.size(); ++model) {
    if (observation[task_.devices.size() + 2 * model] <= 0) continue;
    std::optional<std::size_t> least;
    const auto better = [&](std::size_t place) {
      const auto& [device, size] = places_[place];
      const auto& [known, smallest] = places_[*least];
      return size < smallest || (size == smallest && room.percent[device] > room.percent[known]);
    };
    bool servable = false;
    for (std::size_t place = 0; place < places_.size(); ++place) {
      servable = servable || capacity(model, place) > 0;
      if (has_room(room, model, place) && (!least || better(place))) least = place;
    }
    if (!servable) continue;  // nowhere, whatever is left
    if (!least) return false;
    take(room, model, *least);
  }
  return true;
}

void PlacementRules::allow(std::span<const float> observation, std::size_t head,
                           std::span<const std::uint32_t> chosen_before,
                           std::span<std::uint8_t> allowed) const {
  std::fill(allowed.begin(), allowed.end(), std::uint8_t{0});
  const double rate = observation[task_.devices.size() + 2 * head] *
                      task_.models[head].highest_rate * (1 - kRounding);
  const Room room = room_after(chosen_before);
  std::vector<std::size_t> free;
  std::vector<std::size_t> considerate;  // of them, those that leave room
  for (std::size_t place = 0; place < places_.size() && rate > 0; ++place) {
    if (!has_room(room, head, place)) continue;
    free.push_back(place);
    Room left = room;
    take(left, head, place);
    if (leaves_room(std::move(left), observation, head)) considerate.push_back(place);
  }
  if (free.empty()) {
    allowed[0] = 1;
    return;
  }
  const std::vector<std::size_t>& open = considerate.empty() ? free : considerate;
  double most = 0;
  for (const std::size_t place : open) most = std::max(most, capacity(head, place));
  for (const std::size_t place : open) {
    if (capacity(head, place) >= std::min(rate, most)) allowed[place + 1] = 1;
  }
}

std::vector<schedule::ModelPlace> PlacementRules::places_of(
    std::span<const std::uint32_t> choices) const {
  std::vector<schedule::ModelPlace> placed;
  for (std::size_t model = 0; model < choices.size(); ++model) {
    if (choices[model] == 0) continue;
    const Place& place = places_[choices[model] - 1];
    placed.push_back({*demand_of_[model], *device_of_[place.device], place.size});
  }
  return placed;
}

}  // namespace gpulet::learn
