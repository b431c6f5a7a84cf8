#include "gpulet/schedule/batch_search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "schedule/explain.h"
#include "schedule/placed_plan.h"

namespace gpulet::schedule {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

std::string in_words(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", rate);
  return text;
}

// Beside `all`: where each of them stands among `known`, or kNone.
template <typename Thing>
std::vector<std::uint32_t> indices_of(const std::vector<Thing>& all,
                                      const std::vector<const Thing*>& known) {
  std::vector<std::uint32_t> indices(all.size(), kNone);
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
      : problem(input),
        tables(problem),
        model_of_demand(indices_of(input.demands, problem.models())),
        index_of_device(indices_of(input.cluster.devices, problem.devices())),
        class_of(problem.devices().size()) {
    for (std::uint32_t index = 0; index < problem.classes().size(); ++index) {
      for (const std::uint32_t device : problem.classes()[index].devices) class_of[device] = index;
    }
  }

  // The gpulet of a place whose device and size there are.
  [[nodiscard]] std::optional<PlacedGpulet> gpulet_at(const ModelPlace& place) const {
    if (place.device >= index_of_device.size() || index_of_device[place.device] == kNone)
      return std::nullopt;
    PlacedGpulet gpulet;
    gpulet.device = index_of_device[place.device];
    gpulet.device_class = class_of[gpulet.device];
    const std::vector<int>& sizes = problem.classes()[gpulet.device_class].sizes;
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), place.size.percent);
    if (size == sizes.end() || *size != place.size.percent) return std::nullopt;
    gpulet.size = static_cast<std::uint32_t>(size - sizes.begin());
    const std::uint32_t model = model_of_demand[place.model];
    gpulet.turns.push_back({model, problem.models()[model]->rate});
    return gpulet;
  }

  // Whether any device of the cluster serves any of it.
  [[nodiscard]] bool servable(std::size_t model) const {
    for (std::size_t index = 0; index < problem.classes().size(); ++index) {
      const ModelOnClass& there = problem.on_class(model, index);
      const double limit_mb = problem.classes()[index].example->memory_mb;
      if (limit_mb > 0 && there.memory_mb > limit_mb) continue;
      if (problem.row(model, index, there.best_size).most_rate > 0)
        return problem.device_budget() > 0;
    }
    return false;
  }

  [[nodiscard]] std::string name_of(const PlacedGpulet& gpulet) const {
    const DeviceKey& key = problem.devices()[gpulet.device]->key;
    return std::to_string(problem.classes()[gpulet.device_class].sizes[gpulet.size]) + " % of " +
           key.node + "/" + std::to_string(key.device);
  }

  Problem problem;
  SlowdownTables tables;
  std::vector<std::uint32_t> model_of_demand;  // beside input.demands: index in problem.models()
  std::vector<std::uint32_t> index_of_device;  // beside the cluster's: index in problem.devices()
  std::vector<std::uint32_t> class_of;         // beside problem.devices()
};

BatchSearch::BatchSearch(const PlanInput& input) : state_(std::make_unique<State>(input)) {}
BatchSearch::~BatchSearch() = default;

Plan BatchSearch::decide(std::span<const ModelPlace> places) {
  const Problem& problem = state_->problem;
  std::vector<PlacedGpulet> asked;
  asked.reserve(places.size());
  for (const ModelPlace& place : places) {
    if (place.model >= state_->model_of_demand.size()) continue;
    if (state_->model_of_demand[place.model] == kNone) continue;  // without a rate
    if (auto gpulet = state_->gpulet_at(place)) asked.push_back(*std::move(gpulet));
  }
  put_in_order(problem, &asked);

  std::vector<std::string> why(problem.models().size());  // a model has less than it asks for
  std::vector<bool> placed(problem.models().size(), false);
  std::vector<PlacedGpulet> taken;
  taken.reserve(asked.size());
  TakenDevices devices(problem);
  for (PlacedGpulet& gpulet : asked) {
    const std::uint32_t model = gpulet.turns.front().model;
    if (placed[model]) continue;
    if (const char* const full = devices.take(gpulet)) {
      why[model] = "its place, " + state_->name_of(gpulet) + ", cannot be: the device " + full +
                   ": place it elsewhere";
      continue;
    }
    placed[model] = true;
    taken.push_back(std::move(gpulet));
  }
  std::vector<const PlacedGpulet*> place_of(problem.models().size(), nullptr);
  for (const PlacedGpulet& gpulet : taken) place_of[gpulet.turns.front().model] = &gpulet;

  PlacedPlan plan(problem, state_->tables, taken);
  plan.settle();
  plan.grow();
  return plan.finish([&](std::size_t model, double left, std::size_t devices_used) {
    if (!state_->servable(model)) return explain_unserved(problem, model, left, devices_used);
    if (place_of[model] != nullptr) {
      const double rate = problem.models()[model]->rate;
      return in_words(rate - left) + " of " + in_words(rate) + " requests/s fit at its place, " +
             state_->name_of(*place_of[model]) +
             ": give it a larger share or fewer neighbours, lower the rate, or raise the SLO";
    }
    if (!why[model].empty()) return why[model];
    return std::string("the placement has no place for it: add one");
  });
}

}  // namespace gpulet::schedule
