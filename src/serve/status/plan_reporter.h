// PlanReporter: the plan in force, the plans before it, and what happened, for the status. It
// changes nothing. Pure; one thread at a time.
#pragma once

#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/plan_requests.h"
#include "serve/models/successions.h"

namespace gpulet::serve {

class PlanReporter {
 public:
  // All outlive it.
  PlanReporter(const Deployment& deployment, const Successions& successions,
               const PlanRequests& requests, const PlanHistory& history, const EventLog& log)
      : deployment_(deployment),
        successions_(successions),
        requests_(requests),
        history_(history),
        log_(log) {}

  void add_to(FrontendStatus& status) const;
  // What the plan in force leaves unserved of the model.
  void add_to(ModelStatus& status) const;

 private:
  const Deployment& deployment_;
  const Successions& successions_;
  const PlanRequests& requests_;
  const PlanHistory& history_;
  const EventLog& log_;
};

}  // namespace gpulet::serve
