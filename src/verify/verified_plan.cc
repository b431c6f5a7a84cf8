#include "gpulet/verify/verified_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/schedule/scaling.h"
#include "verify/predictions.h"

namespace gpulet::verify {

using schedule::Assignment;
using schedule::ModelDemand;
using schedule::Plan;
using schedule::PlanInput;
using schedule::PlannedGpulet;
using schedule::PredictedViolations;
using schedule::Unserved;

namespace {

constexpr int kRepairs = 8;
constexpr int kRepairsOfLarge = 3;  // with larger steps
// Each shares the shortage again, and what one model gets more, others lack.
constexpr int kRepairsOfShortage = 1;

// More rate for the models that are late too often: by how often, and twice the last step for
// those that more rate has not helped yet. A model with few requests may need several times its
// rate before it gets a larger batch.
class Reserves {
 public:
  explicit Reserves(bool coarse) : coarse_(coarse) {}

  void raise(const LateModels& late) {
    for (const auto& [model, one] : late) {
      Reserve& reserve = reserves_[model];
      const double step = one.worst > 0.03 ? 0.12 : one.worst > 0.012 ? 0.06 : 0.03;
      reserve.step = std::max(2 * reserve.step, coarse_ ? 2 * step : step);
      reserve.factor *= 1 + reserve.step;
    }
  }
  [[nodiscard]] double factor(const std::string& model) const {
    const auto found = reserves_.find(model);
    return found == reserves_.end() ? 1 : found->second.factor;
  }

 private:
  struct Reserve {
    double factor = 1;
    double step = 0;
  };
  bool coarse_;
  std::map<std::string, Reserve> reserves_;
};

PlanInput with_more(const PlanInput& input, const Reserves& reserves) {
  PlanInput raised = input;
  for (ModelDemand& demand : raised.demands) demand.rate *= reserves.factor(demand.name);
  return raised;
}

void scale_back(const Reserves& reserves, Plan& plan) {
  for (PlannedGpulet& gpulet : plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate /= reserves.factor(one.model);
  }
  for (Unserved& one : plan.unserved) one.rate /= reserves.factor(one.model);
}

// The sum of the parts of the models' demands that are not served.
double unserved_part(const Plan& plan, const PlanInput& input) {
  std::map<std::string_view, double> demanded;
  for (const ModelDemand& demand : input.demands) demanded.emplace(demand.name, demand.rate);
  double sum = 0;
  for (const Unserved& one : plan.unserved) sum += one.rate / demanded.at(one.model);
  return sum;
}

// Models that a plan serves nowhere, though they have a demand: no rate that is added helps them.
class Unplaced {
 public:
  explicit Unplaced(const Plan& plan) {
    std::set<std::string_view> placed;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      for (const Assignment& one : gpulet.assignments) placed.insert(one.model);
    }
    const auto is_placed = [&placed](const auto& one) { return placed.contains(one.model); };
    std::remove_copy_if(plan.unserved.begin(), plan.unserved.end(), std::back_inserter(unserved_),
                        is_placed);
  }

  // Whether other models lack devices or time.
  [[nodiscard]] bool is_shortage_of_others(const Plan& plan) const {
    return plan.unserved.size() > unserved_.size();
  }
  [[nodiscard]] PlanInput without(PlanInput input) const {
    std::erase_if(input.demands, [this](const ModelDemand& demand) {
      return std::any_of(unserved_.begin(), unserved_.end(),
                         [&demand](const Unserved& one) { return one.model == demand.name; });
    });
    return input;
  }
  void add_to(Plan& plan) const {
    plan.unserved.insert(plan.unserved.end(), unserved_.begin(), unserved_.end());
    std::sort(plan.unserved.begin(), plan.unserved.end(),
              [](const Unserved& a, const Unserved& b) { return a.model < b.model; });
  }

 private:
  std::vector<Unserved> unserved_;
};

int repairs_for(const PlanInput& input, bool is_shortage) {
  if (is_shortage) return kRepairsOfShortage;
  return schedule::size_of(input) > schedule::kSmallPlan ? kRepairsOfLarge : kRepairs;
}

}  // namespace

