// The policies by name.
#include "gpulet/schedule/policy.h"

#include <fmt/format.h>

#include <array>

#include "gpulet/base/text.h"
#include "schedule/function_policy.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

struct KnownPolicy {
  std::string_view name;
  Plan (*plan)(const PlanInput& input);
  FunctionPolicy::Traits traits{};
};

template <auto kAlgorithm>
Plan plan_mig_by(const PlanInput& input) {
  return plan_mig(input, kAlgorithm);
}

// Sorted by name.
constexpr std::array kPolicies{KnownPolicy{"auto", plan_auto, {.keeps_budget = true}},
                               KnownPolicy{"cover", plan_cover},
                               KnownPolicy{"elastic", plan_elastic},
                               KnownPolicy{"elastic-batch-search", plan_elastic_batch_search},
                               KnownPolicy{"elastic-preprint", plan_elastic_preprint},
                               KnownPolicy{"elastic-published", plan_elastic_published},
                               KnownPolicy{"greedy-best-fit", plan_greedy_best_fit},
                               KnownPolicy{"guided-self-tuning", plan_guided_self_tuning},
                               KnownPolicy{"ideal", plan_ideal},
                               KnownPolicy{"igniter", plan_igniter},
                               KnownPolicy{"mig-7x1", plan_mig_by<mig::small_instances>},
                               KnownPolicy{"mig-greedy", plan_mig_by<mig::greedy>},
                               KnownPolicy{"mig-mix", plan_mig_by<mig::fixed_mix>},
                               KnownPolicy{"mig-two-phase", plan_mig_two_phase},
                               KnownPolicy{"mig-whole", plan_mig_by<mig::whole_devices>},
                               KnownPolicy{"roma", plan_roma, {.scales = false}},
                               KnownPolicy{"sbp", plan_sbp},
                               KnownPolicy{"sbp-split", plan_sbp_split},
                               KnownPolicy{"static-equal", plan_static_equal}};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  for (const KnownPolicy& known : kPolicies) {
    if (known.name != name) continue;
    return std::unique_ptr<Policy>(
        std::make_unique<FunctionPolicy>(known.name, known.plan, known.traits));
  }
  return Status(StatusCode::not_found, fmt::format("there is no policy '{}': choose one of {}",
                                                   name, joined(policy_names())));
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  names.reserve(kPolicies.size());
  for (const KnownPolicy& known : kPolicies) names.push_back(known.name);
  return names;
}

}  // namespace gpulet::schedule
