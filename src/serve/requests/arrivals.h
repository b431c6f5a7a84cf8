// Arrivals: counts the requests for each model, and requests a plan where no plan expects them.
// Pure; one thread at a time.
#pragma once

#include <string>

#include "serve/deploy/demands.h"
#include "serve/deploy/plan_requests.h"
#include "serve/dispatch/owner_figures.h"
#include "serve/models/model_registry.h"

namespace gpulet::serve {

class Arrivals {
 public:
  // All outlive it.
  Arrivals(Demands& demands, const ModelRegistry& models, OwnerFigures& figures,
           PlanRequests& plan_requests)
      : demands_(demands), models_(models), figures_(figures), plan_requests_(plan_requests) {}

  // Counts a request for the model that arrived or is about to, and requests a plan if no plan
  // expects it. Returns true if the model was asleep and no gpulet is ready.
  bool expect(const std::string& name, NamedModel& known);

 private:
  Demands& demands_;
  const ModelRegistry& models_;
  OwnerFigures& figures_;
  PlanRequests& plan_requests_;
};

}  // namespace gpulet::serve
