// Plans that keep their promise: what they call served, the prediction agrees with. Pure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::verify {

// The part of a model's requests that may be late in a plan that serves the model, as predicted:
// less than the 1 % that is promised, because a minute of traffic scatters around it.
inline constexpr double kMostPredictedLate = 0.007;
// What a bad minute may have: the part that one minute of 30,000 exceeds, less what independent
// requests of a model with 1 % scatter in such a minute. A model that uses its batches up is late
// in bursts, so that some of its minutes have several times the mean.
inline constexpr double kMostLateInBadMinute = 0.01;

// By gpulet and assignment, as predict_violations(), whose values are kept where they are clearly
// small. The queues of other models are simulated, with all gpulets that take from them, beside the
// models that share these and beside the other gpulets of their devices: some milliseconds for a
// model, less where it only has to be clear on which side of `limit` it is.
[[nodiscard]] schedule::PredictedViolations verified_violations(
    const schedule::Plan& plan, const schedule::PlanInput& input,
    const std::optional<double>& limit = {});

// A model that is predicted beyond kMostPredictedLate, or whose bad minutes are beyond
// kMostLateInBadMinute.
struct LateModel {
  double part = 0;   // of its requests
  double worst = 0;  // that part, or the one of a bad minute where it is beyond its limit
};
using LateModels = std::map<std::string, LateModel, std::less<>>;

class Predictions;

// Finds the models that break the promise of plans for one input. Remembers devices and queues, so
// that a plan which changes little costs little. One thread at a time.
class Verifier {
 public:
  // `input` outlives the object: its devices, profiles, interference and margin count, its demands
  // do not. `effort`: the part of the usual number of requests that simulations have.
  // REQUIRES: requests come at random (Headroom).
  explicit Verifier(const schedule::PlanInput& input, double effort = 1);
  ~Verifier();

  [[nodiscard]] LateModels late_models(const schedule::Plan& plan);

  // How long that took, reckoned from the work at a fixed speed: the same on every machine.
  [[nodiscard]] double spent_ms() const;

 private:
  std::unique_ptr<Predictions> predictions_;
};

// Moves the late parts of these models from the gpulets to Plan::unserved.
void leave_out_late(const LateModels& late, schedule::Plan& plan);

struct VerifiedPlan {
  schedule::Plan plan;
  LateModels late;  // in spite of everything; they are in Plan::unserved
};

struct Planner {
  // Returns a valid plan for the demands that it is given.
  std::function<schedule::Plan(const schedule::PlanInput&)> plan;
  // Whether there is time for another plan. Empty: there is.
  std::function<bool()> may_repeat;
};

// Plans, and plans again with more rate for the models that are late too often, which gives them
// larger batches, another size, another place, or another device. Of these plans, takes the one
// that leaves the least unserved. The rates of the plan are those of the demand. Repeats up to
// eight times, three times for a large plan, and once where the devices are too few. Models that
// the first plan serves nowhere are left out of the others.
//
// `in_force` is a plan that serves the whole demand by the rules. It stays where it keeps the
// promise and the new plan does not serve better (schedule::serves_better).
//
// REQUIRES: the verifier knows the devices of `input`.
[[nodiscard]] VerifiedPlan verified_plan(Verifier& verifier, const schedule::PlanInput& input,
                                         const Planner& planner,
                                         std::optional<schedule::Plan> in_force = {});

}  // namespace gpulet::verify
