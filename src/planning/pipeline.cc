#include "gpulet/planning/pipeline.h"

#include <algorithm>
#include <iterator>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/scaling.h"
#include "gpulet/verify/verified_plan.h"
#include "planning/observed.h"

namespace gpulet::planning {
namespace {

using schedule::DeviceKey;
using schedule::Plan;
using schedule::PlanInput;

bool keeps_apart(const schedule::Plan& plan, const schedule::PlanInput& input) {
  const auto alone = [&input](const std::string& name) {
    return std::any_of(input.demands.begin(), input.demands.end(),
                       [&name](const auto& one) { return one.alone && one.name == name; });
  };
  return std::all_of(plan.gpulets.begin(), plan.gpulets.end(), [&alone](const auto& gpulet) {
    return gpulet.assignments.size() < 2 ||
           std::none_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                        [&alone](const auto& one) { return alone(one.model); });
  });
}

// Of the verification, so that a budget also pays for repairs.
constexpr double kEffortWithBudget = 0.6;

class Pipeline {
 public:
  // `input` is the request's, with what serving showed; it outlives the object.
  Pipeline(const PlanRequest& request, const PlanInput& input, const schedule::Policy& policy)
      : request_(request), policy_(policy), budget_(request.options.budget_ms) {
    // At fixed intervals, nothing is left to chance.
    const bool by_chance = input.options.headroom != schedule::Headroom::none;
    if (input.options.verify && by_chance)
      verifier_.emplace(input, policy.keeps_budget() ? kEffortWithBudget : 1);
  }

  PlanResult run(const PlanInput& input) {
    PlanResult made = planned(input);
    if (!(request_.growth > 0) || !made.faults.empty() || !lacks_devices(made)) return made;
    PlanInput now = input;
    for (schedule::ModelDemand& demand : now.demands) demand.rate /= 1 + request_.growth;
    // With the whole budget, so that the plan is the same as for these rates alone.
    PlanResult exact = Pipeline(request_, now, policy_).planned(now);
    return exact.faults.empty() && exact.plan.schedulable() ? exact : made;
  }

 private:
  PlanResult planned(const PlanInput& input) {
    PlanResult made = attempt(input, request_.kept);
    // The kept gpulets break the rules now, for example because the profiles changed: they move.
    if (!made.faults.empty() && !request_.kept.empty()) made = attempt(input, {});
    if (made.faults.empty()) explain(input, made);
    return made;
  }

  // Nothing else is missing.
  static bool lacks_devices(const PlanResult& made) {
    const std::vector<schedule::UnservedDetail>& missing = made.explanation.missing;
    return !missing.empty() && std::all_of(missing.begin(), missing.end(), [](const auto& one) {
      return one.cause == schedule::UnservedCause::devices ||
             one.cause == schedule::UnservedCause::chance;
    });
  }

  PlanResult attempt(const PlanInput& input, const std::vector<schedule::PlannedGpulet>& kept) {
    late_.clear();
    PlanResult made;
    const bool has_closed = !request_.closed.empty();
    if (!has_closed) {
      made.plan = with_spare(input);
    } else {
      made.plan = plan_around(input, request_.closed, kept,
                              [this](const PlanInput& asked) { return with_spare(asked); });
    }
    if (has_closed || request_.spill) leave_out_late(made.plan);
    made.plan.policy = std::string(policy_.name());
    made.faults = schedule::check(made.plan, input);
    if (policy_.has_own_timing())
      std::erase_if(made.faults, [](const auto& one) { return is_about_time(one.cause); });
    return made;
  }

  // Plans as if no gpulet had spare share, then divides the spare share.
  Plan with_spare(const PlanInput& input) {
    if (policy_.has_own_timing()) return apart(input);
    const auto plan_from = [&](const Plan* current) {
      PlanInput without = input;
      without.current = current;
      return apart(without);
    };
    if (!input.options.use_spare || input.current == nullptr) {
      std::optional<Plan> current;
      if (input.current != nullptr) current = without_spare(*input.current);
      Plan plan = plan_from(current ? &*current : nullptr);
      return input.options.use_spare ? with_verified_spare(input, std::move(plan)) : plan;
    }
    // Growth into share that gpulets have already needs no new process.
    const Plan grown = with_grown_needs(input);
    const Plan current = without_spare(*input.current);
    Plan plan = plan_from(&grown);
    const bool suffices = plan.schedulable() && plan.devices_used() <= current.devices_used();
    if (!suffices && grown != current) plan = plan_from(&current);
    return with_verified_spare(input, std::move(plan));
  }

  // Gpulets that were kept and CPU instances are not those that the promise was verified with.
  void leave_out_late(Plan& plan) {
    verify::LateModels late = late_besides(plan);
    verify::leave_out_late(late, plan);
    late_.merge(late);
  }

  // Models that break the promise, but are not known to.
  verify::LateModels late_besides(const Plan& plan) {
    if (!verifier_) return {};
    verify::LateModels late = verifier_->late_models(plan);
    std::erase_if(late, [this](const auto& one) { return late_.contains(one.first); });
    return late;
  }

