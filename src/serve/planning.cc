#include "gpulet/serve/planning.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/executables.h"
#include "gpulet/schedule/scaling.h"
#include "gpulet/schedule/shortage.h"
#include "gpulet/serve/plan_around.h"

namespace gpulet::serve {
namespace {

using profile::InterferenceKind;

Result<ChosenInterference> of_kind(const profile::ProfileSet& profiles,
                                   const std::vector<std::string>& device_types,
                                   InterferenceKind kind) {
  ChosenInterference chosen{kind, {}};
  if (kind == InterferenceKind::none) return chosen;
  for (const std::string& type : device_types) {
    const auto found = profiles.find(type);
    if (found == profiles.end() || chosen.models.contains(type)) continue;
    Result<profile::InterferenceModel> model =
        profile::InterferenceModel::create(found->second, kind);
    if (!model.ok()) return model.status();
    chosen.models.emplace(type, std::move(model).value());
  }
  return chosen;
}

schedule::Plan plan_for(const schedule::PlanInput& input, const schedule::Policy& policy,
                        bool scale) {
  if (!scale || !policy.scales()) return policy.plan(input);
  return schedule::share_shortage(policy, input, schedule::scale(policy, input).plan);
}

// The policy plans for what is no CPU, as if there were nothing else.
schedule::Plan plan_with_spill(const schedule::PlanInput& input, const schedule::Policy& policy,
                               bool scale) {
  schedule::PlanInput others = input;
  others.cluster = schedule::without_cpus(input.cluster);
  std::optional<schedule::Plan> current;
  if (input.current != nullptr) {
    current = *input.current;
    std::erase_if(current->gpulets,
                  [](const auto& one) { return one.service != schedule::Service::rounds; });
    others.current = &*current;
  }
  schedule::Plan plan = plan_for(others, policy, scale);
  schedule::add_cpu_executables(input, plan);
  return plan;
}

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

schedule::Plan plan_all(const schedule::PlanInput& input, const schedule::Policy& policy,
                        const MakePlan& request) {
  return request.spill ? plan_with_spill(input, policy, request.scale)
                       : plan_for(input, policy, request.scale);
}

// Not every policy knows of models that are to be alone. They have no place then: what crashes must
// not take others with it.
schedule::Plan plan_apart(const schedule::PlanInput& input, const schedule::Policy& policy,
                          const MakePlan& request) {
  schedule::Plan plan = plan_all(input, policy, request);
  if (keeps_apart(plan, input)) return plan;
  schedule::PlanInput others = input;
  std::erase_if(others.demands, [](const auto& one) { return one.alone; });
  plan = plan_all(others, policy, request);
  for (const schedule::ModelDemand& demand : input.demands) {
    if (!demand.alone) continue;
    plan.unserved.push_back(
        {demand.name, demand.rate, "its processes crash, and no gpulet is free for it alone"});
  }
  return plan;
}

void plan_and_check(const MakePlan& request, const schedule::PlanInput& input,
                    const schedule::Policy& policy, PlanMade& made) {
  const auto plan = [&](const schedule::PlanInput& asked) {
    return plan_apart(asked, policy, request);
  };
  if (request.closed.empty()) {
    made.plan = plan(input);
    made.faults = schedule::check(made.plan, input);
    return;
  }
  made.plan = plan_around(input, request.closed, request.kept, plan);
  made.plan.policy = std::string(policy.name());
  made.faults = schedule::check(made.plan, input);
  if (made.faults.empty() || request.kept.empty()) return;
  // What is kept no longer holds, for example since the profiles changed: it moves.
  made.plan = plan_around(input, request.closed, {}, plan);
  made.plan.policy = std::string(policy.name());
  made.faults = schedule::check(made.plan, input);
}

}  // namespace

PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy) {
  schedule::PlanInput input;
  input.cluster = request.cluster;
  input.demands = request.demands;
  input.profiles = request.profiles.get();
  input.interference = request.interference.get();
  input.current = request.current ? &*request.current : nullptr;
  input.options = request.options;
  PlanMade made;
  made.number = request.number;
  made.plan.policy = std::string(policy.name());
  if (const Status valid = schedule::validate(input); !valid.ok()) {
    made.faults.push_back(valid.message());
    return made;
  }
  plan_and_check(request, input, policy, made);
  if (!made.faults.empty()) return made;
  made.explanation = schedule::explain(made.plan, input);
  if (request.closed.size() < request.cluster.devices.size()) return made;
  for (schedule::MissingPlace& missing : made.explanation.missing)
    missing.lack = schedule::Lack::any_device;
  return made;
}

Result<schedule::Headroom> parse_headroom(std::string_view text) {
  if (text == "none") return schedule::Headroom::none;
  if (text == "poisson") return schedule::Headroom::poisson;
  return Status(StatusCode::invalid,
                "'" + std::string(text) + "' is no headroom; write none or poisson");
}

Result<ChosenInterference> choose_interference(const profile::ProfileSet& profiles,
                                               const std::vector<std::string>& device_types,
                                               const std::optional<std::string>& asked) {
  if (asked) {
    const Result<InterferenceKind> kind = profile::parse_interference_kind(*asked);
    if (!kind.ok()) return kind.status();
    return of_kind(profiles, device_types, kind.value());
  }
  Result<ChosenInterference> learned = of_kind(profiles, device_types, InterferenceKind::learned);
  if (learned.ok() || learned.status().code() != StatusCode::not_found) return learned;
  return ChosenInterference{};
}

}  // namespace gpulet::serve
