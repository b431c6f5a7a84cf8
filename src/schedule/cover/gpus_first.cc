// GPUs first, CPUs for the rest: how `cover` and `auto` plan for clusters that have both.
//
// A CPU costs the core-seconds that its gpulets reserve, a GPU nothing. So CPUs are used only where
// the GPUs cannot serve everything, and then as few cores as possible: models go to the CPUs in
// descending order of the GPU time that a core-second of theirs relieves, and a search finds the
// least that the GPUs must be relieved of. Of the last model a part of the rate goes.
//
// The gpulets in force stay where they serve exactly the demanded rates. Otherwise they stay unless
// another plan serves more, or as much with at least kLeastSaving of the cores saved.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/plan_builder.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

// The search for the least GPU time that CPUs must take over ends after that many plans, or as soon
// as it knows that time to that fraction of the GPUs' time.
constexpr int kMostPlans = 10;
constexpr double kPrecision = 0.0025;
constexpr double kLeastSaving = 0.1;

// The least time of a request within its SLO, on devices of a kind; infinite where none meets it.
// On GPUs in seconds of a whole device, on CPUs in core-seconds.
double least_time(const PlanInput& input, const ModelDemand& demand, bool on_cpus) {
  double least = std::numeric_limits<double>::infinity();
  std::set<std::tuple<std::string_view, double, std::vector<Share>>> seen;
  for (const Device& device : input.cluster.devices) {
    if (is_cpu(device) != on_cpus || !seen.emplace(device.type, device.cores, device.sizes).second)
      continue;
    const profile::ModelProfile* const model = input.profiles->at(device.type).find(demand.name);
    if (model == nullptr) continue;
    const double margin = margin_of(input.options.margin, model->latency);
    const double whole = on_cpus ? device.cores : 1;
    for (const Share size : device.sizes) {
      for (std::uint32_t batch = 1; batch <= demand.max_batch; batch *= 2) {
        const auto latency_ms = model->latency.latency_ms(batch, size);
        if (!latency_ms || 2 * *latency_ms * margin > demand.slo_ms) continue;
        least = std::min(least, *latency_ms / 1000 * size.fraction() * whole / batch);
      }
    }
  }
  return least;
}

// The smallest size of the gpulet at which its round holds.
std::uint32_t least_size(const PlanContext& context, std::uint32_t device_class,
                         const BuilderGpulet& gpulet) {
  std::vector<BatchSlot> slots = gpulet.slots;
  for (std::uint32_t size = 0; size < gpulet.size; ++size) {
    for (BatchSlot& slot : slots) slot.curve = &context.curve(slot.model, device_class, size);
    if (min_duty_cycle_ms(slots)) return size;
  }
  return gpulet.size;
}

// The same gpulets with the least sizes that serve their rates; the builder where that serves less.
PlanBuilder with_least_sizes(PlanContext& context, PlanBuilder builder) {
  std::vector<FilledDevice> devices(builder.devices().size());
  for (std::size_t at = 0; at < devices.size(); ++at)
    devices[at].device_class = builder.devices()[at].device_class;
  for (const BuilderGpulet& gpulet : builder.gpulets()) {
    if (gpulet.slots.empty()) continue;
    FilledDevice& device = devices[gpulet.device];
    FilledGpulet& filled = device.gpulets.emplace_back();
    filled.size = least_size(context, device.device_class, gpulet);
    for (const BatchSlot& slot : gpulet.slots) filled.portions.push_back({slot.model, slot.rate});
  }
  PlanBuilder smaller = build_from(context, devices);
  return smaller.unplaced_fraction() <= builder.unplaced_fraction() ? std::move(smaller)
                                                                    : std::move(builder);
}

class GpusFirst {
 public:
  GpusFirst(const PlanInput& input, const PlanFunction& plan)
      : input_(input), plan_(plan), gpus_(input), cpus_(input) {
    gpus_.cluster = without_cpus(input.cluster);
    std::erase_if(cpus_.cluster.devices, [](const Device& device) { return !is_cpu(device); });
  }

