#include "gpulet/schedule/check.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/scaling.h"
#include "schedule/check_parts.h"

namespace gpulet::schedule {
namespace {

using partition::MigInstance;

// NaN fails every comparison.
bool at_most(double value, double limit) {
  return value <= limit + kCheckTolerance * std::abs(limit);
}
bool equal(double a, double b) {
  return std::abs(a - b) <= kCheckTolerance * std::max(std::abs(a), std::abs(b));
}

double number(std::integral auto count) { return static_cast<double>(count); }

class Checker {
 public:
  Checker(const Plan& plan, const PlanInput& input) : plan_(plan), input_(input) {
    for (const Device& device : input.cluster.devices) devices_[device.key] = &device;
    for (const ModelDemand& demand : input.demands) demands_[demand.name] = &demand;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      if (gpulet.instance) ++processes_[{gpulet.device, *gpulet.instance}];
    }
  }

  std::vector<Violation> run() {
    if (input_.profiles == nullptr) return {{.cause = ViolationCause::no_profiles}};
    for (const PlannedGpulet& gpulet : plan_.gpulets) check_gpulet(gpulet);
    check_devices();
    check_coverage();
    return std::move(violations_);
  }

 private:
  void wrong(Violation violation) { violations_.push_back(std::move(violation)); }
  void wrong(const PlannedGpulet& gpulet, ViolationCause cause, Violation values = {}) {
    wrong(violation_of(gpulet, cause, std::move(values)));
  }
  void wrong(const PlannedGpulet& gpulet, const Assignment& assignment, ViolationCause cause,
             Violation values = {}) {
    wrong(violation_of(gpulet, assignment, cause, std::move(values)));
  }
  void wrong(std::vector<Violation> violations) {
    std::move(violations.begin(), violations.end(), std::back_inserter(violations_));
  }

  // Null for a device that the cluster does not have.
  const Device* device_of(const PlannedGpulet& gpulet) const {
    const auto found = devices_.find(gpulet.device);
    return found == devices_.end() ? nullptr : found->second;
  }

  const profile::Profile* profile_of(const Device& device) const {
    const auto found = input_.profiles->find(device.type);
    return found == input_.profiles->end() ? nullptr : &found->second;
  }

  const profile::ModelProfile* profile_of(const Device& device, const std::string& model) const {
    const profile::Profile* const profile = profile_of(device);
    return profile == nullptr ? nullptr : profile->find(model);
  }

  // How many processes of the gpulet's instance take batches from one queue in turns.
  std::uint32_t turns_of(const PlannedGpulet& gpulet, const Device& device) const {
    const profile::Profile* const profile = profile_of(device);
    return gpulet.instance && profile != nullptr && profile->knows_processes()
               ? processes_.at({gpulet.device, *gpulet.instance})
               : 1;
  }

  // The latencies of a measured model in one of the gpulet's processes.
  const profile::LatencyTable& table_of(const PlannedGpulet& gpulet,
                                        const profile::ModelProfile& measured) const {
    return measured.latency_of(gpulet.instance ? processes_.at({gpulet.device, *gpulet.instance})
                                               : 1);
  }

  void check_gpulet(const PlannedGpulet& gpulet) {
    const Device* device = device_of(gpulet);
    if (device == nullptr) {
      wrong(gpulet, ViolationCause::unknown_device);
      return;
    }
    if (gpulet.assignments.empty()) wrong(gpulet, ViolationCause::no_model);
    if (gpulet.assignments.size() > kMostModelsOfGpulet) {
      wrong(gpulet, ViolationCause::too_many_models,
            {.found = number(gpulet.assignments.size()), .expected = number(kMostModelsOfGpulet)});
    }
    if (gpulet.service == Service::rounds) {
      check_rounds(gpulet, *device);
    } else {
      wrong(check_service(*device, gpulet, profile_of(*device), input_.options.margin));
    }
    std::set<std::string> seen;
    for (const Assignment& assignment : gpulet.assignments) {
      const auto demand = demands_.find(assignment.model);
      if (gpulet.assignments.size() > 1 && demand != demands_.end() && demand->second->alone) {
        wrong(gpulet, assignment, ViolationCause::shares_alone);
      }
      if (!seen.insert(assignment.model).second)
        wrong(gpulet, assignment, ViolationCause::model_twice);
      check_demanded(gpulet, assignment);
    }
  }

