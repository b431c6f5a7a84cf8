// InstanceController: connects CoreControl with the frontend. It tells it the instances with
// controlled cores, gives it readings of their models once a period, and sends the resulting
// numbers of cores to the backends. Pure; one thread at a time.
#pragma once

#include "serve/core_control.h"
#include "serve/model_registry.h"

namespace gpulet::serve {

class InstanceController {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    const BackendRegistry& backends;
    const ProfilesInForce& profiles;
    const ModelRegistry& models;
    const Deployment& deployment;
  };

  InstanceController(CoreControl& control, const Dependencies& dependencies)
      : control_(control), core_(dependencies) {}

  // The routes changed: controls the instances that serve now.
  void follow_routes(Time now, FrontendEffects& effects);
  // One control step, if it is due.
  void step_if_due(Time now, FrontendEffects& effects);
  [[nodiscard]] Time next_step() const { return control_.next_step(); }

 private:
  void send_changes(FrontendEffects& effects);

  CoreControl& control_;
  const Dependencies core_;
};

}  // namespace gpulet::serve
