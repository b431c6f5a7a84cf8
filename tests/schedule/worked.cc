#include "tests/schedule/worked.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <utility>

#include "gpulet/research/research.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::schedule::testing {

void add_profile(Worked& worked, const std::string& type, const std::vector<ModelLatency>& models) {
  profile::Profile& added = (*worked.profiles)[type];
  added.name = type;
  for (const ModelLatency& model : models) {
    std::vector<profile::LatencySample> samples;
    for (const int percent : {20, 40, 50, 60, 80, 100}) {
      for (const std::uint32_t batch : {1U, model.largest}) {
        profile::LatencySample sample;
        sample.batch = batch;
        sample.share = Share{percent};
        sample.latency_ms = (model.fixed_ms + model.per_request_ms * batch) * 100 / percent;
        samples.push_back(sample);
      }
    }
    profile::ModelProfile measured{profile::LatencyTable::create(samples).value(), {}, {}};
    if (model.memory_mb > 0) measured.memory_mb = model.memory_mb;
    added.models.emplace(model.name, std::move(measured));
  }
}

void add_devices(Worked& worked, const std::string& node, const std::string& type,
                 std::uint32_t count) {
  std::uint32_t number = 0;
  for (const Device& device : worked.input.cluster.devices) {
    if (device.key.node == node) number = device.key.device + 1;
  }
  for (std::uint32_t copy = 0; copy < count; ++copy) {
    Device device;
    device.key = {node, number + copy};
    device.type = type;
    device.partitioning = "simulated";
    device.sizes = {{20}, {40}, {50}, {60}, {80}, {100}};
    worked.input.cluster.devices.push_back(device);
  }
}

void divide_by_mig(Device& device, std::string_view geometry, std::uint32_t processes) {
  device.mig = partition::MigGeometry::of(geometry).value();
  device.sizes.clear();
  for (const partition::MigProfile& profile : device.mig->profiles())
    device.sizes.push_back(device.mig->share_of(profile.slices));
  device.processes_per_instance = processes;
  device.max_partitions = device.mig->compute_slices() * processes;
}

void divide_by_mig(Worked& worked, std::string_view geometry, std::uint32_t processes) {
  for (Device& device : worked.input.cluster.devices) divide_by_mig(device, geometry, processes);
}

std::vector<std::string_view> policy_names() {
  const PolicyTable policies = research::policies();
  std::vector<std::string_view> names = policies.names();
  std::erase_if(names, [&policies](std::string_view name) {
    return policies.make(name).value()->has_own_timing();
  });
  return names;
}

std::vector<std::string_view> share_policies() {
  std::vector<std::string_view> names = policy_names();
  std::erase_if(names,
                [](std::string_view name) { return name.starts_with("mig-") || name == "roma"; });
  return names;
}

std::unique_ptr<Policy> policy(std::string_view name) {
  return std::move(research::policies().make(name)).value();
}

std::string violations(const Plan& plan, const PlanInput& input) {
  std::string text;
  for (const Violation& violation : check(plan, input)) text += to_string(violation) + "\n";
  return text;
}

namespace {

void describe(const PlannedGpulet& gpulet, std::ostream& text) {
  text << gpulet.device.node << '/' << gpulet.device.device << ' ' << gpulet.size.percent << " % ";
  if (gpulet.instance) text << to_string(*gpulet.instance);
  text << " in " << gpulet.duty_cycle_ms << " ms:";
  for (const Assignment& one : gpulet.assignments)
    text << ' ' << one.model << ' ' << one.rate << " in " << one.batch;
  text << '\n';
}

void describe(const Unserved& unserved, std::ostream& text) {
  text << "unserved " << unserved.model << ' ' << unserved.rate << ": " << unserved.reason << '\n';
}

// The members of `one` that `other` does not have.
template <typename Value>
void describe_missing(const std::vector<Value>& one, const std::vector<Value>& other,
                      std::ostream& text) {
  for (const Value& value : one) {
    if (std::find(other.begin(), other.end(), value) == other.end()) describe(value, text);
  }
}

}  // namespace

std::string differences(const Plan& one, const Plan& other) {
  std::ostringstream text;
  text << std::setprecision(17);
  for (const auto& [plan, beside] : {std::pair{&one, &other}, std::pair{&other, &one}}) {
    text << (plan == &one ? "one:" : "other:") << " bound " << plan->lower_bound.value_or(0)
         << '\n';
    describe_missing(plan->gpulets, beside->gpulets, text);
    describe_missing(plan->unserved, beside->unserved, text);
  }
  return text.str();
}

double served(const Plan& plan, const std::string& model) {
  double rate = 0;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    for (const Assignment& assignment : gpulet.assignments) {
      if (assignment.model == model) rate += assignment.rate;
    }
  }
  return rate;
}

Moves count_moves(const Plan& current, const Plan& next) {
  std::vector<RunningGpulet> running;
  running.reserve(current.gpulets.size());
  for (const PlannedGpulet& planned : current.gpulets) {
    RunningGpulet& gpulet = running.emplace_back();
    gpulet.id = GpuletId{running.size()};
    gpulet.device = planned.device;
    gpulet.size = planned.size;
    gpulet.instance = planned.instance;
    for (const Assignment& assignment : planned.assignments) {
      gpulet.models.push_back({assignment.model, assignment.batch});
    }
  }
  const Steps steps = reconcile(running, next);
  return {steps.keep.size(), steps.create.size(), steps.retire.size()};
}

}  // namespace gpulet::schedule::testing