  void check_rounds(const PlannedGpulet& gpulet, const Device& device) {
    if (std::find(device.sizes.begin(), device.sizes.end(), gpulet.size) == device.sizes.end()) {
      wrong(gpulet, ViolationCause::unlisted_size);
    }
    if (!(gpulet.duty_cycle_ms > 0) || !std::isfinite(gpulet.duty_cycle_ms)) {
      wrong(gpulet, ViolationCause::duty_cycle, {.found = gpulet.duty_cycle_ms});
    }
    double busy_ms = 0;
    for (const Assignment& assignment : gpulet.assignments) {
      if (!(assignment.rate > 0 && std::isfinite(assignment.rate))) {
        wrong(gpulet, assignment, ViolationCause::rate, {.found = assignment.rate});
      }
      check_latency(gpulet, assignment, device);
      check_round(gpulet, assignment, turns_of(gpulet, device));
      busy_ms += assignment.latency_ms;
    }
    if (input_.options.headroom == Headroom::poisson) check_arrivals(gpulet, device);
    if (!at_most(busy_ms, gpulet.duty_cycle_ms)) {
      wrong(gpulet, ViolationCause::round_too_long,
            {.found = busy_ms, .expected = gpulet.duty_cycle_ms});
    }
  }

  void check_demanded(const PlannedGpulet& gpulet, const Assignment& assignment) {
    const auto demand = demands_.find(assignment.model);
    if (demand == demands_.end()) {
      wrong(gpulet, assignment, ViolationCause::not_demanded);
      return;
    }
    if (!equal(assignment.slo_ms, demand->second->slo_ms)) {
      wrong(gpulet, assignment, ViolationCause::other_objective,
            {.found = assignment.slo_ms, .expected = demand->second->slo_ms});
    }
    if (assignment.batch < 1 || assignment.batch > demand->second->max_batch) {
      wrong(gpulet, assignment, ViolationCause::batch_out_of_range,
            {.expected = number(demand->second->max_batch), .batch = assignment.batch});
    }
  }

  void check_latency(const PlannedGpulet& gpulet, const Assignment& assignment,
                     const Device& device) {
    if (!(assignment.slowdown >= 1) || !std::isfinite(assignment.slowdown)) {
      wrong(gpulet, assignment, ViolationCause::slowdown_below_one, {.found = assignment.slowdown});
    }
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    if (measured == nullptr) {
      wrong(gpulet, assignment, ViolationCause::not_in_profile, {.type = device.type});
      return;
    }
    const profile::LatencyTable& table = table_of(gpulet, *measured);
    const std::optional<double> alone_ms = table.latency_ms(assignment.batch, gpulet.size);
    if (!alone_ms) {
      wrong(gpulet, assignment, ViolationCause::batch_not_measured,
            {.batch = assignment.batch, .type = device.type});
      return;
    }
    const double expected_ms =
        *alone_ms * assignment.slowdown * margin_of(input_.options.margin, table);
    if (!equal(assignment.latency_ms, expected_ms)) {
      wrong(gpulet, assignment, ViolationCause::latency,
            {.found = assignment.latency_ms, .expected = expected_ms, .batch = assignment.batch});
    }
  }

  void check_round(const PlannedGpulet& gpulet, const Assignment& assignment, std::uint32_t turns) {
    const double arrivals = assignment.rate * gpulet.duty_cycle_ms / 1000;
    const bool at_intervals = input_.options.headroom == Headroom::none;
    if (at_intervals && !at_most(arrivals, assignment.batch)) {
      wrong(gpulet, assignment, ViolationCause::batch_below_arrivals,
            {.found = arrivals, .expected = number(assignment.batch), .batch = assignment.batch});
    }
    const double longest_ms = gpulet.duty_cycle_ms / turns + assignment.latency_ms;
    if (!at_most(longest_ms, assignment.slo_ms)) {
      wrong(gpulet, assignment, ViolationCause::objective_missed,
            {.found = longest_ms, .expected = assignment.slo_ms});
    }
  }

