#include "schedule/function_policy.h"

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/spare.h"

namespace gpulet::schedule {
namespace {

// A change has to pay: the plan in force stays where it fits the same demand no worse.
void stay_in_force(const PlanInput& input, Plan& made) {
  if (input.current == nullptr || input.current->policy != made.policy) return;
  Plan current = without_spare(*input.current);
  if (current.gpulets == made.gpulets && current.unserved == made.unserved) return;
  if (serves_better(made, current) || !check(current, input).empty()) return;
  made.gpulets = std::move(current.gpulets);
  made.unserved = std::move(current.unserved);
}

}  // namespace

Plan FunctionPolicy::plan(const PlanInput& input) const {
  Plan made = make_plan_(input);
  made.policy = name_;
  stay_in_force(input, made);
  return made;
}

}  // namespace gpulet::schedule
