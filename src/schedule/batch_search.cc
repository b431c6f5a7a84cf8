#include "gpulet/schedule/batch_search.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/batch_planner.h"
#include "schedule/explain.h"

namespace gpulet::schedule {
namespace {

constexpr std::uint32_t kNoIndex = UINT32_MAX;

std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", rate);
  return text;
}

// Parallel to `all`: the index of each element in `known`, or kNoIndex.
template <typename Thing>
std::vector<std::uint32_t> indices_of(const std::vector<Thing>& all,
                                      const std::vector<const Thing*>& known) {
  std::vector<std::uint32_t> indices(all.size(), kNoIndex);
  for (std::uint32_t index = 0; index < known.size(); ++index)
    indices[static_cast<std::size_t>(known[index] - all.data())] = index;
  return indices;
}

}  // namespace

double task_latency_ms(const QueuedTask& task) {
  if (task.queued >= task.batch) {
    const std::uint32_t batches = (task.queued + task.batch - 1) / task.batch;
    return task.remaining_ms + batches * task.execution_ms;
  }
  const double until_full_ms = task.rate > 0 ? 1000.0 * (task.batch - task.queued) / task.rate
                                             : std::numeric_limits<double>::infinity();
  return std::max(task.remaining_ms, until_full_ms) + task.execution_ms;
}

struct BatchSearch::State {
  explicit State(const PlanInput& input)
      : context(input),
        model_of_demand(indices_of(input.demands, context.models())),
        index_of_device(indices_of(input.cluster.devices, context.devices())),
        class_of(context.devices().size()) {
    for (std::uint32_t index = 0; index < context.classes().size(); ++index) {
      for (const std::uint32_t device : context.classes()[index].devices) class_of[device] = index;
    }
  }

  // Empty where the cluster does not have the device or the size.
  [[nodiscard]] std::optional<PlacedGpulet> gpulet_at(const ModelPlacement& place) const {
    if (place.device >= index_of_device.size() || index_of_device[place.device] == kNoIndex)
      return std::nullopt;
    PlacedGpulet gpulet;
    gpulet.device = index_of_device[place.device];
    gpulet.device_class = class_of[gpulet.device];
    const std::vector<int>& sizes = context.classes()[gpulet.device_class].sizes;
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), place.size.percent);
    if (size == sizes.end() || *size != place.size.percent) return std::nullopt;
    gpulet.size = static_cast<std::uint32_t>(size - sizes.begin());
    const std::uint32_t model = model_of_demand[place.model];
    gpulet.models.push_back({model, context.models()[model]->rate});
    return gpulet;
  }

  // Whether any device of the cluster can serve the model.
  [[nodiscard]] bool servable(std::size_t model) const {
    for (std::size_t index = 0; index < context.classes().size(); ++index) {
      const ModelOnClass& known = context.on_class(model, index);
      const double limit_mb = context.classes()[index].example->memory_mb;
      if (limit_mb > 0 && known.memory_mb > limit_mb) continue;
      if (context.curve(model, index, known.best_size).max_rate > 0)
        return context.device_budget() > 0;
    }
    return false;
  }

  [[nodiscard]] std::string name_of(const PlacedGpulet& gpulet) const {
    const DeviceKey& key = context.devices()[gpulet.device]->key;
    return std::to_string(context.classes()[gpulet.device_class].sizes[gpulet.size]) + " % of " +
           key.node + "/" + std::to_string(key.device);
  }

  PlanContext context;
  std::vector<std::uint32_t> model_of_demand;  // of each demand, in context.models()
  std::vector<std::uint32_t> index_of_device;  // of each device, in context.devices()
  std::vector<std::uint32_t> class_of;         // of each of context.devices()
};

BatchSearch::BatchSearch(const PlanInput& input) : state_(std::make_unique<State>(input)) {}
BatchSearch::~BatchSearch() = default;

Plan BatchSearch::decide(std::span<const ModelPlacement> placements) {
  PlanContext& context = state_->context;
  std::vector<PlacedGpulet> requested;
  requested.reserve(placements.size());
  for (const ModelPlacement& place : placements) {
    if (place.model >= state_->model_of_demand.size()) continue;
    if (state_->model_of_demand[place.model] == kNoIndex) continue;  // without a rate
    if (auto gpulet = state_->gpulet_at(place)) requested.push_back(*std::move(gpulet));
  }
  sort_gpulets(context, &requested);

  std::vector<std::string> ignored(context.models().size());  // the reason, by model
  std::vector<bool> placed(context.models().size(), false);
  std::vector<PlacedGpulet> accepted;
  accepted.reserve(requested.size());
  DeviceUsage usage(context);
  for (PlacedGpulet& gpulet : requested) {
    const std::uint32_t model = gpulet.models.front().model;
    if (placed[model]) continue;
    if (const char* const full = usage.reserve(gpulet)) {
      ignored[model] = "its place, " + state_->name_of(gpulet) + ", cannot be: the device " + full +
                       ": place it elsewhere";
      continue;
    }
    placed[model] = true;
    accepted.push_back(std::move(gpulet));
  }
  std::vector<const PlacedGpulet*> place_of(context.models().size(), nullptr);
  for (const PlacedGpulet& gpulet : accepted) place_of[gpulet.models.front().model] = &gpulet;

  BatchPlanner planner(context, accepted);
  planner.plan_min_batches();
  planner.grow_batches();
  return planner.finish([&](std::size_t model, double unserved, std::size_t devices_used) {
    if (!state_->servable(model)) return explain_unserved(context, model, unserved, devices_used);
    if (place_of[model] != nullptr) {
      const double rate = context.models()[model]->rate;
      return rate_text(rate - unserved) + " of " + rate_text(rate) +
             " requests/s fit at its place, " + state_->name_of(*place_of[model]) +
             ": give it a larger share or fewer neighbours, lower the rate, or raise the SLO";
    }
    if (!ignored[model].empty()) return ignored[model];
    return std::string("the placement has no place for it: add one");
  });
}

