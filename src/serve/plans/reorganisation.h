// ReorganisationController: decides when to plan, and has plans made, checked and brought into
// force. Pure; one thread at a time.
#pragma once

#include "serve/plans/plan_decisions.h"
#include "serve/plans/plan_inputs.h"
#include "serve/plans/plan_stages.h"
#include "serve/plans/plan_triggers.h"

namespace gpulet::serve {

class ReorganisationController {
 public:
  // All outlive it.
  struct Components {
    PlanTriggers& triggers;
    PlanInputs& inputs;
    PlanDecisions& decisions;
    PlanStages& stages;
  };

  ReorganisationController(const FrontendOptions& options, const Components& path,
                           Deployment& deployment, Journal& journal, Time now)
      : options_(options),
        path_(path),
        deployment_(deployment),
        journal_(journal),
        last_plan_(now - options.least_between_plans) {
    path_.triggers.start(now);
  }

  // Requests a plan if there is a reason.
  void tick(Time now) { path_.triggers.tick(path_.decisions.refused(), now); }
  // Starts a plan (MakePlan) if one is requested and nothing is in the way.
  void plan_if_requested(Time now, FrontendEffects& effects);
  void on_plan_made(PlanMade event, Time now, FrontendEffects& effects);
  // Takes the next step of the rollout, or starts the next stage.
  void advance(Time now, FrontendEffects& effects) { path_.stages.advance(now, effects); }
  // When advance() or plan_if_requested() is due without an event. `settled_at`: the last Settle.
  [[nodiscard]] Time next_wake(Time settled_at) const;

 private:
  const FrontendOptions& options_;
  const Components path_;
  Deployment& deployment_;
  Journal& journal_;
  Time last_plan_;
};

}  // namespace gpulet::serve
