// RolloutController: brings a plan into force. It creates the new gpulets. Whenever some are ready,
// it puts the next mixture of the old and the new plan into force (schedule/mixture.h): those that
// may serve do, and what they replace is retired. Where a device has no room for new gpulets beside
// the old ones, it replaces one at a time (schedule/replacement.h). It does not wait long for the
// whole plan: gpulets that are ready later join then. Pure; one thread at a time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/replacement.h"
#include "serve/adapt/cpu_control.h"
#include "serve/adapt/feedback.h"
#include "serve/deploy/failures.h"

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
  // When advance() is due without an event.
  [[nodiscard]] Time next_wake() const;
  // The outages with which the plan would come into force; their `until` is an index into
  // `plan.gpulets`.
  [[nodiscard]] std::vector<PlannedOutage> outages_of(const schedule::Plan& plan,
                                                      const schedule::Steps& steps) const;
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
  // ---- mixtures

  // Puts the next mixture into force where gpulets changed.
  void mix_if_due(Time now, FrontendEffects& effects);
  // Returns how many gpulets began to serve their part.
  std::size_t mix(Time now, FrontendEffects& effects);
  // Of these, those that can serve their part now.
  [[nodiscard]] std::set<GpuletId> ready_of(const schedule::WantedParts& wanted) const;
  // Models of which some gpulet brings the next version.
  [[nodiscard]] std::set<std::string> with_next_version(const schedule::WantedParts& wanted) const;
  // The gpulet serves its part of the plan from now on. REQUIRES: it is registered.
  void assign(GpuletId id, const schedule::PlannedGpulet& planned, FrontendEffects& effects);
  // The plan of the rollout is in force, as far as it serves.
  void end_rollout(Time now, FrontendEffects& effects);
  void report_plan_in_force(Duration took, Time now, FrontendEffects& effects);

  // ---- in place

  // Creates the postponed gpulets that have room, and makes room for others.
  void replace_in_place(Time now, FrontendEffects& effects);
  void replace_on(const schedule::Device& device, const std::vector<GpuletId>& waiting, Time now,
                  FrontendEffects& effects);
  void end_for(GpuletId next, const std::vector<GpuletId>& dark, Time now,
               FrontendEffects& effects);
  // An outage that did not begin.
  [[nodiscard]] PlannedOutage outage_of(const schedule::DeviceKey& device,
                                        const std::vector<GpuletId>& ended, GpuletId until,
                                        std::optional<Duration> expected) const;
  // The processes on the device. `stays`: the plan has the gpulet.
  template <typename Stays>
  [[nodiscard]] std::vector<schedule::DeviceProcess> processes_on(const schedule::DeviceKey& device,
                                                                  const Stays& stays) const;
  void give_up_devices(Time now, FrontendEffects& effects);

  // REQUIRES: the gpulet is registered.
  [[nodiscard]] GpuletRoute route_of(GpuletId id, const schedule::PlannedGpulet& planned) const;
  // The expected duration of each batch size. Empty: the profiles do not tell.
  [[nodiscard]] std::vector<Duration> execution_of(const schedule::PlannedGpulet& planned,
                                                   const schedule::Assignment& assignment) const;
  [[nodiscard]] bool adoptable(const GpuletRecord& gpulet) const;

  const FrontendOptions& options_;
  const Dependencies core_;
  Time next_mixture_{};  // mixtures of many gpulets take time to compute
};

}  // namespace gpulet::serve
