#include "research/learn/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

std::string name_of(const Device& device) {
  return fmt::format("device {}/{}", device.key.node, device.key.device);
}

// The first of `items` whose `member` is `value`.
template <typename Items, typename Member, typename Value>
auto find_by(const Items& items, Member member, const Value& value) {
  return std::find_if(items.begin(), items.end(),
                      [&](const auto& one) { return one.*member == value; });
}

}  // namespace

double least_work_ms(const PlanInput& input, const std::string& model) {
  double least = 0;
  for (const auto& device : input.cluster.devices) {
    const profile::ModelProfile* const measured = input.profiles->at(device.type).find(model);
    if (measured == nullptr || device.sizes.empty()) continue;
    const auto latency = measured->latency.latency_ms(1, device.sizes.back());
    if (latency && (least == 0 || *latency < least)) least = *latency;
  }
  return least;
}

std::uint32_t PlacementTask::places() const {
  std::size_t sizes = 0;
  for (const Device& device : devices) sizes += device.sizes.size();
  return static_cast<std::uint32_t>(1 + sizes);
}

Result<PlacementTask> task_of(const PlanInput& input) {
  PlacementTask task;
  task.devices = input.cluster.devices;
  if (task.devices.empty())
    return invalid(
        "a placement needs devices and the cluster has none: add devices to the cluster file");
  for (const Device& device : task.devices) {
    if (device.mig) {
      return invalid(
          name_of(device) +
          " is divided by MIG, which only the mig- policies and cover support: use devices with "
          "another partitioning");
    }
  }
  std::vector<std::pair<double, TaskModel>> by_work;
  for (const ModelDemand& demand : input.demands) {
    if (!(demand.rate > 0)) {
      return invalid(fmt::format(
          "model '{}' has no rate: the demand file must give its highest rate", demand.name));
    }
    const double work_ms = least_work_ms(input, demand.name);
    if (work_ms == 0) {
      return invalid(
          fmt::format("model '{}' has no profile for any device of the cluster: measure it "
                      "with gpulet profile run, or remove it from the demand",
                      demand.name));
    }
    by_work.emplace_back(demand.rate * work_ms,
                         TaskModel{demand.name, demand.slo_ms, demand.max_batch, demand.rate});
  }
  std::sort(by_work.begin(), by_work.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.name < b.second.name;
  });
  for (auto& [work, model] : by_work) task.models.push_back(std::move(model));
  return task;
}

Status fits(const PlacementTask& task, const PlanInput& input) {
  for (const Device& device : input.cluster.devices) {
    const auto known = find_by(task.devices, &Device::key, device.key);
    if (known == task.devices.end())
      return invalid(name_of(device) + " is not part of the policy's task: train a new policy");
    Device as_known = device;
    as_known.cores = known->cores;  // their speed is in the profile
    if (*known != as_known) {
      return invalid(name_of(device) +
                     " differs in type, sizes, partitions or memory from the "
                     "policy's task: train a new policy");
    }
  }
  for (const ModelDemand& demand : input.demands) {
    const auto known = find_by(task.models, &TaskModel::name, demand.name);
    if (known == task.models.end()) {
      return invalid(fmt::format("the policy was not trained for model '{}': train a new policy",
                                 demand.name));
    }
    if (known->slo_ms != demand.slo_ms || known->max_batch != demand.max_batch) {
      return invalid(
          fmt::format("model '{}' differs in objective or largest batch from the policy's "
                      "task: train a new policy",
                      demand.name));
    }
  }
  return {};
}

namespace {

constexpr double kUnboundedRate = 1e6;  // requests per second: above any capacity
constexpr double kRounding = 1e-6;      // relative error of a rate as a float

// Memory of the loaded model on that device; 0 if not measured.
double memory_mb(const PlanInput& input, const Device& device, const std::string& model) {
  const auto profile = input.profiles->find(device.type);
  if (profile == input.profiles->end()) return 0;
  const profile::ModelProfile* const measured = profile->second.find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

float used_memory(const PlacementTask& task, const PlanInput& input, const Device& device) {
  if (input.current == nullptr) return 0;
  double used_mb = 0;
  for (const schedule::PlannedGpulet& gpulet : input.current->gpulets) {
    if (gpulet.device != device.key) continue;
    for (const schedule::Assignment& one : gpulet.assignments)
      used_mb += memory_mb(input, device, one.model);
  }
  double whole_mb = device.memory_mb;
  if (whole_mb <= 0) {
    whole_mb = 0;
    for (const TaskModel& model : task.models) whole_mb += memory_mb(input, device, model.name);
  }
  return whole_mb > 0 ? static_cast<float>(used_mb / whole_mb) : 0;
}

}  // namespace

std::vector<float> observe(const PlacementTask& task, const PlanInput& input) {
  std::vector<float> seen;
  seen.reserve(task.observation_size());
  for (const Device& device : task.devices) seen.push_back(used_memory(task, input, device));
  for (const TaskModel& model : task.models) {
    const auto demand = find_by(input.demands, &ModelDemand::name, model.name);
    const bool asked = demand != input.demands.end();
    const double within_slo = std::max(1.0, model.highest_rate * model.slo_ms / 1000);
    seen.push_back(asked ? static_cast<float>(demand->rate / model.highest_rate) : 0);
    seen.push_back(asked ? static_cast<float>(demand->queued / within_slo) : 0);
  }
  return seen;
}

// The rest of each device after the choices so far.
struct PlacementRules::Remaining {
  struct OfDevice {
    int percent = kWholeDevice.percent;
    std::uint32_t partitions = 0;
    double memory_mb = std::numeric_limits<double>::infinity();
  };
  [[nodiscard]] bool is_empty(std::size_t device) const {
    return of_devices[device].percent == kWholeDevice.percent;
  }

