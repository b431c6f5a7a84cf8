// DemandsToPlan: the demand of each model that the next plan is made for. Pure; one thread at a
// time.
#pragma once

#include "serve/adapt/estimates.h"
#include "serve/adapt/feedback.h"
#include "serve/adapt/model_loads.h"
#include "serve/deploy/demands.h"
#include "serve/models/model_registry.h"

namespace gpulet::serve {

class DemandsToPlan {
 public:
  // All outlive it.
  DemandsToPlan(const FrontendOptions& options, Demands& demands, const ModelLoads& loads,
                ModelRegistry& models, Feedback& feedback, Estimates& estimates)
      : options_(options),
        demands_(demands),
        loads_(loads),
        models_(models),
        feedback_(feedback),
        estimates_(estimates) {}

  // Brings the profiles of models that have estimates only up to date.
  void refresh_estimates() { estimates_.refresh(); }
  // Fills the demands of the request, and MakePlan::may_share. `roomy`: as of Demands::next().
  void add_to(MakePlan& effect, bool roomy);

 private:
  void plan_probes(MakePlan& effect) const;

  const FrontendOptions& options_;
  Demands& demands_;
  const ModelLoads& loads_;
  ModelRegistry& models_;
  Feedback& feedback_;
  Estimates& estimates_;
};

}  // namespace gpulet::serve
