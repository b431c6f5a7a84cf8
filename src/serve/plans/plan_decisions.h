// PlanDecisions: checks a plan that was made against what runs by now, and reports it. Pure; one
// thread at a time.
#pragma once

#include <optional>

#include "serve/plans/in_place_replacement.h"
#include "serve/plans/plan_inputs.h"

namespace gpulet::serve {

class PlanDecisions {
 public:
  // All outlive it.
  PlanDecisions(const FrontendOptions& options, const PlanInputs& inputs,
                const InPlaceReplacement& in_place, ModelTable& models,
                const Deployment& deployment, Journal& journal)
      : options_(options),
        inputs_(inputs),
        in_place_(in_place),
        models_(models),
        deployment_(deployment),
        journal_(journal) {}

  // Returns the plan that is to come into force. Empty: none, and another one was requested where
  // that may help.
  [[nodiscard]] std::optional<schedule::Plan> decide(PlanMade event, Time now,
                                                     FrontendEffects& effects);
  // The checker refused the last plan.
  [[nodiscard]] bool refused() const { return refused_; }

 private:
  // The plan serves already, as far as its gpulets are ready. A rollout that was abandoned leaves a
  // mixture that is neither plan.
  [[nodiscard]] bool in_force(const schedule::Plan& plan, const schedule::Steps& steps) const;
  // What the plan costs on devices that cannot hold old and new gpulets.
  void add_outage_notes(schedule::Plan& plan, const schedule::Steps& steps, Time now,
                        FrontendEffects& effects);
  void report_decision(const schedule::Plan& plan, const schedule::Steps& steps,
                       schedule::Explanation explanation, Time now, FrontendEffects& effects);

  const FrontendOptions& options_;
  const PlanInputs& inputs_;
  const InPlaceReplacement& in_place_;
  ModelTable& models_;
  const Deployment& deployment_;
  Journal& journal_;
  bool refused_ = false;  // tried again at the end of the period
};

}  // namespace gpulet::serve