  void check_arrivals(const PlannedGpulet& gpulet, const Device& device) {
    std::vector<MeasuredAssignment> measured;
    for (const Assignment& assignment : gpulet.assignments) {
      const auto demand = demands_.find(assignment.model);
      if (demand == demands_.end() || !is_measured(device, gpulet, assignment)) return;
      if (assignment.batch > demand->second->max_batch) return;  // reported by check_demanded()
      measured.push_back({assignment, table_of(gpulet, *profile_of(device, assignment.model)),
                          demand->second->max_batch});
    }
    for (const OverfullBatch& one :
         overfull_batches(measured, gpulet.size, input_.options.margin, turns_of(gpulet, device))) {
      const Assignment& assignment = gpulet.assignments[one.at];
      wrong(gpulet, assignment, ViolationCause::late_by_chance,
            {.found = one.arrivals,
             .expected = one.held,
             .batch = assignment.batch,
             .cycle_ms = one.cycle_ms});
    }
  }

  void check_devices() {
    std::map<DeviceKey, std::vector<const PlannedGpulet*>> by_device;
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      if (device_of(gpulet) != nullptr) by_device[gpulet.device].push_back(&gpulet);
    }
    for (const auto& [key, gpulets] : by_device) check_device(*devices_.at(key), gpulets);
    std::map<std::string, std::size_t> by_node;
    for (const PlannedGpulet& gpulet : plan_.gpulets) ++by_node[gpulet.device.node];
    for (const auto& [node, gpulets] : by_node) {
      if (gpulets <= kMostGpuletsOfNode) continue;
      wrong({.cause = ViolationCause::too_many_gpulets_of_node,
             .device = DeviceKey{node, 0},
             .found = number(gpulets),
             .expected = number(kMostGpuletsOfNode)});
    }
    const std::optional<std::uint32_t> most = input_.options.max_devices;
    if (most && by_device.size() > *most) {
      wrong({.cause = ViolationCause::too_many_devices,
             .found = number(by_device.size()),
             .expected = number(*most)});
    }
  }

