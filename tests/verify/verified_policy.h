// A policy whose plans are verified, for a simulated frontend.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "gpulet/schedule/policy.h"
#include "gpulet/verify/verified_plan.h"

namespace gpulet::verify::testing {

class VerifiedPolicy final : public schedule::Policy {
 public:
  explicit VerifiedPolicy(std::unique_ptr<schedule::Policy> policy) : policy_(std::move(policy)) {}

  [[nodiscard]] std::string_view name() const override { return policy_->name(); }
  [[nodiscard]] bool scales() const override { return policy_->scales(); }
  [[nodiscard]] schedule::Plan plan(const schedule::PlanInput& input) const override {
    return verified_plan(input,
                         [this](const schedule::PlanInput& asked) { return policy_->plan(asked); });
  }

 private:
  std::unique_ptr<schedule::Policy> policy_;
};

}  // namespace gpulet::verify::testing
