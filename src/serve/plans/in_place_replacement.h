// InPlaceReplacement: brings the gpulets of a plan to devices that have no room for them beside the
// old ones, one gpulet at a time (schedule/replacement.h). Pure; one thread at a time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/reconcile.h"
#include "serve/models/failures.h"
#include "serve/plans/gpulet_starter.h"
#include "serve/plans/routes_in_force.h"

namespace gpulet::serve {

class InPlaceReplacement {
 public:
  // All outlive it.
  InPlaceReplacement(const FrontendOptions& options, const Fleet& fleet, GpuletStarter& starter,
                     RoutesInForce& routes, FailureHandler& failures, Deployment& deployment,
                     Journal& journal)
      : options_(options),
        fleet_(fleet),
        starter_(starter),
        routes_(routes),
        failures_(failures),
        deployment_(deployment),
        journal_(journal) {}

  // ---- before a rollout

  // The devices that have no room for the plan's new gpulets beside those that run.
  [[nodiscard]] std::set<schedule::DeviceKey> devices_for(const schedule::Plan& plan,
                                                          const schedule::Steps& steps) const;
  // The outages with which the plan would come into force; their `until` is an index into
  // `plan.gpulets`.
  [[nodiscard]] std::vector<PlannedOutage> outages_of(const schedule::Plan& plan,
                                                      const schedule::Steps& steps) const;
  // Models that nothing has loaded yet, and for which gpulets that serve would have to end first.
  [[nodiscard]] std::set<std::string> trials_in_place(const schedule::Plan& plan,
                                                      const schedule::Steps& steps) const;

  // ---- during a rollout

  // Creates the postponed gpulets that have room, and makes room for others.
  void advance(Time now, FrontendEffects& effects);
  // The rollout ends: devices that old gpulets did not leave in time take no new ones.
  void give_up_devices(Time now, FrontendEffects& effects);

 private:
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

  const FrontendOptions& options_;
  const Fleet& fleet_;
  GpuletStarter& starter_;
  RoutesInForce& routes_;
  FailureHandler& failures_;
  Deployment& deployment_;
  Journal& journal_;
};

}  // namespace gpulet::serve
