// A policy made of a function. It keeps the plan in force where the new one serves no better. Any
// thread, as far as the function allows.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

using PlanFunction = std::function<Plan(const PlanInput& input)>;

class FunctionPolicy final : public Policy {
 public:
  // The traits of a policy: Policy::scales() and Policy::keeps_budget().
  struct Traits {
    bool scales = true;
    bool keeps_budget = false;
  };

  // `name` refers to text that outlives the policy. Plan::policy is set to it.
  FunctionPolicy(std::string_view name, PlanFunction make_plan)
      : FunctionPolicy(name, std::move(make_plan), Traits{}) {}
  FunctionPolicy(std::string_view name, PlanFunction make_plan, Traits traits)
      : name_(name), make_plan_(std::move(make_plan)), traits_(traits) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool scales() const override { return traits_.scales; }
  [[nodiscard]] bool keeps_budget() const override { return traits_.keeps_budget; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;

 private:
  std::string_view name_;
  PlanFunction make_plan_;
  Traits traits_;
};

}  // namespace gpulet::schedule