namespace {

// The gpulets of the plan in force. The paper has one gpulet per model; here a model may have
// several, and a gpulet several models. Rates are divided among a model's gpulets in proportion to
// their present rates, so that all of them stay in use.
class PlacementInForce {
 public:
  explicit PlacementInForce(const PlanContext& context) : context_(context) {
    for (std::uint32_t model = 0; model < context.models().size(); ++model)
      model_by_name_[context.models()[model]->name] = model;
    for (std::uint32_t index = 0; index < context.classes().size(); ++index) {
      for (const std::uint32_t device : context.classes()[index].devices)
        device_by_key_[context.devices()[device]->key] = {device, index};
    }
    for (const PlannedGpulet& gpulet : context.input().current->gpulets) {
      for (const Assignment& one : gpulet.assignments) rate_now_[one.model] += one.rate;
    }
  }

  // Empty where the device or size of a needed gpulet is gone, or where a model has no gpulet.
  [[nodiscard]] std::optional<std::vector<PlacedGpulet>> gpulets() const {
    std::vector<PlacedGpulet> gpulets;
    std::vector<bool> placed(context_.models().size(), false);
    DeviceUsage usage(context_);
    for (const PlannedGpulet& planned : context_.input().current->gpulets) {
      PlacedGpulet gpulet;
      gpulet.models = models_of(planned);
      if (gpulet.models.empty()) continue;
      if (!find(planned, &gpulet) || usage.reserve(gpulet) != nullptr) return std::nullopt;
      for (const PlacedModel& model : gpulet.models) placed[model.model] = true;
      gpulets.push_back(std::move(gpulet));
    }
    if (std::find(placed.begin(), placed.end(), false) != placed.end()) return std::nullopt;
    return gpulets;
  }

 private:
  struct Position {
    std::uint32_t device = 0;
    std::uint32_t device_class = 0;
  };

  [[nodiscard]] std::vector<PlacedModel> models_of(const PlannedGpulet& planned) const {
    std::vector<PlacedModel> models;
    for (const Assignment& one : planned.assignments) {
      const auto model = model_by_name_.find(one.model);
      if (model == model_by_name_.end() || one.rate <= 0) continue;
      const double part = one.rate / rate_now_.at(one.model);
      models.push_back({model->second, context_.models()[model->second]->rate * part});
    }
    return models;
  }

  [[nodiscard]] bool find(const PlannedGpulet& planned, PlacedGpulet* gpulet) const {
    const auto at = device_by_key_.find(planned.device);
    if (at == device_by_key_.end()) return false;
    const std::vector<int>& sizes = context_.classes()[at->second.device_class].sizes;
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), planned.size.percent);
    if (size == sizes.end() || *size != planned.size.percent) return false;
    gpulet->device = at->second.device;
    gpulet->device_class = at->second.device_class;
    gpulet->size = static_cast<std::uint32_t>(size - sizes.begin());
    return true;
  }

  const PlanContext& context_;
  std::map<std::string_view, std::uint32_t> model_by_name_;
  std::map<DeviceKey, Position> device_by_key_;
  std::map<std::string_view, double> rate_now_;
};

// The input restricted to the devices and sizes that the plan in force uses: computing the
// PlanContext of the others takes longer than the search.
PlanInput restrict_to_current(const PlanInput& input) {
  std::set<int> sizes;
  std::set<DeviceKey> devices;
  for (const PlannedGpulet& gpulet : input.current->gpulets) {
    sizes.insert(gpulet.size.percent);
    devices.insert(gpulet.device);
  }
  PlanInput used{{},           input.demands, input.profiles, input.interference, input.current,
                 input.options};
  for (const Device& device : input.cluster.devices) {
    if (device.mig || !devices.contains(device.key)) continue;
    Device& kept = used.cluster.devices.emplace_back(device);
    std::erase_if(kept.sizes, [&](Share size) { return !sizes.contains(size.percent); });
    if (kept.sizes.empty()) used.cluster.devices.pop_back();
  }
  return used;
}

}  // namespace

std::optional<Plan> keep_placement(const PlanInput& input) {
  if (input.current == nullptr) return std::nullopt;
  const PlanInput used = restrict_to_current(input);
  PlanContext context(used);
  auto gpulets = PlacementInForce(context).gpulets();
  if (!gpulets) return std::nullopt;
  BatchPlanner planner(context, *std::move(gpulets));
  planner.plan_min_batches();
  planner.redistribute();
  const std::vector<double> unserved = planner.unplaced();
  if (std::any_of(unserved.begin(), unserved.end(), [](double rate) { return rate > 0; }))
    return std::nullopt;
  planner.grow_batches();
  return planner.finish([](std::size_t, double, std::size_t) { return std::string(); });
}

}  // namespace gpulet::schedule