  // Spare share comes with other rounds. Devices where these break the promise keep the policy's;
  // all do where there is no time to find out.
  Plan with_verified_spare(const PlanInput& input, Plan plan) {
    if (verifier_ && !has_time()) return plan;
    Plan larger = use_spare(input, plan);
    const verify::LateModels late = late_besides(larger);
    std::set<DeviceKey> broken;
    for (const schedule::PlannedGpulet& gpulet : larger.gpulets) {
      const bool is_late =
          std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                      [&late](const auto& one) { return late.contains(one.model); });
      if (is_late) broken.insert(gpulet.device);
    }
    if (broken.empty()) return larger;
    std::erase_if(larger.gpulets, [&](const auto& one) { return broken.contains(one.device); });
    std::copy_if(plan.gpulets.begin(), plan.gpulets.end(), std::back_inserter(larger.gpulets),
                 [&](const auto& one) { return broken.contains(one.device); });
    std::stable_sort(larger.gpulets.begin(), larger.gpulets.end(),
                     [](const auto& a, const auto& b) { return a.device < b.device; });
    return larger;
  }

  // Not every policy can keep models alone. Models that must be are left out then.
  Plan apart(const PlanInput& input) {
    Plan plan = beside_cpus(input);
    if (keeps_apart(plan, input)) return plan;
    PlanInput others = input;
    std::erase_if(others.demands, [](const auto& one) { return one.alone; });
    plan = beside_cpus(others);
    for (const schedule::ModelDemand& demand : input.demands) {
      if (!demand.alone) continue;
      plan.unserved.push_back(
          {demand.name, demand.rate, "it must not share a gpulet, and none is free for it alone"});
    }
    return plan;
  }

  // With spill, the policy plans the other devices as if there were no CPUs.
  Plan beside_cpus(const PlanInput& input) {
    if (!request_.spill) return verified(input);
    PlanInput others = input;
    others.cluster = schedule::without_cpus(input.cluster);
    std::optional<Plan> current;
    if (input.current != nullptr) {
      current = *input.current;
      std::erase_if(current->gpulets,
                    [](const auto& one) { return one.service != schedule::Service::rounds; });
      others.current = &*current;
    }
    Plan plan = verified(others);
    schedule::add_cpu_instances(input, plan);
    return plan;
  }

  Plan verified(const PlanInput& input) {
    if (!verifier_) return scaled(input);
    const verify::Planner planner{[this](const PlanInput& asked) { return scaled(asked); },
                                  [this] { return has_time(); }};
    verify::VerifiedPlan made =
        verify::verified_plan(*verifier_, input, planner, in_force_for(input));
    late_ = std::move(made.late);
    return std::move(made.plan);
  }

  // A policy that keeps a budget shares it with the verification of its plans. One verification
  // takes at most as long as all before it, and is not cut: twice their time has to be left.
  [[nodiscard]] bool has_time() const {
    return !policy_.keeps_budget() || 2 * verifier_->spent_ms() < budget_.left_ms();
  }

  Plan scaled(PlanInput input) {
    input.options.budget_ms = budget_.take_ms();
    if (!request_.scale || !policy_.scales()) return policy_.plan(input);
    Plan whole = schedule::scale(policy_, input).plan;
    if (whole.schedulable()) return whole;
    input.options.budget_ms = budget_.take_ms();
    return schedule::share_shortage(policy_, input, std::move(whole));
  }

  void explain(const PlanInput& input, PlanResult& made) const {
    made.explanation = schedule::explain(made.plan, input);
    const bool all_closed = request_.closed.size() >= request_.cluster.devices.size();
    for (schedule::UnservedDetail& missing : made.explanation.missing) {
      if (all_closed) {
        missing.cause = schedule::UnservedCause::any_device;
      } else if (late_.contains(missing.model)) {
        missing = {missing.model, missing.rate, schedule::UnservedCause::chance};
      }
    }
  }

  const PlanRequest& request_;
  const schedule::Policy& policy_;
  PlanBudget budget_;
  std::optional<verify::Verifier> verifier_;  // empty: nothing is promised
  verify::LateModels late_;                   // in the last plan
};

}  // namespace

PlanResult make_plan(const PlanRequest& request, const schedule::Policy& policy) {
  PlanInput input;
  input.cluster = request.cluster;
  input.demands = request.demands;
  input.profiles = request.profiles.get();
  input.interference = request.interference.get();
  const std::optional<Observed> known = observed(request);
  if (known) {
    input.cluster = known->cluster;
    input.profiles = &known->profiles;
    if (input.interference != nullptr) input.interference = &known->interference;
  }
  input.current = request.current ? &*request.current : nullptr;
  input.options = request.options;
  if (const Status valid = schedule::validate(input); !valid.ok()) {
    PlanResult refused;
    refused.plan.policy = std::string(policy.name());
    refused.faults.push_back(
        {.cause = schedule::ViolationCause::invalid_input, .type = valid.message()});
    return refused;
  }
  return Pipeline(request, input, policy).run(input);
}

}  // namespace gpulet::planning
