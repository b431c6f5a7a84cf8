#include "gpulet/schedule/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::schedule {
namespace {

std::uint32_t most_devices(const PlanInput& input) {
  const auto there = static_cast<std::uint32_t>(input.cluster.devices.size());
  return std::min(there, input.options.max_devices.value_or(there));
}

class Scaling {
 public:
  Scaling(const Policy& policy, const PlanInput& input, const ScalingOptions& options)
      : policy_(policy), limited_(input), raised_(input), budget_ms_(input.options.budget_ms) {
    for (ModelDemand& demand : raised_.demands) {
      demand.rate *= std::max(1.0, options.give_back_reserve);
    }
    raised_.current = nullptr;
    limit_ = most_devices(input);
    min_devices_ = std::min(options.min_devices, limit_);
    const std::uint32_t now = input.current != nullptr ? input.current->devices_used() : 0;
    in_use_ = std::clamp(options.in_use.value_or(now), min_devices_, limit_);
  }

  ScalingResult run() {
    Choice chosen = choice_of(exact(in_use_) ? in_use_ : limit_);
    if (chosen.plan.schedulable()) {
      chosen.devices = std::max(in_use_, chosen.plan.devices_used());
      chosen = with_fewer(std::move(chosen));
    } else if (chosen.devices < limit_) {
      chosen = with_more(chosen.devices);
    }
    return {std::move(chosen.plan), chosen.devices,
            static_cast<std::int64_t>(chosen.devices) - static_cast<std::int64_t>(in_use_)};
  }

 private:
  struct Choice {
    std::uint32_t devices = 0;
    Plan plan;  // for the demand itself, with at most that many devices
  };

  // Whether a plan with that many devices may look for the last one.
  [[nodiscard]] bool exact(std::uint32_t devices) const {
    return devices * limited_.demands.size() <= kSmallPlan;
  }

  // Mostly the first plan with devices is the one that is needed: it gets half of the budget.
  [[nodiscard]] Plan plan_with(PlanInput& input, std::uint32_t devices) {
    if (devices > 0) budget_ms_ /= 2;
    input.options.budget_ms = budget_ms_;
    input.options.max_devices = devices;
    return policy_.plan(input);
  }
  [[nodiscard]] Choice choice_of(std::uint32_t devices) {
    return {devices, plan_with(limited_, devices)};
  }

  // The fewest devices that serve the demand, more than `too_few`; else the limit.
  [[nodiscard]] Choice with_more(std::uint32_t too_few) {
    Choice enough = choice_of(limit_);
    if (!enough.plan.schedulable()) return enough;
    enough.devices = std::max(min_devices_, enough.plan.devices_used());
    while (enough.devices > too_few + 1 && exact(enough.devices)) {
      Choice middle = choice_of(too_few + (enough.devices - too_few) / 2);
      if (middle.plan.schedulable()) {
        enough = std::move(middle);
      } else {
        too_few = middle.devices;
      }
    }
    return enough;
  }

  // Gives back the devices that the raised demand can spare.
  [[nodiscard]] Choice with_fewer(Choice enough) {
    const std::uint32_t fewer = fewest_for_raised(enough.devices);
    if (fewer >= enough.devices) return enough;
    Choice chosen = choice_of(fewer);
    // Policies are not monotonic in the load or in the devices.
    while (!chosen.plan.schedulable() && chosen.devices + 1 < enough.devices)
      chosen = choice_of(chosen.devices + (enough.devices - chosen.devices + 1) / 2);
    return chosen.plan.schedulable() ? std::move(chosen) : std::move(enough);
  }

  // The fewest devices that serve the raised demand, or `most` where it needs at least as many.
  [[nodiscard]] std::uint32_t fewest_for_raised(std::uint32_t most) {
    const Plan compact = plan_with(raised_, limit_);
    if (!compact.schedulable()) return most;
    std::uint32_t enough = std::max(min_devices_, compact.devices_used());
    if (enough > most && !exact(most)) return most;
    enough = std::min(enough, most);
    std::uint32_t least = std::max(min_devices_, compact.lower_bound.value_or(0));
    bool bisect = false;
    for (std::uint32_t step = 1; enough > least && exact(enough); step *= 2) {
      const std::uint32_t distance = enough - least;
      const std::uint32_t fewer = bisect ? (distance + 1) / 2 : std::min(step, distance);
      const Plan plan = plan_with(raised_, enough - fewer);
      if (plan.schedulable()) {
        enough = std::max(min_devices_, plan.devices_used());
      } else {
        least = enough - fewer + 1;
        bisect = true;
      }
    }
    return enough;
  }

  const Policy& policy_;
  PlanInput limited_;  // with the demand itself
  PlanInput raised_;   // with the demand times the reserve, and no plan in force
  double budget_ms_;   // what is left of it
  std::uint32_t limit_ = 0;
  std::uint32_t min_devices_ = 0;
  std::uint32_t in_use_ = 0;
};

}  // namespace

ScalingResult scale(const Policy& policy, const PlanInput& input, const ScalingOptions& options) {
  return Scaling(policy, input, options).run();
}

