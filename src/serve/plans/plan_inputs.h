// PlanInputs: what the next plan is made from: devices, demands, what runs and what stays. It also
// tells whether that still holds when the plan is made. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "serve/models/failures.h"
#include "serve/plans/demands_to_plan.h"

namespace gpulet::serve {

class PlanInputs {
 public:
  // All outlive it.
  PlanInputs(const FrontendOptions& options, DemandsToPlan& demands, const Fleet& fleet,
             ModelTable& models, FailureHandler& failures, Feedback& feedback,
             Deployment& deployment)
      : options_(options),
        demands_(demands),
        fleet_(fleet),
        models_(models),
        failures_(failures),
        feedback_(feedback),
        deployment_(deployment) {}

  // The devices that plans may use: those with a profile.
  [[nodiscard]] schedule::Cluster cluster();
  // Request number `number`, for these devices. `roomy`: as of Demands::next().
  [[nodiscard]] MakePlan request(schedule::Cluster cluster, std::uint64_t number, bool roomy,
                                 Time now);

  // ---- of the last request

  // As the registry reports them. A gpulet with a model that is not wanted any more is reported as
  // unusable, so that the plan retires it and its memory is free again.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running_gpulets() const;
  // No device of the plan was lost since.
  [[nodiscard]] bool devices_remain(const schedule::Plan& plan) const;
  // The plan creates no gpulets on devices where they fail, unless it was to.
  [[nodiscard]] bool may_create(const schedule::Plan& plan, const schedule::Steps& steps) const;

 private:
  // The parts of the plan in force on excluded devices that stay.
  [[nodiscard]] std::vector<schedule::PlannedGpulet> keep_on(
      const std::set<schedule::DeviceKey>& closed,
      const std::vector<schedule::ModelDemand>& demands);

  const FrontendOptions& options_;
  DemandsToPlan& demands_;
  const Fleet& fleet_;
  ModelTable& models_;
  FailureHandler& failures_;
  Feedback& feedback_;
  Deployment& deployment_;
  std::set<GpuletId> kept_;     // by the plan being made, on excluded devices
  bool uses_excluded_ = false;  // the plan being made may use excluded devices
};

}  // namespace gpulet::serve
