// RolloutController: brings a plan into force. It creates the new gpulets, waits until they are
// ready, changes the routes in one step and retires what is left. It does not wait long: gpulets
// that are ready later join then, and what they replace serves until they do. Pure; one thread at a
// time.
#pragma once

#include <string>
#include <vector>

#include "serve/core_control.h"
#include "serve/failures.h"
#include "serve/feedback.h"

namespace gpulet::serve {

class RolloutController {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    Demands& demands;
    BackendRegistry& backends;
    const ProfilesInForce& profiles;
    ModelRegistry& models;
    FailureHandler& failures;
    InstanceController& instances;
    Feedback& feedback;
    Deployment& deployment;
    PlanRequests& plan_requests;
    PlanHistory& history;
    EventLog& log;
    ResponseWriter& responses;
  };

  RolloutController(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  // `steps`: from the gpulets that run to the plan.
  void begin(schedule::Plan plan, schedule::Steps steps, Time now, FrontendEffects& effects);
  // Takes the next step of the rollout, if there is one.
  void advance(Time now, FrontendEffects& effects);
  // The next call of advance() can do something at once.
  [[nodiscard]] bool has_more_to_do() const {
    return core_.deployment.rollout() && core_.deployment.rollout()->has_to_create();
  }
  // The routes follow Deployment::serving().
  void put_routes_in_force(Time now, FrontendEffects& effects);
  // Serves with the gpulets that the backend brought, if no plan was begun yet.
  void adopt_gpulets(BackendId backend, Time now, FrontendEffects& effects);

 private:
  [[nodiscard]] bool proven(const schedule::PlannedGpulet& planned) const;
  // Tells backends to create some of the plan's new gpulets.
  void create_gpulets(Time now, FrontendEffects& effects);
  void create_gpulet(GpuletId id, Time now, FrontendEffects& effects);
  [[nodiscard]] std::uint32_t batch_to_probe(const schedule::DeviceKey& device,
                                             const std::string& model,
                                             std::uint32_t max_batch) const;
  // The memory of its models, as profiled; 0 if one of them was not measured.
  [[nodiscard]] double memory_needed_mb(const schedule::PlannedGpulet& planned) const;
  // A model that nothing serves need not wait for the gpulets of others.
  void route_unserved_models(Time now, FrontendEffects& effects);
  // Retires the old gpulets of devices that cannot hold new ones beside them.
  void clear_devices(Time now, FrontendEffects& effects);
  void create_postponed(Time now, FrontendEffects& effects);
  // The gpulet serves a model of which the rollout's gpulets are not all ready.
  [[nodiscard]] bool stands_in(GpuletId id) const;
  void give_up_devices(Time now, FrontendEffects& effects);
  void activate(Time now, FrontendEffects& effects);
  // The gpulet serves its part of the plan in force from now on. REQUIRES: it is registered.
  void serve(GpuletId id, const schedule::PlannedGpulet& planned, FrontendEffects& effects);
  // Gpulets of the plan in force that are ready now get their routes.
  void join_missing(Time now, FrontendEffects& effects);
  // REQUIRES: the gpulet is registered.
  [[nodiscard]] GpuletRoute route_of(GpuletId id, const schedule::PlannedGpulet& planned) const;
  // The expected duration of each batch size. Empty: the profiles do not tell.
  [[nodiscard]] std::vector<Duration> execution_of(const schedule::PlannedGpulet& planned,
                                                   const schedule::Assignment& assignment) const;
  [[nodiscard]] bool adoptable(const GpuletRecord& gpulet) const;

  const FrontendOptions& options_;
  const Dependencies core_;
};

}  // namespace gpulet::serve
