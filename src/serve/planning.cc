#include "gpulet/serve/planning.h"

#include "gpulet/schedule/check.h"

namespace gpulet::serve {

PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy,
                   const profile::ProfileSet& profiles) {
  schedule::PlanInput input;
  input.cluster = request.cluster;
  input.demands = request.demands;
  input.profiles = &profiles;
  input.current = request.current ? &*request.current : nullptr;
  input.options = request.options;
  PlanMade made;
  made.number = request.number;
  made.plan.policy = std::string(policy.name());
  if (const Status valid = schedule::validate(input); !valid.ok()) {
    made.faults.push_back(valid.message());
    return made;
  }
  made.plan = policy.plan(input);
  made.faults = schedule::check(made.plan, input);
  return made;
}

}  // namespace gpulet::serve