  Plan run() {
    Plan plan = plan_(gpus_);
    if (plan.schedulable() || !cpus_allowed()) return plan;
    const std::optional<Plan> continued = continue_current();
    if (continued && continued->schedulable() && serves_exactly(*input_.current)) return *continued;
    plan = relieve(std::move(plan));
    if (!continued) return plan;
    const double gained = unserved_part(*continued) - unserved_part(plan);
    if (gained > kRoundingSlack) return plan;
    const bool saves = gained >= -kRoundingSlack &&
                       reserved_cores(plan) < (1 - kLeastSaving) * reserved_cores(*continued);
    return saves ? plan : *continued;
  }

 private:
  // A model that CPUs can serve.
  struct Movable {
    std::size_t demand = 0;  // index into the input's demands
    double gpu_time = 0;     // of its whole rate: devices; infinite where only CPUs serve it
    double cores = 0;        // of its whole rate
  };

  // Whether the limit on devices leaves any for CPUs.
  [[nodiscard]] bool cpus_allowed() const {
    return !input_.options.max_devices ||
           *input_.options.max_devices > gpus_.cluster.devices.size();
  }

  // The gpulets in force with the present rates; empty without a plan in force.
  [[nodiscard]] std::optional<Plan> continue_current() const {
    if (input_.current == nullptr) return std::nullopt;
    PlanContext context(input_, Division::either);
    Plan plan = finish(resume_current_plan(context));
    explain_all_unserved(context, &plan);
    return plan;
  }

