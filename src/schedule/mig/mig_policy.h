// The policies for devices that MIG divides: MIG-serving's optimiser and its baselines
// (mig_optimiser.h), from a PlanInput to a Plan. Every gpulet is a process with one model, in an
// instance of its own or, with Device::processes_per_instance, beside processes of the same model.
// The capacity of an instance follows from the same model as any gpulet's rate
// (docs/scheduling.md). Other devices are not used. With a plan in force, configurations go to the
// devices, and instances to the starts, that already have most of them.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "gpulet/schedule/mig_optimiser.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

using MigAlgorithm = std::function<mig::Deployment(const mig::DeploymentTask& task)>;

class MigPolicy : public Policy {
 public:
  // `name` must be a string literal.
  MigPolicy(std::string_view name, MigAlgorithm algorithm)
      : name_(name), algorithm_(std::move(algorithm)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;

 private:
  std::string_view name_;
  MigAlgorithm algorithm_;
};

// mig-two-phase with default options.
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
