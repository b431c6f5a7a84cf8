#include "schedule/mig/mig_policy.h"

#include <algorithm>
#include <vector>

#include "gpulet/schedule/mig_policies.h"
#include "schedule/cover/filled_device.h"
#include "schedule/finish.h"
#include "schedule/mig/most_served.h"

namespace gpulet::schedule {
namespace {

class MigPlanner {
 public:
  explicit MigPlanner(const PlanInput& input) : problem_(input, Division::by_mig) {
    for (const ModelDemand* demand : problem_.models()) left_.push_back(demand->rate);
  }

  Plan run(std::string_view policy, const MigAlgorithm& algorithm) {
    for (std::uint32_t index = 0; index < problem_.classes().size(); ++index)
      fill_class(index, algorithm);
    return finish(policy, draft_of(problem_, filled_));
  }

 private:
  void fill_class(std::uint32_t index, const MigAlgorithm& algorithm) {
    const std::size_t budget = std::min(problem_.classes()[index].devices.size(),
                                        problem_.device_budget() - filled_.size());
    const mig::Task task = task_of(index);
    if (task.services.empty() || budget == 0) return;
    mig::Deployment deployment = algorithm(task);
    if (deployment.devices.size() > budget) deployment = most_served(deployment, task, budget);
    fill_devices(index, task, deployment);
  }

  // Services are the models of which something is left and that some profile serves: models_.
  [[nodiscard]] mig::Task task_of(std::uint32_t index) {
    const DeviceClass& known = problem_.classes()[index];
    mig::Task task{*known.example->mig, {}};
    models_.clear();
    for (std::uint32_t model = 0; model < left_.size(); ++model) {
      if (left_[model] <= 0) continue;
      mig::Service service{problem_.models()[model]->name, left_[model], {}};
      for (std::size_t size = 0; size < known.sizes.size(); ++size)
        service.rate_on.push_back(problem_.row(model, index, size).most_rate);
      if (*std::max_element(service.rate_on.begin(), service.rate_on.end()) <= 0) continue;
      task.services.push_back(std::move(service));
      models_.push_back(model);
    }
    return task;
  }

  // Every instance of a service takes the same part of what it could serve.
  void fill_devices(std::uint32_t index, const mig::Task& task, const mig::Deployment& deployment) {
    const std::vector<double> capacity = mig::throughput(deployment, task);
    std::vector<double> part(task.services.size(), 0);
    for (std::size_t service = 0; service < task.services.size(); ++service) {
      double& left = left_[models_[service]];
      if (capacity[service] > 0) part[service] = std::min(1.0, left / capacity[service]);
      left = std::max(0.0, left - capacity[service]);
    }
    for (const mig::Configuration& device : deployment.devices) {
      FilledDevice& filled = filled_.emplace_back();
      filled.device_class = index;
      for (const mig::Placed& placed : device) {
        const auto size = static_cast<std::uint32_t>(task.geometry.find(placed.instance.slices) -
                                                     task.geometry.profiles().data());
        const double rate = mig::rate_of(placed, task) * part[placed.service];
        filled.gpulets.push_back({size, {{models_[placed.service], rate}}});
      }
    }
  }

  Problem problem_;
  std::vector<FilledDevice> filled_;
  std::vector<double> left_;           // of each model's rate
  std::vector<std::uint32_t> models_;  // of the task's services
};

}  // namespace

Plan MigPolicy::plan(const PlanInput& input) const {
  return MigPlanner(input).run(name_, algorithm_);
}

MigTwoPhase::MigTwoPhase()
    : MigPolicy("mig-two-phase", [](const mig::Task& task) { return mig::two_phase(task, {}); }) {}
MigGreedy::MigGreedy() : MigPolicy("mig-greedy", mig::greedy) {}
MigWhole::MigWhole() : MigPolicy("mig-whole", mig::whole_devices) {}
MigSmall::MigSmall() : MigPolicy("mig-7x1", mig::small_instances) {}
MigMix::MigMix() : MigPolicy("mig-mix", mig::fixed_mix) {}

std::unique_ptr<Policy> make_mig_two_phase(mig::TwoPhaseOptions options) {
  return std::make_unique<MigPolicy>("mig-two-phase",
                                     [options = std::move(options)](const mig::Task& task) {
                                       return mig::two_phase(task, options);
                                     });
}

}  // namespace gpulet::schedule