  std::vector<OfDevice> of_devices;
  std::uint32_t devices = 0;  // devices in use
};

PlacementRules::PlacementRules(const PlacementTask& task, const PlanInput& input)
    : task_(task),
      input_(input),
      device_of_(task.devices.size()),
      demand_of_(task.models.size()),
      memory_mb_(task.devices.size()),
      most_devices_(
          input.options.max_devices.value_or(static_cast<std::uint32_t>(task.devices.size()))),
      head_sizes_(task.models.size(), task.places()) {
  for (std::size_t device = 0; device < task.devices.size(); ++device) {
    for (const Share size : task.devices[device].sizes) candidates_.push_back({device, size});
    for (const TaskModel& model : task.models)
      memory_mb_[device].push_back(memory_mb(input, task.devices[device], model.name));
    const std::vector<Device>& there = input.cluster.devices;
    const auto found = find_by(there, &Device::key, task.devices[device].key);
    if (found != there.end())
      device_of_[device] = static_cast<std::uint32_t>(found - there.begin());
  }
  for (std::size_t model = 0; model < task.models.size(); ++model) {
    const auto found = find_by(input.demands, &ModelDemand::name, task.models[model].name);
    if (found != input.demands.end() && found->rate > 0)
      demand_of_[model] = static_cast<std::uint32_t>(found - input.demands.begin());
  }
  find_equals();
  measure_capacities();
  find_smallest();
}

void PlacementRules::find_equals() {
  equal_before_.resize(task_.devices.size());
  for (std::size_t device = 0; device < task_.devices.size(); ++device) {
    if (!device_of_[device]) continue;
    Device same = input_.cluster.devices[*device_of_[device]];
    for (std::size_t before = device; before-- > 0 && !equal_before_[device];) {
      if (!device_of_[before]) continue;
      const Device& other = input_.cluster.devices[*device_of_[before]];
      same.key = other.key;
      if (same == other) equal_before_[device] = before;
    }
  }
}

void PlacementRules::measure_capacities() {
  PlanInput alone = input_;
  alone.current = nullptr;
  alone.options.max_devices.reset();
  for (ModelDemand& demand : alone.demands) demand.rate = kUnboundedRate;
  research::BatchSearch search(alone);
  capacities_.assign(task_.models.size() * candidates_.size(), 0);
  for (std::size_t model = 0; model < task_.models.size(); ++model) {
    if (!demand_of_[model]) continue;
    // By device type and size.
    std::map<std::pair<std::string_view, Share>, double> known;
    for (std::size_t at = 0; at < candidates_.size(); ++at) {
      const auto& [device, size] = candidates_[at];
      if (!device_of_[device]) continue;
      const auto [entry, is_new] = known.try_emplace({task_.devices[device].type, size}, 0);
      if (is_new) {
        const research::ModelPlacement candidate{*demand_of_[model], *device_of_[device], size};
        const Plan plan = search.decide({&candidate, 1});
        if (!plan.gpulets.empty()) entry->second = plan.gpulets[0].assignments[0].rate;
      }
      capacities_[model * candidates_.size() + at] = entry->second;
    }
  }
}

void PlacementRules::find_smallest() {
  smallest_.resize(task_.models.size() * task_.devices.size());
  for (std::size_t model = 0; model < task_.models.size(); ++model) {
    for (std::size_t at = 0; at < candidates_.size(); ++at) {
      if (capacity(model, at) <= 0) continue;
      const auto& [device, size] = candidates_[at];
      Need& smallest = smallest_[model * task_.devices.size() + device];
      if (smallest.percent == 0 || size.percent < smallest.percent) smallest = need(model, at);
    }
  }
}

PlacementRules::Remaining PlacementRules::remaining_after(
    std::span<const std::uint32_t> chosen) const {
  Remaining remaining;
  for (const Device& device : task_.devices) {
    Remaining::OfDevice& left = remaining.of_devices.emplace_back();
    left.partitions = device.max_partitions;
    if (device.memory_mb > 0) left.memory_mb = device.memory_mb;
  }
  for (std::size_t model = 0; model < chosen.size(); ++model) {
    if (chosen[model] == 0) continue;
    const std::size_t candidate = chosen[model] - 1;
    take(remaining, candidates_[candidate].device, need(model, candidate));
  }
  return remaining;
}

void PlacementRules::take(Remaining& remaining, std::size_t device, const Need& need) {
  Remaining::OfDevice& left = remaining.of_devices[device];
  if (remaining.is_empty(device)) ++remaining.devices;
  left.percent -= need.percent;
  --left.partitions;
  left.memory_mb -= need.memory_mb;
}

bool PlacementRules::has_room(const Remaining& remaining, std::size_t device,
                              const Need& need) const {
  const Remaining::OfDevice& left = remaining.of_devices[device];
  const bool open = !remaining.is_empty(device) || remaining.devices < most_devices_;
  return open && need.percent <= left.percent && left.partitions > 0 &&
         need.memory_mb <= left.memory_mb;
}

// Each model takes its smallest candidate, on the device with the most compute left. Where the
// smallest candidate of a device does not fit, a larger one does not either.
bool PlacementRules::fits_later_models(Remaining& remaining, std::span<const float> observation,
                                       std::size_t head) const {
  const std::size_t devices = task_.devices.size();
  for (std::size_t model = head + 1; model < task_.models.size(); ++model) {
    if (observation[devices + 2 * model] <= 0) continue;
    const std::span<const Need> needs = std::span(smallest_).subspan(model * devices, devices);
    std::optional<std::size_t> least;
    const auto better = [&](std::size_t device) {
      const int percent = needs[device].percent;
      const int smallest = needs[*least].percent;
      return percent < smallest ||
             (percent == smallest &&
              remaining.of_devices[device].percent > remaining.of_devices[*least].percent);
    };
    bool servable = false;
    for (std::size_t device = 0; device < devices; ++device) {
      if (needs[device].percent == 0) continue;
      servable = true;
      if (has_room(remaining, device, needs[device]) && (!least || better(device))) least = device;
    }
    if (!servable) continue;  // no candidate can ever serve it
    if (!least) return false;
    take(remaining, *least, needs[*least]);
  }
  return true;
}

void PlacementRules::allow(std::span<const float> observation, std::size_t head,
                           std::span<const std::uint32_t> chosen_before,
                           std::span<std::uint8_t> allowed) const {
  std::fill(allowed.begin(), allowed.end(), std::uint8_t{0});
  const double rate = observation[task_.devices.size() + 2 * head] *
                      task_.models[head].highest_rate * (1 - kRounding);
  const Remaining remaining = remaining_after(chosen_before);
  std::vector<std::size_t> fast;  // candidates with room that hold the rate
  std::vector<std::size_t> slow;  // candidates with room that do not
  for (std::size_t at = 0; at < candidates_.size() && rate > 0; ++at) {
    const std::size_t device = candidates_[at].device;
    if (capacity(head, at) <= 0 || !has_room(remaining, device, need(head, at))) continue;
    const auto& equal = equal_before_[device];
    if (equal && remaining.is_empty(device) && remaining.is_empty(*equal)) continue;
    (capacity(head, at) >= rate ? fast : slow).push_back(at);
  }
  if (fast.empty() && slow.empty()) {
    allowed[0] = 1;
    return;
  }
  Remaining left;
  const auto leaves_capacity = [&](std::size_t candidate) {
    left = remaining;
    take(left, candidates_[candidate].device, need(head, candidate));
    return fits_later_models(left, observation, head);
  };
  const auto considerate = [&](const std::vector<std::size_t>& of) {
    std::vector<std::size_t> found;
    std::copy_if(of.begin(), of.end(), std::back_inserter(found), leaves_capacity);
    return found;
  };
  std::vector<std::size_t> open = considerate(fast);
  if (open.empty()) open = considerate(slow);
  if (open.empty()) open = fast.empty() ? slow : fast;
  double most = 0;
  for (const std::size_t candidate : open) most = std::max(most, capacity(head, candidate));
  for (const std::size_t candidate : open) {
    if (capacity(head, candidate) >= std::min(rate, most)) allowed[candidate + 1] = 1;
  }
}

std::vector<research::ModelPlacement> PlacementRules::placements_of(
    std::span<const std::uint32_t> choices) const {
  std::vector<research::ModelPlacement> placed;
  for (std::size_t model = 0; model < choices.size(); ++model) {
    if (choices[model] == 0) continue;
    const Candidate& candidate = candidates_[choices[model] - 1];
    placed.push_back({*demand_of_[model], *device_of_[candidate.device], candidate.size});
  }
  return placed;
}

}  // namespace gpulet::learn
