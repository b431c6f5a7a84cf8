// RolloutController: brings a plan into force. It creates the new gpulets. Whenever some are ready,
// it puts the next mixture of the old and the new plan into force. Where a device has no room for
// new gpulets beside the old ones, it replaces one at a time. It does not wait long for the whole
// plan: gpulets that are ready later join then. Pure; one thread at a time.
#pragma once

#include "serve/plans/gpulet_starter.h"
#include "serve/plans/in_place_replacement.h"
#include "serve/plans/mixtures.h"
#include "serve/plans/routes_in_force.h"

namespace gpulet::serve {

class RolloutController {
 public:
  // All outlive it.
  RolloutController(const FrontendOptions& options, GpuletStarter& starter,
                    InPlaceReplacement& in_place, Mixtures& mixtures, RoutesInForce& routes,
                    Deployment& deployment, Journal& journal)
      : options_(options),
        starter_(starter),
        in_place_(in_place),
        mixtures_(mixtures),
        routes_(routes),
        deployment_(deployment),
        journal_(journal) {}

  // `steps`: from the gpulets that run to the plan.
  void begin(schedule::Plan plan, schedule::Steps steps, Time now, FrontendEffects& effects);
  // Takes the next step of the rollout, if there is one.
  void advance(Time now, FrontendEffects& effects);
  // The next call of advance() can do something at once.
  [[nodiscard]] bool has_more_to_do() const {
    return deployment_.rollout() && deployment_.rollout()->has_to_create();
  }
  // When advance() is due without an event.
  [[nodiscard]] Time next_wake() const;

 private:
  // Puts the next mixture into force where gpulets changed.
  void mix_if_due(Time now, FrontendEffects& effects);
  // The plan of the rollout is in force, as far as it serves.
  void end_rollout(Time now, FrontendEffects& effects);
  void report_plan_in_force(Duration took, Time now, FrontendEffects& effects);

  const FrontendOptions& options_;
  GpuletStarter& starter_;
  InPlaceReplacement& in_place_;
  Mixtures& mixtures_;
  RoutesInForce& routes_;
  Deployment& deployment_;
  Journal& journal_;
};

}  // namespace gpulet::serve
