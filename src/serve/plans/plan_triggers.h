// PlanTriggers: requests plans where the rates left the planned bands, and regularly where the plan
// in force leaves something to wish for. Pure; one thread at a time.
#pragma once

#include "serve/deploy/demands.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/fleet.h"
#include "serve/deploy/plan_requests.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

class PlanTriggers {
 public:
  // All outlive it. `period`: between regular plans.
  PlanTriggers(Duration period, const Demands& demands, const Fleet& fleet,
               const ModelTable& models, const Deployment& deployment, Journal& journal)
      : period_(period),
        demands_(demands),
        fleet_(fleet),
        models_(models),
        deployment_(deployment),
        journal_(journal) {}

  // The first period begins.
  void start(Time now) { period_end_ = now + period_; }
  // Requests a plan if there is a reason. `refused`: the checker refused the last plan.
  void tick(bool refused, Time now);
  // The plan in force serves everything, and without CPUs beside other devices. Where it does not,
  // a plan soon after a fall of the load makes room or gives cores back.
  [[nodiscard]] bool roomy() const;

 private:
  const Duration period_;
  const Demands& demands_;
  const Fleet& fleet_;
  const ModelTable& models_;
  const Deployment& deployment_;
  Journal& journal_;
  Time period_end_{};
};

}  // namespace gpulet::serve