  [[nodiscard]] bool serves_exactly(const Plan& plan) const {
    std::map<std::string_view, double> served;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      for (const Assignment& one : gpulet.assignments) served[one.model] += one.rate;
    }
    return std::all_of(
        input_.demands.begin(), input_.demands.end(), [&served](const ModelDemand& demand) {
          return std::abs(served[demand.name] - demand.rate) <= kRoundingSlack * demand.rate;
        });
  }

  [[nodiscard]] double reserved_cores(const Plan& plan) const {
    std::map<DeviceKey, double> cores;
    for (const Device& device : cpus_.cluster.devices) cores[device.key] = device.cores;
    double sum = 0;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      const auto found = cores.find(gpulet.device);
      if (found != cores.end()) sum += gpulet.size.fraction() * found->second;
    }
    return sum;
  }

  // In the order in which they go to CPUs.
  [[nodiscard]] std::vector<Movable> movable() const {
    std::vector<Movable> models;
    for (std::size_t index = 0; index < input_.demands.size(); ++index) {
      const ModelDemand& demand = input_.demands[index];
      const double core_s = least_time(input_, demand, true);
      if (demand.rate <= 0 || core_s == std::numeric_limits<double>::infinity()) continue;
      models.push_back(
          {index, demand.rate * least_time(input_, demand, false), demand.rate * core_s});
    }
    std::sort(models.begin(), models.end(), [&](const Movable& a, const Movable& b) {
      const double left = a.gpu_time / a.cores;
      const double right = b.gpu_time / b.cores;
      if (left != right) return left > right;
      return input_.demands[a.demand].name < input_.demands[b.demand].name;
    });
    return models;
  }

  // Divides the demands: models that only CPUs serve, and others until the GPUs are relieved of
  // `gpu_time`.
  void divide(const std::vector<Movable>& models, double gpu_time) {
    gpus_.demands = input_.demands;
    cpus_.demands.clear();
    for (const Movable& model : models) {
      const bool only_cpus = model.gpu_time == std::numeric_limits<double>::infinity();
      const double part = only_cpus ? 1 : std::min(1.0, gpu_time / model.gpu_time);
      if (!(part > kRoundingSlack)) break;
      if (!only_cpus) gpu_time -= part * model.gpu_time;
      ModelDemand& moved = cpus_.demands.emplace_back(input_.demands[model.demand]);
      moved.rate *= part;
      gpus_.demands[model.demand].rate -= moved.rate;
      if (part >= 1) gpus_.demands[model.demand].rate = 0;
    }
  }

  // `all_on_gpus`: the plan that has no CPU, which leaves demand unserved.
  Plan relieve(Plan all_on_gpus) {
    const std::vector<Movable> models = movable();
    gpus_.options.budget_ms = input_.options.budget_ms / kMostPlans;
    double least = 0;
    std::optional<Plan> relieved = least_relieved(models, all_on_gpus, &least);
    std::optional<Plan> best;
    if (relieved) {
      divide(models, least);
      best = with_cpus(*std::move(relieved), cpus_.demands);
      if (best->schedulable()) return *std::move(best);
    }
    // The CPUs are too few: perhaps they serve more of what the GPUs leave by themselves.
    std::vector<ModelDemand> left;
    for (const Unserved& unserved : all_on_gpus.unserved) {
      left.push_back(demand_of(unserved.model));
      left.back().rate = unserved.rate;
    }
    Plan other = with_cpus(std::move(all_on_gpus), std::move(left));
    return best && unserved_part(*best) <= unserved_part(other) ? *std::move(best)
                                                                : std::move(other);
  }

  // Searches for the least GPU time that CPUs must take over, and writes it to `least`. Returns the
  // GPUs' plan for the rest. Empty where the GPUs cannot even serve the models that no CPU serves.
  // The search begins with the time of the rates that `all_on_gpus` leaves unserved.
  [[nodiscard]] std::optional<Plan> least_relieved(const std::vector<Movable>& models,
                                                   const Plan& all_on_gpus, double* least) {
    double most = 0;
    double tried = 0;
    for (const Movable& model : models) {
      if (model.gpu_time == std::numeric_limits<double>::infinity()) continue;
      most += model.gpu_time;
      tried += model.gpu_time * unserved_part(all_on_gpus, input_.demands[model.demand]);
    }
    const double precision = kPrecision * static_cast<double>(gpus_.cluster.devices.size());
    if (tried > 0) tried = std::min(most, std::max(tried, precision));  // not a rest of rounding
    std::optional<Plan> relieved;
    double too_little = 0;
    for (int plans = 1; plans <= kMostPlans; ++plans) {
      divide(models, tried);
      Plan plan = plan_(gpus_);
      if (plan.schedulable()) {
        *least = tried;
        relieved = std::move(plan);
        if (*least - too_little <= precision) break;
      } else {
        if (tried >= most) break;
        too_little = tried;
      }
      const bool last = plans + 1 == kMostPlans;
      tried = relieved ? (too_little + *least) / 2
                       : (last ? most : std::min(most, 2 * tried + precision));
    }
    return relieved;
  }

  [[nodiscard]] const ModelDemand& demand_of(std::string_view model) const {
    return *std::find_if(input_.demands.begin(), input_.demands.end(),
                         [model](const ModelDemand& one) { return one.name == model; });
  }

  // The sum over models of the unserved fraction.
  [[nodiscard]] double unserved_part(const Plan& plan) const {
    double sum = 0;
    for (const Unserved& one : plan.unserved) sum += one.rate / demand_of(one.model).rate;
    return sum;
  }

  [[nodiscard]] static double unserved_part(const Plan& plan, const ModelDemand& demand) {
    const auto found = std::find_if(plan.unserved.begin(), plan.unserved.end(),
                                    [&](const Unserved& one) { return one.model == demand.name; });
    return found == plan.unserved.end() ? 0 : found->rate / demand.rate;
  }

  // The plan for the GPUs, with one for the demands that the CPUs get.
  [[nodiscard]] Plan with_cpus(Plan plan, std::vector<ModelDemand> demands) const {
    PlanInput rest = cpus_;
    rest.demands = std::move(demands);
    if (rest.options.max_devices) *rest.options.max_devices -= plan.devices_used();
    PlanContext context(rest);
    Plan on_cpus = finish(with_least_sizes(context, elastic_partitioning(context)));
    plan.gpulets.insert(plan.gpulets.end(), on_cpus.gpulets.begin(), on_cpus.gpulets.end());
    std::stable_sort(
        plan.gpulets.begin(), plan.gpulets.end(),
        [](const PlannedGpulet& a, const PlannedGpulet& b) { return a.device < b.device; });
    plan.unserved = std::move(on_cpus.unserved);
    plan.lower_bound.reset();
    explain_all_unserved(PlanContext(input_, Division::either), &plan);
    return plan;
  }

  const PlanInput& input_;
  const PlanFunction& plan_;
  PlanInput gpus_;
  PlanInput cpus_;
};

}  // namespace

Plan plan_gpus_first(const PlanInput& input, const PlanFunction& plan) {
  const auto cpus =
      std::count_if(input.cluster.devices.begin(), input.cluster.devices.end(), is_cpu);
  if (cpus == 0 || static_cast<std::size_t>(cpus) == input.cluster.devices.size())
    return plan(input);
  return GpusFirst(input, plan).run();
}

}  // namespace gpulet::schedule
