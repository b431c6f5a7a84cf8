#include "gpulet/schedule/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "schedule/check_executables.h"
#include "schedule/check_mig.h"
#include "schedule/late_by_chance.h"

namespace gpulet::schedule {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Comparisons are written so that NaN fails them.
bool at_most(double value, double limit) {
  return value <= limit + kCheckTolerance * std::abs(limit);
}
bool equal(double a, double b) {
  return std::abs(a - b) <= kCheckTolerance * std::max(std::abs(a), std::abs(b));
}

std::string name_of(const PlannedGpulet& gpulet) {
  return gpulet.device.node + "/" + std::to_string(gpulet.device.device) + " at " +
         std::to_string(gpulet.size.percent) + " %";
}

class Checker {
 public:
  Checker(const Plan& plan, const PlanInput& input) : plan_(plan), input_(input) {
    for (const Device& device : input.cluster.devices) devices_[device.key] = &device;
    for (const ModelDemand& demand : input.demands) demands_[demand.name] = &demand;
  }

  std::vector<std::string> run() {
    if (input_.profiles == nullptr) return {"the plan cannot be checked without profiles"};
    for (const PlannedGpulet& gpulet : plan_.gpulets) check_gpulet(gpulet);
    check_devices();
    check_coverage();
    return std::move(violations_);
  }

 private:
  void wrong(const std::string& what) { violations_.push_back(what); }

  // nullptr, and a violation, for a device that the cluster does not have.
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

  void check_gpulet(const PlannedGpulet& gpulet) {
    const std::string name = name_of(gpulet);
    const Device* device = device_of(gpulet);
    if (device == nullptr) {
      wrong("gpulet " + name + ": the cluster has no such device");
      return;
    }
    if (gpulet.assignments.empty()) wrong("gpulet " + name + ": holds no model");
    if (gpulet.assignments.size() > kMostModelsOfGpulet) {
      wrong("gpulet " + name + ": holds " + std::to_string(gpulet.assignments.size()) +
            " models, at most " + std::to_string(kMostModelsOfGpulet) + " are possible");
    }
    if (gpulet.service == Service::rounds) {
      check_rounds(gpulet, *device);
    } else {
      for (const std::string& what :
           check_executable(*device, gpulet, profile_of(*device), input_.options.margin)) {
        wrong("gpulet " + name + ": " + what);
      }
    }
    std::set<std::string> seen;
    for (const Assignment& assignment : gpulet.assignments) {
      const auto demand = demands_.find(assignment.model);
      if (gpulet.assignments.size() > 1 && demand != demands_.end() && demand->second->alone) {
        wrong("gpulet " + name + ": '" + assignment.model +
              "' is to have gpulets of its own, and shares this one");
      }
      if (!seen.insert(assignment.model).second) {
        wrong("gpulet " + name + ": holds '" + assignment.model + "' twice");
      }
      check_demanded(gpulet, assignment);
    }
  }

  void check_rounds(const PlannedGpulet& gpulet, const Device& device) {
    const std::string name = name_of(gpulet);
    if (std::find(device.sizes.begin(), device.sizes.end(), gpulet.size) == device.sizes.end()) {
      wrong("gpulet " + name + ": the device does not list that size");
    }
    if (!(gpulet.duty_cycle_ms > 0) || !std::isfinite(gpulet.duty_cycle_ms)) {
      wrong("gpulet " + name + ": a duty cycle of " + number(gpulet.duty_cycle_ms) + " ms is none");
    }
    double busy_ms = 0;
    for (const Assignment& assignment : gpulet.assignments) {
      check_rate(gpulet, assignment);
      check_latency(gpulet, assignment, device);
      check_round(gpulet, assignment);
      busy_ms += assignment.latency_ms;
    }
    if (!at_most(busy_ms, gpulet.duty_cycle_ms)) {
      wrong("gpulet " + name + ": its round takes " + number(busy_ms) +
            " ms, longer than the duty cycle of " + number(gpulet.duty_cycle_ms) + " ms");
    }
  }

  void check_rate(const PlannedGpulet& gpulet, const Assignment& assignment) {
    if (assignment.rate > 0 && std::isfinite(assignment.rate)) return;
    wrong("gpulet " + name_of(gpulet) + ", model '" + assignment.model + "': a rate of " +
          number(assignment.rate) + " requests/s is none");
  }