PredictedViolations verified_violations(const Plan& plan, const PlanInput& input,
                                        const std::optional<double>& limit) {
  return Predictions(input, limit).of(plan).violations;
}

Verifier::Verifier(const PlanInput& input, double effort)
    : predictions_(std::make_unique<Predictions>(input, kMostPredictedLate, effort)) {}

Verifier::~Verifier() = default;

double Verifier::spent_ms() const { return predictions_->spent_ms(); }

LateModels Verifier::late_models(const Plan& plan) {
  const Prediction predicted = predictions_->of(plan);
  std::map<std::string_view, double> parts;  // the worst of each model
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
      double& part = parts[plan.gpulets[at].assignments[slot].model];
      part = std::max(part, predicted.violations[at][slot].value_or(0));
    }
  }
  LateModels late;
  for (const auto& [model, part] : parts) {
    const auto simulated = predicted.simulated.find(model);
    const double bad_minute =
        simulated != predicted.simulated.end() ? simulated->second.bad_minute : 0;
    if (part <= kMostPredictedLate && bad_minute <= kMostLateInBadMinute) continue;
    late.emplace(
        model,
        LateModel{part, bad_minute > kMostLateInBadMinute ? std::max(part, bad_minute) : part});
  }
  return late;
}

void leave_out_late(const LateModels& late, Plan& plan) {
  for (const auto& [name, one] : late) {
    double rate = 0;
    for (PlannedGpulet& gpulet : plan.gpulets) {
      for (Assignment& assignment : gpulet.assignments) {
        if (assignment.model != name) continue;
        rate += assignment.rate * one.part;
        assignment.rate *= 1 - one.part;
      }
    }
    const auto known =
        std::find_if(plan.unserved.begin(), plan.unserved.end(),
                     [&name = name](const Unserved& unserved) { return unserved.model == name; });
    if (known != plan.unserved.end()) {
      known->rate += rate;
      continue;
    }
    const std::string when = one.part > kMostPredictedLate ? "" : ", and more in bad minutes";
    plan.unserved.push_back(
        {name, rate,
         fmt::format("{:.1f} % of its requests would be late by chance{}; raise slo_ms",
                     100 * one.part, when)});
  }
  std::sort(plan.unserved.begin(), plan.unserved.end(),
            [](const Unserved& a, const Unserved& b) { return a.model < b.model; });
}

VerifiedPlan verified_plan(Verifier& verifier, const PlanInput& input, const Planner& planner,
                           std::optional<Plan> in_force) {
  Plan made = planner.plan(input);
  if (in_force && !schedule::serves_better(made, *in_force) &&
      verifier.late_models(*in_force).empty()) {
    made.gpulets = std::move(in_force->gpulets);
    made.unserved.clear();
    return {std::move(made), {}};
  }
  const std::optional<std::uint32_t> lower_bound = made.lower_bound;
  const Unplaced unplaced(made);
  const PlanInput placed = unplaced.without(input);
  const bool is_shortage = unplaced.is_shortage_of_others(made);
  const int repairs = repairs_for(input, is_shortage);
  Reserves reserves(repairs < kRepairs);
  VerifiedPlan best{std::move(made), {}};
  best.late = verifier.late_models(best.plan);
  LateModels late = best.late;
  leave_out_late(best.late, best.plan);
  for (int repair = 0; repair < repairs && !late.empty(); ++repair) {
    if (planner.may_repeat && !planner.may_repeat()) break;
    reserves.raise(late);
    VerifiedPlan next{planner.plan(with_more(placed, reserves)), {}};
    scale_back(reserves, next.plan);
    late = verifier.late_models(next.plan);
    next.late = late;
    leave_out_late(late, next.plan);
    unplaced.add_to(next.plan);
    if (unserved_part(next.plan, input) < unserved_part(best.plan, input)) best = std::move(next);
  }
  best.plan.lower_bound = lower_bound;
  return best;
}

}  // namespace gpulet::verify
