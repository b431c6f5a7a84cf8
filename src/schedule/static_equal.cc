// static-equal: what a server of models does without a planner. Every device runs one instance of
// every model, all with equal shares, and batches what waits. The instances and shares do not
// depend on the rates.
//
// Choices where there is no paper:
//  - The share is the largest size of which the device holds one for each model. Where it holds
//    fewer gpulets than models, models share gpulets, dealt out by name, so that all gpulets
//    have about as many.
//  - The batch is the largest that meets the SLO in time (batch_planner.h). A batch
//    leaves when it is full or when the round is over: the fixed queue delay of dynamic batching,
//    chosen as well as the SLO allows.
//  - A rate is divided equally between the devices that hold the model. What one of them cannot
//    serve goes to the others.
//  - A gpulet has at most 64 models, the first by name.
//  - A model that must be alone gets a gpulet of its own, or none on devices that have none left.
//
// Pure.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/batch_planner.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

constexpr std::size_t kMostModels = 64;  // of a gpulet: choosing batches takes the cube of it

// The largest size of which a device of that class holds so many; empty where it does not.
std::optional<std::uint32_t> size_for(const DeviceClass& device_class, std::size_t gpulets) {
  std::optional<std::uint32_t> largest;
  for (std::uint32_t size = 0; size < device_class.sizes.size(); ++size) {
    const auto percent = static_cast<std::size_t>(device_class.sizes[size]);
    if (percent * gpulets <= static_cast<std::size_t>(kWholeDevice.percent)) largest = size;
  }
  return largest;
}

// As many gpulets of equal size as models, or as the device holds.
std::vector<PlacedGpulet> equal_gpulets(const PlanContext& context, std::uint32_t device) {
  const std::uint32_t device_class = context.class_of(device);
  std::size_t count =
      std::min<std::size_t>(context.models().size(), context.devices()[device]->max_partitions);
  std::optional<std::uint32_t> size;
  while (count > 0 && !(size = size_for(context.classes()[device_class], count))) --count;
  if (count == 0) return {};
  return std::vector<PlacedGpulet>(count, PlacedGpulet{device, device_class, *size, {}});
}

// Models that must be alone first; the others take turns in what is left.
void add_models(const PlanContext& context, std::vector<PlacedGpulet>& gpulets) {
  std::size_t own = 0;
  for (std::uint32_t model = 0; model < context.models().size() && own < gpulets.size(); ++model) {
    if (context.models()[model]->alone) gpulets[own++].models.push_back({model, 0});
  }
  std::size_t next = own;
  for (std::uint32_t model = 0; model < context.models().size() && own < gpulets.size(); ++model) {
    if (context.models()[model]->alone) continue;
    if (gpulets[next].models.size() == kMostModels) break;
    gpulets[next].models.push_back({model, 0});
    next = next + 1 < gpulets.size() ? next + 1 : own;
  }
  std::erase_if(gpulets, [](const PlacedGpulet& gpulet) { return gpulet.models.empty(); });
}

std::vector<PlacedGpulet> all_gpulets(const PlanContext& context) {
  std::vector<PlacedGpulet> all;
  std::vector<std::size_t> places(context.models().size());
  DeviceUsage usage(context);
  const auto devices =
      static_cast<std::uint32_t>(std::min(context.devices().size(), context.device_budget()));
  for (std::uint32_t device = 0; device < devices; ++device) {
    std::vector<PlacedGpulet> gpulets = equal_gpulets(context, device);
    add_models(context, gpulets);
    for (PlacedGpulet& gpulet : gpulets) {
      if (usage.reserve(gpulet) != nullptr) continue;  // its models do not fit into the memory
      for (const PlacedModel& placed : gpulet.models) ++places[placed.model];
      all.push_back(std::move(gpulet));
    }
  }
  for (PlacedGpulet& gpulet : all) {
    for (PlacedModel& placed : gpulet.models) {
      placed.requested =
          context.models()[placed.model]->rate / static_cast<double>(places[placed.model]);
    }
  }
  return all;
}

}  // namespace

Plan plan_static_equal(const PlanInput& input) {
  PlanContext context(input);
  BatchPlanner planner(context, all_gpulets(context));
  planner.plan_min_batches();
  planner.redistribute();
  planner.grow_batches();
  return planner.finish([&context](std::size_t model, double unserved, std::size_t devices_used) {
    return explain_unserved(context, model, unserved, devices_used);
  });
}

}  // namespace gpulet::schedule