namespace {

constexpr int kBisections = 7;
constexpr int kPlans = kBisections + 2;  // for a plan that shares a shortage
// The smallest part of the devices' time. A model that does not fit even so is left out.
constexpr double kMinPart = 1.0 / 256;

// The least device time (seconds of a whole device) of a request within its SLO; infinite where no
// batch meets the SLO.
double least_device_time(const profile::Profile& profile, const Device& device,
                         const ModelDemand& demand, const std::optional<double>& asked_margin) {
  double least = std::numeric_limits<double>::infinity();
  const profile::ModelProfile* const model = profile.find(demand.name);
  if (model == nullptr) return least;
  const double margin = margin_of(asked_margin, model->latency);
  for (const Share size : device.sizes) {
    for (std::uint32_t batch = 1; batch <= demand.max_batch; batch *= 2) {
      const auto latency_ms = model->latency.latency_ms(batch, size);
      if (!latency_ms || 2 * *latency_ms * margin > demand.slo_ms) continue;
      least = std::min(least, *latency_ms / 1000 * size.percent / 100 / batch);
    }
  }
  return least;
}

class Shortage {
 public:
  Shortage(const Policy& policy, const PlanInput& input)
      : policy_(policy), input_(input), demands_(input.demands) {
    input_.options.budget_ms /= kPlans;  // all of them together have the budget
    std::set<std::string> seen;
    for (const ModelDemand& demand : demands_) {
      double& least = device_time_[demand.name];
      least = std::numeric_limits<double>::infinity();
      seen.clear();
      for (const Device& device : input.cluster.devices) {
        if (!seen.insert(device.type).second) continue;
        least = std::min(least, least_device_time(input.profiles->at(device.type), device, demand,
                                                  input.options.margin));
      }
    }
  }

  Plan run(Plan whole) {
    const double devices = most_devices(input_);
    leave_out_unplaceable(devices * kMinPart, whole.unserved);
    Plan best = plan_part(devices * kMinPart);
    if (!best.schedulable() || best.gpulets.empty()) return whole;
    double enough = devices * kMinPart;
    double too_much = most_part(devices);
    for (int step = 0; step < kBisections; ++step) {
      const double part = (enough + too_much) / 2;
      Plan plan = plan_part(part);
      if (plan.schedulable()) {
        best = std::move(plan);
        enough = part;
      } else {
        too_much = part;
      }
    }
    list_unserved_rates(best);
    return best;
  }

 private:
  // The plan where every model gets its demand, up to `part` devices' time.
  [[nodiscard]] Plan plan_part(double part) {
    input_.demands.clear();
    for (const ModelDemand& demand : demands_) {
      if (unplaceable_.contains(demand.name)) continue;
      ModelDemand cut = demand;
      cut.rate = std::min(demand.rate, part / device_time_.at(demand.name));
      input_.demands.push_back(cut);
    }
    return policy_.plan(input_);
  }

  // No part beyond it: even with the least time for each request, the parts of all models are then
  // more than the devices have.
  [[nodiscard]] double most_part(double devices) const {
    std::vector<double> needs;
    for (const ModelDemand& demand : demands_) {
      if (!unplaceable_.contains(demand.name))
        needs.push_back(demand.rate * device_time_.at(demand.name));
    }
    std::sort(needs.begin(), needs.end());
    double left = devices;
    for (std::size_t at = 0; at < needs.size(); ++at) {
      const double equal = left / static_cast<double>(needs.size() - at);
      if (needs[at] > equal) return equal;
      left -= needs[at];
    }
    return devices;
  }

  void leave_out_unplaceable(double part, const std::vector<Unserved>& unserved) {
    for (const Unserved& one : unserved) {
      if (device_time_.at(one.model) == std::numeric_limits<double>::infinity())
        unplaceable_.emplace(one.model, one.reason);
    }
    for (const Unserved& one : plan_part(part).unserved)
      unplaceable_.emplace(one.model, one.reason);
  }

  void list_unserved_rates(Plan& plan) const {
    std::map<std::string, double> served;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      for (const Assignment& one : gpulet.assignments) served[one.model] += one.rate;
    }
    for (const ModelDemand& demand : demands_) {
      const double rest = demand.rate - served[demand.name];
      if (rest <= 1e-9 * demand.rate) continue;
      const auto unplaceable = unplaceable_.find(demand.name);
      plan.unserved.push_back(
          {demand.name, rest,
           unplaceable != unplaceable_.end()
               ? unplaceable->second
               : fmt::format(
                     "its fair part of the devices is {:.1f} of {:.1f} requests/s; add devices",
                     served[demand.name], demand.rate)});
    }
    std::sort(plan.unserved.begin(), plan.unserved.end(),
              [](const Unserved& a, const Unserved& b) { return a.model < b.model; });
  }

  const Policy& policy_;
  PlanInput input_;
  const std::vector<ModelDemand> demands_;
  std::map<std::string, double> device_time_;       // per request, by model
  std::map<std::string, std::string> unplaceable_;  // model to reason
};

}  // namespace

Plan share_shortage(const Policy& policy, const PlanInput& input, Plan whole) {
  if (whole.schedulable()) return whole;
  return Shortage(policy, input).run(std::move(whole));
}

}  // namespace gpulet::schedule
