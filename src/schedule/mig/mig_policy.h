// A policy that is an algorithm of room mig: from demands to services, from a deployment to a plan.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "gpulet/mig/deployment.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

using MigAlgorithm = std::function<mig::Deployment(const mig::Task& task)>;

class MigPolicy : public Policy {
 public:
  // `name` is a literal.
  MigPolicy(std::string_view name, MigAlgorithm algorithm)
      : name_(name), algorithm_(std::move(algorithm)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;

 private:
  std::string_view name_;
  MigAlgorithm algorithm_;
};

// mig-two-phase as make_policy() gives it.
class MigTwoPhase : public MigPolicy {
 public:
  MigTwoPhase();
};
class MigGreedy : public MigPolicy {
 public:
  MigGreedy();
};
class MigWhole : public MigPolicy {
 public:
  MigWhole();
};
class MigSmall : public MigPolicy {
 public:
  MigSmall();
};
class MigMix : public MigPolicy {
 public:
  MigMix();
};

}  // namespace gpulet::schedule
