#include "gpulet/schedule/policy.h"

#include <utility>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/scaling.h"

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

class FunctionPolicy final : public Policy {
 public:
  FunctionPolicy(std::string_view name, PlanFunction make_plan, PolicyTraits traits)
      : name_(name), make_plan_(std::move(make_plan)), traits_(traits) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool scales() const override { return traits_.scales; }
  [[nodiscard]] bool keeps_budget() const override { return traits_.keeps_budget; }
  [[nodiscard]] bool has_own_timing() const override { return traits_.own_timing; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    Plan made = make_plan_(input);
    made.policy = name_;
    stay_in_force(input, made);
    return made;
  }

 private:
  std::string_view name_;
  PlanFunction make_plan_;
  PolicyTraits traits_;
};

}  // namespace

std::unique_ptr<Policy> policy_of(std::string_view name, PlanFunction plan, PolicyTraits traits) {
  return std::make_unique<FunctionPolicy>(name, std::move(plan), traits);
}

}  // namespace gpulet::schedule
