#include "gpulet/schedule/shortage.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::schedule {
namespace {

constexpr int kBisections = 10;
// Of the devices' time: a model that has no place even so has none at all.
constexpr double kLeastPart = 1.0 / 256;

// Device time (seconds of a whole device) that a request of the model takes at the least, where its
// objective is met; infinite where it never is.
double least_device_time(const profile::Profile& profile, const Device& device,
                         const ModelDemand& demand, double margin) {
  double least = std::numeric_limits<double>::infinity();
  const profile::ModelProfile* const model = profile.find(demand.name);
  if (model == nullptr) return least;
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
      : policy_(policy), input_(input), asked_(input.demands) {
    std::set<std::string> seen;
    for (const ModelDemand& demand : asked_) {
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
    const auto there = static_cast<std::uint32_t>(input_.cluster.devices.size());
    const double devices = std::min(there, input_.options.max_devices.value_or(there));
    leave_out_hopeless(devices * kLeastPart, whole.unserved);
    Plan best = plan_part(devices * kLeastPart);
    if (!best.schedulable() || best.gpulets.empty()) return whole;
    double enough = devices * kLeastPart;
    double too_much = devices;
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
    tell_unserved(best);
    return best;
  }

 private:
  // Every model gets what it asks for, up to so many devices' time.
  [[nodiscard]] Plan plan_part(double part) {
    input_.demands.clear();
    for (const ModelDemand& demand : asked_) {
      if (hopeless_.contains(demand.name)) continue;
      ModelDemand cut = demand;
      cut.rate = std::min(demand.rate, part / device_time_.at(demand.name));
      input_.demands.push_back(cut);
    }
    return policy_.plan(input_);
  }

  void leave_out_hopeless(double part, const std::vector<Unserved>& unserved) {
    for (const Unserved& one : unserved) {
      if (device_time_.at(one.model) == std::numeric_limits<double>::infinity())
        hopeless_.emplace(one.model, one.reason);
    }
    for (const Unserved& one : plan_part(part).unserved) hopeless_.emplace(one.model, one.reason);
  }

  void tell_unserved(Plan& plan) const {
    std::map<std::string, double> served;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      for (const Assignment& one : gpulet.assignments) served[one.model] += one.rate;
    }
    for (const ModelDemand& demand : asked_) {
      const double rest = demand.rate - served[demand.name];
      if (rest <= 1e-9 * demand.rate) continue;
      const auto hopeless = hopeless_.find(demand.name);
      std::array<char, 96> text{};
      std::snprintf(text.data(), text.size(),
                    "its fair part of the devices is %.1f of %.1f requests/s; add devices",
                    served[demand.name], demand.rate);
      plan.unserved.push_back(
          {demand.name, rest, hopeless == hopeless_.end() ? text.data() : hopeless->second});
    }
    std::sort(plan.unserved.begin(), plan.unserved.end(),
              [](const Unserved& a, const Unserved& b) { return a.model < b.model; });
  }

  const Policy& policy_;
  PlanInput input_;
  const std::vector<ModelDemand> asked_;
  std::map<std::string, double> device_time_;    // per request, by model
  std::map<std::string, std::string> hopeless_;  // model to reason
};

}  // namespace

Plan share_shortage(const Policy& policy, const PlanInput& input, Plan whole) {
  if (whole.schedulable()) return whole;
  return Shortage(policy, input).run(std::move(whole));
}

}  // namespace gpulet::schedule
