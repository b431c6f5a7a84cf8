#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

// The sum over services of the fraction of the need that the device completes.
double gain_of(const mig::DeviceConfiguration& device, const mig::DeploymentTask& task,
               const std::vector<double>& needed) {
  std::map<std::uint32_t, double> rates;
  for (const mig::PlacedService& placed : device)
    rates[placed.service] += mig::rate_of(placed, task);
  double gain = 0;
  for (const auto& [service, rate] : rates)
    gain += std::min(rate, needed[service]) / task.services[service].need;
  return gain;
}

// The `devices` devices of the deployment that serve most: repeatedly adds the one that completes
// the largest sum of needs. REQUIRES: the deployment has at least that many.
mig::Deployment most_served(const mig::Deployment& deployment, const mig::DeploymentTask& task,
                            std::size_t devices) {
  std::vector<double> needed;
  for (const mig::Service& service : task.services) needed.push_back(service.need);
  std::vector<mig::DeviceConfiguration> others = deployment.devices;
  mig::Deployment chosen;
  while (chosen.devices.size() < devices) {
    std::size_t best = 0;
    double best_gain = -1;
    for (std::size_t at = 0; at < others.size(); ++at) {
      const double gain = gain_of(others[at], task, needed);
      if (gain <= best_gain) continue;
      best = at;
      best_gain = gain;
    }
    for (const mig::PlacedService& placed : others[best]) {
      double& need = needed[placed.service];
      need = std::max(0.0, need - mig::rate_of(placed, task));
    }
    chosen.devices.push_back(std::move(others[best]));
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return chosen;
}

class MigPlanner {
 public:
  explicit MigPlanner(const PlanInput& input) : context_(input, Division::by_mig) {
    for (const ModelDemand* demand : context_.models()) left_.push_back(demand->rate);
  }

  Plan run(const MigAlgorithm& algorithm) {
    for (std::uint32_t index = 0; index < context_.classes().size(); ++index)
      fill_class(index, algorithm);
    return finish(build_from(context_, filled_));
  }

 private:
  void fill_class(std::uint32_t index, const MigAlgorithm& algorithm) {
    const std::size_t budget = std::min(context_.classes()[index].devices.size(),
                                        context_.device_budget() - filled_.size());
    const mig::DeploymentTask task = task_of(index);
    if (task.services.empty() || budget == 0) return;
    mig::Deployment deployment = algorithm(task);
    if (deployment.devices.size() > budget) deployment = most_served(deployment, task, budget);
    fill_devices(index, task, deployment);
  }

  // Sets models_: the models with unserved demand that some profile can serve.
  [[nodiscard]] mig::DeploymentTask task_of(std::uint32_t index) {
    const DeviceClass& known = context_.classes()[index];
    mig::DeploymentTask task{*known.example->mig, {}};
    models_.clear();
    for (std::uint32_t model = 0; model < left_.size(); ++model) {
      if (left_[model] <= 0) continue;
      mig::Service service{context_.models()[model]->name, left_[model], {}};
      for (std::size_t size = 0; size < known.sizes.size(); ++size)
        service.rate_on.push_back(context_.own_curve(model, index, size).max_rate);
      if (*std::max_element(service.rate_on.begin(), service.rate_on.end()) <= 0) continue;
      task.services.push_back(std::move(service));
      models_.push_back(model);
    }
    return task;
  }

  // All instances of a service get the same fraction of their capacity.
  void fill_devices(std::uint32_t index, const mig::DeploymentTask& task,
                    const mig::Deployment& deployment) {
    const std::vector<double> capacity = mig::throughput(deployment, task);
    std::vector<double> part(task.services.size(), 0);
    for (std::size_t service = 0; service < task.services.size(); ++service) {
      double& left = left_[models_[service]];
      if (capacity[service] > 0) part[service] = std::min(1.0, left / capacity[service]);
      left = std::max(0.0, left - capacity[service]);
    }
    for (const mig::DeviceConfiguration& device : deployment.devices) {
      FilledDevice& filled = filled_.emplace_back();
      filled.device_class = index;
      for (const mig::PlacedService& placed : device) {
        const auto size = static_cast<std::uint32_t>(task.geometry.find(placed.instance.slices) -
                                                     task.geometry.profiles().data());
        const double rate = mig::rate_of(placed, task) * part[placed.service];
        filled.gpulets.push_back({size, {{models_[placed.service], rate}}});
      }
    }
  }

  PlanContext context_;
  std::vector<FilledDevice> filled_;
  std::vector<double> left_;           // unserved rate, by model
  std::vector<std::uint32_t> models_;  // by service of the task
};

}  // namespace

Plan plan_mig(const PlanInput& input, const MigAlgorithm& algorithm) {
  return MigPlanner(input).run(algorithm);
}

Plan plan_mig_greedy(const PlanInput& input) { return plan_mig(input, mig::greedy); }

Plan plan_mig_two_phase(const PlanInput& input) {
  return plan_mig(input, [](const mig::DeploymentTask& task) { return mig::two_phase(task, {}); });
}

std::unique_ptr<Policy> make_mig_two_phase(mig::TwoPhaseOptions options) {
  const MigAlgorithm algorithm = [options = std::move(options)](const mig::DeploymentTask& task) {
    return mig::two_phase(task, options);
  };
  return policy_of("mig-two-phase",
                   [algorithm](const PlanInput& input) { return plan_mig(input, algorithm); });
}

Plan with_mig_devices(const PlanInput& input, Plan plan) {
  const bool has_mig = std::any_of(input.cluster.devices.begin(), input.cluster.devices.end(),
                                   [](const Device& device) { return device.mig.has_value(); });
  if (!has_mig || plan.schedulable()) return plan;
  PlanInput rest = input;
  std::erase_if(rest.demands, [&](ModelDemand& demand) {
    const auto unserved =
        std::find_if(plan.unserved.begin(), plan.unserved.end(),
                     [&demand](const Unserved& one) { return one.model == demand.name; });
    if (unserved == plan.unserved.end()) return true;
    demand.rate = unserved->rate;
    return false;
  });
  if (rest.options.max_devices) *rest.options.max_devices -= plan.devices_used();
  Plan on_mig = plan_mig_greedy(rest);
  plan.gpulets.insert(plan.gpulets.end(), on_mig.gpulets.begin(), on_mig.gpulets.end());
  std::stable_sort(
      plan.gpulets.begin(), plan.gpulets.end(),
      [](const PlannedGpulet& a, const PlannedGpulet& b) { return a.device < b.device; });
  plan.unserved = std::move(on_mig.unserved);
  return plan;
}

}  // namespace gpulet::schedule