  void check_demanded(const PlannedGpulet& gpulet, const Assignment& assignment) {
    const std::string where = "gpulet " + name_of(gpulet) + ", model '" + assignment.model + "': ";
    const auto demand = demands_.find(assignment.model);
    if (demand == demands_.end()) {
      wrong(where + "nobody demands it");
      return;
    }
    if (!equal(assignment.slo_ms, demand->second->slo_ms)) {
      wrong(where + "planned for an SLO of " + number(assignment.slo_ms) + " ms, demanded is " +
            number(demand->second->slo_ms) + " ms");
    }
    if (assignment.batch < 1 || assignment.batch > demand->second->max_batch) {
      wrong(where + "a batch of " + std::to_string(assignment.batch) + " is outside 1.." +
            std::to_string(demand->second->max_batch) + ", the demand's max_batch");
    }
  }

  void check_latency(const PlannedGpulet& gpulet, const Assignment& assignment,
                     const Device& device) {
    const std::string where = "gpulet " + name_of(gpulet) + ", model '" + assignment.model + "': ";
    if (!(assignment.slowdown >= 1) || !std::isfinite(assignment.slowdown)) {
      wrong(where + "a slowdown of " + number(assignment.slowdown) + " is less than 1");
    }
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    if (measured == nullptr) {
      wrong(where + "the profile of '" + device.type + "' does not have it");
      return;
    }
    const std::optional<double> alone_ms =
        measured->latency.latency_ms(assignment.batch, gpulet.size);
    if (!alone_ms) {
      wrong(where + "the profile of '" + device.type + "' has no latency of batch " +
            std::to_string(assignment.batch) + " at that size");
      return;
    }
    const double expected_ms = *alone_ms * assignment.slowdown * input_.options.margin;
    if (!equal(assignment.latency_ms, expected_ms)) {
      wrong(where + "states " + number(assignment.latency_ms) + " ms for batch " +
            std::to_string(assignment.batch) + ", the profile with slowdown and margin says " +
            number(expected_ms) + " ms");
    }
  }

  void check_round(const PlannedGpulet& gpulet, const Assignment& assignment) {
    const std::string where = "gpulet " + name_of(gpulet) + ", model '" + assignment.model + "': ";
    const double arrivals = assignment.rate * gpulet.duty_cycle_ms / 1000;
    if (!at_most(arrivals, assignment.batch)) {
      wrong(where + number(arrivals) + " requests arrive in a round, its batch holds " +
            std::to_string(assignment.batch));
    }
    const double longest_ms = gpulet.duty_cycle_ms + assignment.latency_ms;
    if (!at_most(longest_ms, assignment.slo_ms)) {
      wrong(where + "a request may take " + number(longest_ms) + " ms, its SLO is " +
            number(assignment.slo_ms) + " ms");
    }
    if (input_.options.headroom == Headroom::poisson) check_headroom(gpulet, assignment, where);
  }

  void check_headroom(const PlannedGpulet& gpulet, const Assignment& assignment,
                      const std::string& where) {
    const double rounds = (assignment.slo_ms - assignment.latency_ms) / gpulet.duty_cycle_ms;
    const double mean = assignment.rate * gpulet.duty_cycle_ms / 1000;
    const double late = late_by_chance(assignment.batch, rounds * (1 + kCheckTolerance),
                                       mean * (1 - kCheckTolerance));
    if (!at_most(late, kMostLateByChance)) {
      wrong(where + number(100 * late) + " % of Poisson arrivals are late, at most " +
            number(100 * kMostLateByChance) + " % may be: batches of " +
            std::to_string(assignment.batch) + " for " + number(mean) + " requests a round");
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
      wrong("node " + node + ": holds " + std::to_string(gpulets) + " gpulets, at most " +
            std::to_string(kMostGpuletsOfNode) + " are possible");
    }
    const std::optional<std::uint32_t> most = input_.options.max_devices;
    if (most && by_device.size() > *most) {
      wrong("the plan uses " + std::to_string(by_device.size()) + " devices, at most " +
            std::to_string(*most) + " are allowed");
    }
  }

