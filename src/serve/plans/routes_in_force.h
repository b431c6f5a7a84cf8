// RoutesInForce: brings the routes of the gpulets that serve into force. Pure; one thread at a
// time.
#pragma once

#include <vector>

#include "serve/adapt/cpu_control.h"
#include "serve/adapt/feedback.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/dispatch.h"
#include "serve/deploy/fleet.h"
#include "serve/models/model_registry.h"

namespace gpulet::serve {

class RoutesInForce {
 public:
  // All outlive it.
  RoutesInForce(const FrontendOptions& options, Dispatch& dispatch, const Fleet& fleet,
                ModelRegistry& models, InstanceController& instances, Feedback& feedback,
                Deployment& deployment)
      : options_(options),
        dispatch_(dispatch),
        fleet_(fleet),
        models_(models),
        instances_(instances),
        feedback_(feedback),
        deployment_(deployment) {}

  // The routes follow ServingPlan::serving().
  void update(Time now, FrontendEffects& effects);

 private:
  // REQUIRES: the gpulet is registered.
  [[nodiscard]] GpuletRoute route_of(GpuletId id, const schedule::PlannedGpulet& planned) const;
  // The expected duration of each batch size. Empty: the profiles do not tell.
  [[nodiscard]] std::vector<Duration> execution_of(const schedule::PlannedGpulet& planned,
                                                   const schedule::Assignment& assignment) const;

  const FrontendOptions& options_;
  Dispatch& dispatch_;
  const Fleet& fleet_;
  ModelRegistry& models_;
  InstanceController& instances_;
  Feedback& feedback_;
  Deployment& deployment_;
};

}  // namespace gpulet::serve
