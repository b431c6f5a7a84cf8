// Plans that keep their promise: what they call served, the prediction agrees with. Pure; any
// thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/prediction.h"

namespace gpulet::verify {

// The part of a model's requests that may be late in a plan that serves the model, as predicted:
// less than the 1 % that is promised, because a minute of traffic scatters around it.
inline constexpr double kMostPredictedLate = 0.007;
// Two standard deviations of a minute's part above the mean: a model that uses its batches up is
// late in bursts, so that some of its minutes have several times the mean.
inline constexpr double kMostLateInBadMinute = 0.01;

// By gpulet and assignment, as predict_violations(), whose values are kept where they are clearly
// small. The queues of other models are simulated, with all gpulets that take from them, beside the
// models that share these and beside the other gpulets of their devices: some milliseconds for a
// model, less where it only has to be clear on which side of `limit` it is.
[[nodiscard]] schedule::PredictedViolations verified_violations(
    const schedule::Plan& plan, const schedule::PlanInput& input,
    const std::optional<double>& limit = {});

// The part of each model's requests that is predicted to be late, of models beyond
// kMostPredictedLate, or in a bad minute, of those beyond kMostLateInBadMinute.
using LateModels = std::map<std::string, double, std::less<>>;

[[nodiscard]] LateModels late_models(const schedule::Plan& plan, const schedule::PlanInput& input);

struct VerifiedPlan {
  schedule::Plan plan;
  LateModels late;  // in spite of everything; they are in Plan::unserved
};

// Plans, predicts the violations of each model, and plans again with more rate for the models that
// are predicted beyond these limits, which gives them larger batches, another size, another
// place, or another device. Of these plans, takes the one that leaves the least unserved. The rates
// of the plan are those of the demand. Calls `plan` once where requests come at fixed intervals
// (Headroom::none), and otherwise up to nine times (four for a large plan, and
// where the devices are too few).
//
// `in_force` is a plan that serves the whole demand by the rules. It stays where it keeps the
// promise and the new plan does not serve better (schedule::serves_better).
//
// REQUIRES: `plan` returns a valid plan for the demands that it is given.
[[nodiscard]] VerifiedPlan verified_plan(
    const schedule::PlanInput& input,
    const std::function<schedule::Plan(const schedule::PlanInput&)>& plan,
    std::optional<schedule::Plan> in_force = {});

}  // namespace gpulet::verify