  void check_device(const Device& device, const std::vector<const PlannedGpulet*>& gpulets) {
    const std::string where =
        "device " + device.key.node + "/" + std::to_string(device.key.device) + ": ";
    int percent = 0;
    double memory_mb = 0;
    std::set<partition::MigInstance> instances;  // a share for each, however many run in it
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance || instances.insert(*gpulet->instance).second)
        percent += gpulet->size.percent;
      for (const Assignment& assignment : gpulet->assignments) {
        const profile::ModelProfile* measured = profile_of(device, assignment.model);
        if (measured != nullptr) memory_mb += measured->memory_mb.value_or(0);
      }
    }
    if (percent > kWholeDevice.percent) {
      wrong(where + "its gpulets add up to " + std::to_string(percent) + " %, more than 100");
    }
    const bool has_rounds = std::any_of(gpulets.begin(), gpulets.end(), [](const auto* gpulet) {
      return gpulet->service == Service::rounds;
    });
    if (has_rounds && gpulets.size() > device.max_partitions) {
      wrong(where + "holds " + std::to_string(gpulets.size()) + " gpulets, at most " +
            std::to_string(device.max_partitions) + " are possible");
    }
    for (const std::string& what : check_executables_together(gpulets)) wrong(where + what);
    for (const std::string& what : check_mig(device, gpulets, profile_of(device)))
      wrong(where + what);
    if (has_rounds) {
      for (const PlannedGpulet* gpulet : gpulets) check_slowdowns(device, gpulets, *gpulet);
    }
    if (device.memory_mb > 0 && !at_most(memory_mb, device.memory_mb)) {
      wrong(where + "its models need " + number(memory_mb) + " MB, it has " +
            number(device.memory_mb) + " MB");
    }
  }

  void check_slowdowns(const Device& device, const std::vector<const PlannedGpulet*>& gpulets,
                       const PlannedGpulet& gpulet) {
    if (input_.interference == nullptr || device.mig) return;  // MIG keeps neighbours apart
    const auto model = input_.interference->find(device.type);
    if (model == input_.interference->end()) return;
    const auto traits = [&](const Assignment& of, const PlannedGpulet& where) {
      return model->second.traits(of.model, of.batch, where.size);
    };
    for (const Assignment& assignment : gpulet.assignments) {
      if (!answers(device, gpulet, assignment)) continue;
      double expected = 1;
      for (const PlannedGpulet* other : gpulets) {
        if (other == &gpulet) continue;
        double worst = 1;
        for (const Assignment& beside : other->assignments) {
          if (!answers(device, *other, beside)) continue;
          worst = std::max(
              worst, model->second.slowdown(traits(assignment, gpulet), traits(beside, *other)));
        }
        expected = profile::add_neighbour(expected, worst);
      }
      if (at_most(expected, assignment.slowdown)) continue;
      wrong("gpulet " + name_of(gpulet) + ", model '" + assignment.model +
            "': reckons with a slowdown of " + number(assignment.slowdown) +
            ", its neighbours cause " + number(expected));
    }
  }

  // Whether the profile has the latency of the assignment; if not, check_latency says so.
  [[nodiscard]] bool answers(const Device& device, const PlannedGpulet& gpulet,
                             const Assignment& assignment) const {
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    return measured != nullptr && assignment.batch > 0 &&
           measured->latency.latency_ms(assignment.batch, gpulet.size).has_value();
  }

  void check_coverage() {
    std::map<std::string, double> accounted;
    std::set<std::string> as_well_as_may_be;  // by executables
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      for (const Assignment& assignment : gpulet.assignments) {
        accounted[assignment.model] += assignment.rate;
        if (gpulet.service != Service::rounds) as_well_as_may_be.insert(assignment.model);
      }
    }
    std::set<std::string> seen;
    for (const Unserved& unserved : plan_.unserved) {
      if (!seen.insert(unserved.model).second)
        wrong("'" + unserved.model + "' is reported as unserved twice");
      if (demands_.find(unserved.model) == demands_.end()) {
        wrong("'" + unserved.model + "' is reported as unserved, but nobody demands it");
      }
      if (!(unserved.rate > 0)) {
        wrong("'" + unserved.model + "' is reported as unserved with a rate of " +
              number(unserved.rate) + " requests/s");
      }
      accounted[unserved.model] += unserved.rate;
    }
    for (const ModelDemand& demand : input_.demands) {
      const double rate = accounted[demand.name];
      if (rate == 0 && as_well_as_may_be.contains(demand.name)) continue;
      if (!equal(rate, demand.rate)) {
        wrong("'" + demand.name + "': " + number(demand.rate) +
              " requests/s are demanded, the plan assigns or reports " + number(rate));
      }
    }
  }

  const Plan& plan_;
  const PlanInput& input_;
  std::map<DeviceKey, const Device*> devices_;
  std::map<std::string, const ModelDemand*> demands_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> check(const Plan& plan, const PlanInput& input) {
  return Checker(plan, input).run();
}

}  // namespace gpulet::schedule
