#include "serve/status/plan_reporter.h"

namespace gpulet::serve {

void PlanReporter::add_to(FrontendStatus& status) const {
  status.epoch = deployment_.in_force().epoch();
  status.reorganising = requests_.pending() || successions_.reorganising();
  status.schedulable = deployment_.in_force().plan().schedulable();
  status.reorganisations = history_.counters();
  status.events = log_.events();
  status.outages = deployment_.in_force().outages().all();
  status.plans = history_.plans();
}

void PlanReporter::add_to(ModelStatus& status) const {
  const schedule::Unserved* const unserved = deployment_.in_force().unserved_part(status.name);
  if (unserved == nullptr) return;
  status.rate_unserved = unserved->rate;
  status.missing = history_.missing(status.name);
}

}  // namespace gpulet::serve
