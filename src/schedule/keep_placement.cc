// What the paper leaves open: it knows one gpulet of a model. Here a model may have several, and a
// gpulet several models, as the plan in force has them. Rates are divided among a model's gpulets
// as they are now, so that all of them stay in use; what one of them has no room for goes to the
// others in the order of the plan.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/schedule/batch_search.h"
#include "schedule/placed_plan.h"

namespace gpulet::schedule {
namespace {

class PlacementInForce {
 public:
  explicit PlacementInForce(const Problem& problem) : problem_(problem) {
    for (std::uint32_t model = 0; model < problem.models().size(); ++model)
      model_by_name_[problem.models()[model]->name] = model;
    for (std::uint32_t index = 0; index < problem.classes().size(); ++index) {
      for (const std::uint32_t device : problem.classes()[index].devices)
        device_by_key_[problem.devices()[device]->key] = {device, index};
    }
    for (const PlannedGpulet& gpulet : problem.input().current->gpulets) {
      for (const Assignment& one : gpulet.assignments) rate_now_[one.model] += one.rate;
    }
  }

  // Nothing where a gpulet that is still needed has lost its device or size, or a model has none.
  [[nodiscard]] std::optional<std::vector<PlacedGpulet>> gpulets() const {
    std::vector<PlacedGpulet> gpulets;
    std::vector<bool> placed(problem_.models().size(), false);
    TakenDevices taken(problem_);
    for (const PlannedGpulet& planned : problem_.input().current->gpulets) {
      PlacedGpulet gpulet;
      gpulet.turns = turns_of(planned);
      if (gpulet.turns.empty()) continue;
      if (!find(planned, &gpulet) || taken.take(gpulet) != nullptr) return std::nullopt;
      for (const PlacedTurn& turn : gpulet.turns) placed[turn.model] = true;
      gpulets.push_back(std::move(gpulet));
    }
    if (std::find(placed.begin(), placed.end(), false) != placed.end()) return std::nullopt;
    return gpulets;
  }

 private:
  struct At {
    std::uint32_t device = 0;
    std::uint32_t device_class = 0;
  };

  [[nodiscard]] std::vector<PlacedTurn> turns_of(const PlannedGpulet& planned) const {
    std::vector<PlacedTurn> turns;
    for (const Assignment& one : planned.assignments) {
      const auto model = model_by_name_.find(one.model);
      if (model == model_by_name_.end() || one.rate <= 0) continue;
      const double part = one.rate / rate_now_.at(one.model);
      turns.push_back({model->second, problem_.models()[model->second]->rate * part});
    }
    return turns;
  }

  [[nodiscard]] bool find(const PlannedGpulet& planned, PlacedGpulet* gpulet) const {
    const auto at = device_by_key_.find(planned.device);
    if (at == device_by_key_.end()) return false;
    const std::vector<int>& sizes = problem_.classes()[at->second.device_class].sizes;
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), planned.size.percent);
    if (size == sizes.end() || *size != planned.size.percent) return false;
    gpulet->device = at->second.device;
    gpulet->device_class = at->second.device_class;
    gpulet->size = static_cast<std::uint32_t>(size - sizes.begin());
    return true;
  }

  const Problem& problem_;
  std::map<std::string_view, std::uint32_t> model_by_name_;
  std::map<DeviceKey, At> device_by_key_;
  std::map<std::string_view, double> rate_now_;
};

// The input with nothing but the devices and sizes that the plan in force uses: what a Problem
// works out for the others takes longer than the search.
PlanInput what_is_in_use(const PlanInput& input) {
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
  const PlanInput used = what_is_in_use(input);
  const Problem problem(used);
  auto gpulets = PlacementInForce(problem).gpulets();
  if (!gpulets) return std::nullopt;
  SlowdownTables tables(problem);
  PlacedPlan plan(problem, tables, *std::move(gpulets));
  plan.settle();
  plan.share_out();
  const std::vector<double> left = plan.left();
  if (std::any_of(left.begin(), left.end(), [](double rate) { return rate > 0; }))
    return std::nullopt;
  plan.grow();
  return plan.finish([](std::size_t, double, std::size_t) { return std::string(); });
}

}  // namespace gpulet::schedule
