// The policies of this module: each is a function and a row of kOwnPolicies, and nothing else names
// it. Beside them, the parts of policies that other policies use. Each policy's source file begins
// with the choices that the paper leaves open. The functions leave Plan::policy empty. REQUIRES for
// all: validate(input) is ok. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "gpulet/schedule/mig.h"
#include "gpulet/schedule/policy.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// ---- elastic.cc

// Elastic partitioning (gpulet, section 4.3, algorithm 1): gpulets of the most effective size, best
// fit, then temporal merging.
[[nodiscard]] Plan plan_elastic(const PlanInput& input);

// The same in one pass: its first attempt alone.
[[nodiscard]] Plan plan_elastic_one_pass(const PlanInput& input);

// Elastic partitioning as in the gpu-let preprint (section 4.3, algorithm 1).
[[nodiscard]] Plan plan_elastic_preprint(const PlanInput& input);

// The best of all attempts that elastic makes without a plan in force.
[[nodiscard]] PlanBuilder elastic_partitioning(PlanContext& context);

// The plan in force with the necessary changes, or else the best attempt, with spare share in use:
// what plan_elastic() returns.
[[nodiscard]] PlanBuilder build_elastic(PlanContext& context);

// ---- sbp.cc

// Squishy bin packing (Nexus; gpulet, section 2.2): models share whole devices in rounds.
[[nodiscard]] Plan plan_sbp(const PlanInput& input);

// Squishy bin packing on devices that are split 1:1 (gpulet, section 3.2).
[[nodiscard]] Plan plan_sbp_split(const PlanInput& input);

// Devices of a class are divided into `parts` gpulets of one size (an index).
struct EqualParts {
  std::uint32_t size = 0;
  std::uint32_t parts = 1;
};

// Every device as one gpulet of its largest size, parallel to the context's classes.
[[nodiscard]] std::vector<EqualParts> whole_devices(const PlanContext& context);

// The packing. `division` is parallel to the context's classes.
[[nodiscard]] PlanBuilder pack(PlanContext& context, const std::vector<EqualParts>& division);

// ---- spatial_baselines.cc: no model shares a gpulet

// Greedy best fit (gpulet, section 2.3).
[[nodiscard]] Plan plan_greedy_best_fit(const PlanInput& input);

// Guided self-tuning (gpu-let preprint, section 6.1, after GSLICE).
[[nodiscard]] Plan plan_guided_self_tuning(const PlanInput& input);

// ---- static_equal.cc

// One instance of every model on every device, with equal shares: servers without a planner.
[[nodiscard]] Plan plan_static_equal(const PlanInput& input);

// ---- ideal.cc

// The ideal scheduler (gpulet, section 5.2): tries all combinations of partitionings.
[[nodiscard]] Plan plan_ideal(const PlanInput& input);

// Whether the cluster is small enough for the search. Where it is not, `ideal` equals `elastic`.
[[nodiscard]] bool ideal_searches(const PlanContext& context);

// ---- cover/cover.cc

// This project's own policy: the fewest device fillings that cover the demand, with a lower bound
// (docs/cover.md).
[[nodiscard]] Plan plan_cover(const PlanInput& input);

// The default: `cover` within PlanOptions::budget_ms, else `elastic`, with all kinds of devices.
[[nodiscard]] Plan plan_auto(const PlanInput& input);

// ---- cover/gpus_first.cc

// Plans for clusters of GPUs and CPUs with a policy that treats all devices alike: CPUs serve what
// the GPUs cannot, with as few core-seconds as possible. On clusters of one kind it is the policy.
[[nodiscard]] Plan plan_gpus_first(const PlanInput& input, const PlanFunction& plan);

// ---- roma.cc

// Instances on all devices, whatever the demand (ROMA, section 2.2; Service::by_need and
// Service::controlled). The dispatcher and the controllers do the rest at run time.
[[nodiscard]] Plan plan_roma(const PlanInput& input);

// ---- mig/mig_policy.cc

// The plan of MIG-serving's optimiser or one of its baselines (mig.h), for the devices
// that MIG divides; other devices are not used. Every gpulet is a process with one model, in an
// instance of its own or, with Device::processes_per_instance, beside processes of the same model.
// The capacity of an instance follows from the same model as any gpulet's rate
// (docs/scheduling.md). With a plan in force, configurations go to the devices, and instances to
// the starts, that already have most of them.
using MigAlgorithm = std::function<mig::Deployment(const mig::DeploymentTask& task)>;
[[nodiscard]] Plan plan_mig(const PlanInput& input, const MigAlgorithm& algorithm);
// With mig::greedy.
[[nodiscard]] Plan plan_mig_greedy(const PlanInput& input);
// With mig::two_phase and its default options.
[[nodiscard]] Plan plan_mig_two_phase(const PlanInput& input);

// The plan of a policy that uses no device under MIG, with what it leaves unserved on those
// devices, by mig::greedy.
[[nodiscard]] Plan with_mig_devices(const PlanInput& input, Plan plan);

// ---- the table

struct PolicyRow {
  std::string_view name;
  Plan (*plan)(const PlanInput& input);
  PolicyTraits traits{};
};

// By name.
inline constexpr auto kOwnPolicies = std::to_array<PolicyRow>({
    {"auto", plan_auto, {.keeps_budget = true}},
    {"cover", plan_cover},
    {"elastic", plan_elastic},
    {"elastic-one-pass", plan_elastic_one_pass},
    {"elastic-preprint", plan_elastic_preprint},
    {"greedy-best-fit", plan_greedy_best_fit},
    {"guided-self-tuning", plan_guided_self_tuning},
    {"ideal", plan_ideal},
    {"mig-greedy", plan_mig_greedy},
    {"mig-two-phase", plan_mig_two_phase},
    {"roma", plan_roma, {.scales = false}},
    {"sbp", plan_sbp},
    {"sbp-split", plan_sbp_split},
    {"static-equal", plan_static_equal},
});

}  // namespace gpulet::schedule
