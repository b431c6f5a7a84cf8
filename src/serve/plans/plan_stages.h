// PlanStages: brings the plan that was decided into force, in stages where MIG divides devices.
// Pure; one thread at a time.
#pragma once

#include <optional>

#include "serve/plans/plan_inputs.h"
#include "serve/plans/rollout.h"

namespace gpulet::serve {

class PlanStages {
 public:
  // All outlive it.
  PlanStages(const Fleet& fleet, const PlanInputs& inputs, RolloutController& rollouts,
             Deployment& deployment, Journal& journal)
      : fleet_(fleet),
        inputs_(inputs),
        rollouts_(rollouts),
        deployment_(deployment),
        journal_(journal) {}

  // The plan was decided.
  void begin(schedule::Plan plan, Time now, FrontendEffects& effects);
  // Takes the next step of the rollout, or starts the next stage.
  void advance(Time now, FrontendEffects& effects);
  // When advance() is due without an event.
  [[nodiscard]] Time next_wake() const { return rollouts_.next_wake(); }
  // No device can take over from nodes that are draining: they need not wait.
  void release_draining(FrontendEffects& effects);

 private:
  void start_next(Time now, FrontendEffects& effects);
  // Some gpulet that is being retired still occupies an instance that the plan needs.
  [[nodiscard]] bool waits_for_instances(const schedule::Plan& plan,
                                         const schedule::Steps& steps) const;

  const Fleet& fleet_;
  const PlanInputs& inputs_;
  RolloutController& rollouts_;
  Deployment& deployment_;
  Journal& journal_;
  std::optional<Time> waits_since_;  // for instances that gpulets have to leave
};

}  // namespace gpulet::serve
