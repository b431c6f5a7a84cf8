#include "research/batch_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "schedule/batch_planner.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

// The gpulet without its models; empty where it cannot have that size.
std::optional<PlacedGpulet> gpulet_on(const PlanContext& context, std::uint32_t device,
                                      Share size) {
  const std::uint32_t device_class = context.class_of(device);
  const auto index = context.classes()[device_class].find_size(size);
  if (!index) return std::nullopt;
  return PlacedGpulet{device, device_class, *index, {}};
}

std::string name_of(const PlanContext& context, const PlacedGpulet& gpulet) {
  const DeviceKey& key = context.devices()[gpulet.device]->key;
  return fmt::format("{} % of {}/{}", context.classes()[gpulet.device_class].sizes[gpulet.size],
                     key.node, key.device);
}

}  // namespace

BatchSearch::BatchSearch(const PlanInput& input) : context_(std::make_unique<PlanContext>(input)) {
  for (const ModelDemand& demand : input.demands)
    model_of_demand_.push_back(context_->find_model(demand.name));
  for (const Device& device : input.cluster.devices)
    device_of_input_.push_back(context_->find_device(device.key));
}
BatchSearch::~BatchSearch() = default;

Plan BatchSearch::decide(std::span<const ModelPlacement> placements) {
  PlanContext& context = *context_;
  std::vector<PlacedGpulet> requested;
  requested.reserve(placements.size());
  for (const ModelPlacement& place : placements) {
    if (place.model >= model_of_demand_.size() || place.device >= device_of_input_.size()) continue;
    const auto model = model_of_demand_[place.model];
    const auto device = device_of_input_[place.device];
    if (!model || !device) continue;
    auto gpulet = gpulet_on(context, *device, place.size);
    if (!gpulet) continue;
    gpulet->models.push_back({*model, context.models()[*model]->rate});
    requested.push_back(*std::move(gpulet));
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
      ignored[model] = fmt::format("it cannot be placed on {}: the device {}: place it elsewhere",
                                   name_of(context, gpulet), full);
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
    if (context.device_budget() == 0 || !context.servable(model))
      return explain_unserved(context, model, unserved, devices_used);
    if (place_of[model] != nullptr) {
      const double rate = context.models()[model]->rate;
      return fmt::format(
          "{:.4g} of {:.4g} requests/s fit on {}: give it a larger share or fewer neighbours, "
          "lower the rate, or raise the SLO",
          rate - unserved, rate, name_of(context, *place_of[model]));
    }
    if (!ignored[model].empty()) return ignored[model];
    return std::string("the placement does not contain it: add it");
  });
}

namespace {

// The gpulets of the plan in force. The paper has one gpulet per model; here a model may have
// several, and a gpulet several models. Rates are divided among a model's gpulets in proportion to
// their present rates, so that all of them stay in use. Empty where the device or size of a needed
// gpulet is gone, or where a model has no gpulet.
std::optional<std::vector<PlacedGpulet>> gpulets_in_force(const PlanContext& context) {
  const std::vector<PlannedGpulet>& current = context.input().current->gpulets;
  std::map<std::string_view, double> rate_now;
  for (const PlannedGpulet& planned : current) {
    for (const Assignment& one : planned.assignments) rate_now[one.model] += one.rate;
  }
  std::vector<PlacedGpulet> gpulets;
  std::vector<bool> placed(context.models().size(), false);
  DeviceUsage usage(context);
  for (const PlannedGpulet& planned : current) {
    std::vector<PlacedModel> models;
    for (const Assignment& one : planned.assignments) {
      const auto model = context.find_model(one.model);
      if (!model || one.rate <= 0) continue;
      const double part = one.rate / rate_now.at(one.model);
      models.push_back({*model, context.models()[*model]->rate * part});
      placed[*model] = true;
    }
    if (models.empty()) continue;
    const auto device = context.find_device(planned.device);
    if (!device) return std::nullopt;
    auto gpulet = gpulet_on(context, *device, planned.size);
    if (!gpulet) return std::nullopt;
    gpulet->models = std::move(models);
    if (usage.reserve(*gpulet) != nullptr) return std::nullopt;
    gpulets.push_back(*std::move(gpulet));
  }
  if (std::find(placed.begin(), placed.end(), false) != placed.end()) return std::nullopt;
  return gpulets;
}

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
  auto gpulets = gpulets_in_force(context);
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

}  // namespace gpulet::research