  void check_device(const Device& device, const std::vector<const PlannedGpulet*>& gpulets) {
    int percent = 0;
    double memory_mb = 0;
    std::set<MigInstance> instances;  // each counts once as a share
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance || instances.insert(*gpulet->instance).second)
        percent += gpulet->size.percent;
      for (const Assignment& assignment : gpulet->assignments) {
        const profile::ModelProfile* measured = profile_of(device, assignment.model);
        if (measured != nullptr) memory_mb += measured->memory_mb.value_or(0);
      }
    }
    if (percent > kWholeDevice.percent) {
      wrong({.cause = ViolationCause::share_exceeded,
             .device = device.key,
             .found = number(percent),
             .expected = number(kWholeDevice.percent)});
    }
    const bool has_rounds = std::any_of(gpulets.begin(), gpulets.end(), [](const auto* gpulet) {
      return gpulet->service == Service::rounds;
    });
    if (has_rounds && gpulets.size() > device.max_partitions) {
      wrong({.cause = ViolationCause::too_many_gpulets,
             .device = device.key,
             .found = number(gpulets.size()),
             .expected = number(device.max_partitions)});
    }
    wrong(check_services(device, gpulets));
    wrong(check_mig(device, gpulets, profile_of(device)));
    if (has_rounds) {
      for (const PlannedGpulet* gpulet : gpulets) check_slowdowns(device, gpulets, *gpulet);
    }
    if (device.memory_mb > 0 && !at_most(memory_mb, device.memory_mb)) {
      wrong({.cause = ViolationCause::memory_exceeded,
             .device = device.key,
             .found = memory_mb,
             .expected = device.memory_mb});
    }
  }

  void check_slowdowns(const Device& device, const std::vector<const PlannedGpulet*>& gpulets,
                       const PlannedGpulet& gpulet) {
    if (input_.interference == nullptr || device.mig) return;  // MIG isolates instances
    const auto model = input_.interference->find(device.type);
    if (model == input_.interference->end()) return;
    const auto traits = [&](const Assignment& of, const PlannedGpulet& where) {
      return model->second.traits(of.model, of.batch, where.size);
    };
    for (const Assignment& assignment : gpulet.assignments) {
      if (!is_measured(device, gpulet, assignment)) continue;
      double expected = 1;
      for (const PlannedGpulet* other : gpulets) {
        if (other == &gpulet) continue;
        double worst = 1;
        for (const Assignment& beside : other->assignments) {
          if (!is_measured(device, *other, beside)) continue;
          worst = std::max(
              worst, model->second.slowdown(traits(assignment, gpulet), traits(beside, *other)));
        }
        expected = profile::add_neighbour(expected, worst);
      }
      if (at_most(expected, assignment.slowdown)) continue;
      wrong(gpulet, assignment, ViolationCause::slowdown_by_neighbours,
            {.found = assignment.slowdown, .expected = expected});
    }
  }

  // Whether the profile has the latency of the assignment. If not, check_latency reports it.
  [[nodiscard]] bool is_measured(const Device& device, const PlannedGpulet& gpulet,
                                 const Assignment& assignment) const {
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    return measured != nullptr && assignment.batch > 0 &&
           table_of(gpulet, *measured).latency_ms(assignment.batch, gpulet.size).has_value();
  }

  void check_coverage() {
    std::map<std::string, double> accounted;
    std::set<std::string> without_rounds;
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      for (const Assignment& assignment : gpulet.assignments) {
        accounted[assignment.model] += assignment.rate;
        if (gpulet.service != Service::rounds) without_rounds.insert(assignment.model);
      }
    }
    std::set<std::string> seen;
    for (const Unserved& unserved : plan_.unserved) {
      if (!seen.insert(unserved.model).second)
        wrong({.cause = ViolationCause::unserved_twice, .model = unserved.model});
      if (demands_.find(unserved.model) == demands_.end())
        wrong({.cause = ViolationCause::unserved_not_demanded, .model = unserved.model});
      if (!(unserved.rate > 0)) {
        wrong({.cause = ViolationCause::unserved_rate,
               .model = unserved.model,
               .found = unserved.rate});
      }
      accounted[unserved.model] += unserved.rate;
    }
    for (const ModelDemand& demand : input_.demands) {
      const double rate = accounted[demand.name];
      if (rate == 0 && without_rounds.contains(demand.name)) continue;
      if (!equal(rate, demand.rate)) {
        wrong({.cause = ViolationCause::not_covered,
               .model = demand.name,
               .found = rate,
               .expected = demand.rate});
      }
    }
  }

  const Plan& plan_;
  const PlanInput& input_;
  std::map<DeviceKey, const Device*> devices_;
  std::map<std::string, const ModelDemand*> demands_;
  std::map<std::pair<DeviceKey, MigInstance>, std::uint32_t> processes_;  // of each instance
  std::vector<Violation> violations_;
};

// Whether the policy chose a batch of every model of the gpulet.
bool has_choice_of_all(const PlannedGpulet& gpulet) {
  const std::vector<Assignment>& chosen = gpulet.policy_choice->assignments;
  return std::all_of(
      gpulet.assignments.begin(), gpulet.assignments.end(), [&chosen](const Assignment& one) {
        return std::any_of(chosen.begin(), chosen.end(),
                           [&one](const Assignment& other) { return other.model == one.model; });
      });
}

}  // namespace

std::vector<Violation> check(const Plan& plan, const PlanInput& input) {
  std::vector<Violation> violations = Checker(plan, input).run();
  bool uses_spare = false;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (!gpulet.policy_choice) continue;
    uses_spare = true;
    if (!has_choice_of_all(gpulet))
      violations.push_back(violation_of(gpulet, ViolationCause::choice_lacks_model));
  }
  if (!uses_spare) return violations;
  for (Violation& violation : Checker(without_spare(plan), input).run()) {
    violation.without_spare = true;
    violations.push_back(std::move(violation));
  }
  return violations;
}

}  // namespace gpulet::schedule
