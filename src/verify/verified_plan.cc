#include "gpulet/verify/verified_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/schedule/scaling.h"
#include "verify/queue_prediction.h"

namespace gpulet::verify {

using schedule::Assignment;
using schedule::DeviceKey;
using schedule::ModelDemand;
using schedule::Plan;
using schedule::PlanInput;
using schedule::PlannedGpulet;
using schedule::PredictedViolations;
using schedule::Unserved;

namespace {

constexpr int kRepairs = 8;
// With larger steps: of a plan that is not small (scaling.h), and where devices are too few, so
// that each repair shares the shortage again.
constexpr int kCoarseRepairs = 3;

// What the chain calls late beyond this is simulated. Without a limit, for a small plan, all that
// may matter to a reader is.
constexpr double kDoubtful = 0.004;
constexpr double kWorthReading = 0.0005;

bool is_large(const PlanInput& input) {
  return input.cluster.devices.size() * input.demands.size() > schedule::kSmallPlan;
}

std::string key_of(const schedule::DeviceKey& device) {
  return fmt::format("\n{}/{}", device.node, device.device);
}

std::string content_of(const PlannedGpulet& gpulet) {
  std::string content = fmt::format(
      "\n{} {} {} {:a}", to_string(gpulet.service), gpulet.size.percent,
      gpulet.instance ? to_string(*gpulet.instance) : std::string(), gpulet.duty_cycle_ms);
  for (const Assignment& one : gpulet.assignments) {
    content += fmt::format("\n  {:a} {} {:a} {:a} {}", one.rate, one.batch, one.slowdown,
                           one.slo_ms, one.model);
  }
  return content;
}

struct Prediction {
  PredictedViolations violations;
  std::map<std::string_view, LatePart> simulated;  // by model
};

// Predicts plans for one input; gpulets that did not change cost a look-up.
class Predictions {
 public:
  Predictions(const PlanInput& input, const std::optional<double>& limit)
      : input_(input),
        limit_(limit),
        doubtful_(limit || is_large(input) ? kDoubtful : kWorthReading) {}

  // The chain knows each gpulet by itself, and is off by several times where a request may hardly
  // wait: what it doubts is simulated.
  [[nodiscard]] Prediction of(const Plan& plan) {
    Prediction predicted{by_chain(plan), {}};
    predicted.simulated = simulate(plan, doubtful(plan, predicted.violations));
    for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
      for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
        const auto found = predicted.simulated.find(plan.gpulets[at].assignments[slot].model);
        if (found != predicted.simulated.end()) predicted.violations[at][slot] = found->second.mean;
      }
    }
    return predicted;
  }

 private:
  // Each device by itself, and each only once.
  [[nodiscard]] PredictedViolations by_chain(const Plan& plan) {
    PredictedViolations predicted(plan.gpulets.size());
    for (std::size_t first = 0; first < plan.gpulets.size();) {
      Plan part;  // the gpulets of one device; they follow one another
      std::size_t end = first;
      std::string key = key_of(plan.gpulets[first].device);
      for (; end < plan.gpulets.size() && plan.gpulets[end].device == plan.gpulets[first].device;
           ++end) {
        part.gpulets.push_back(plan.gpulets[end]);
        key += content_of(plan.gpulets[end]);
      }
      const auto [known, added] = chains_.try_emplace(std::move(key));
      if (added) known->second = schedule::predict_violations(part, input_);
      std::copy(known->second.begin(), known->second.end(),
                predicted.begin() + static_cast<std::ptrdiff_t>(first));
      first = end;
    }
    return predicted;
  }

  // The models that the chain doubts, each with the gpulet where it is late most often.
  [[nodiscard]] std::map<std::string_view, std::size_t> doubtful(
      const Plan& plan, const PredictedViolations& predicted) const {
    std::map<std::string_view, std::size_t> worst;
    std::map<std::string_view, double> late;
    for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
      for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
        const std::string_view model = plan.gpulets[at].assignments[slot].model;
        const double here = predicted[at][slot].value_or(0);
        if (here <= std::max(doubtful_, late[model])) continue;
        late[model] = here;
        worst[model] = at;
      }
    }
    return worst;
  }

  // Gpulets that models have around them, and these models.
  struct Scene {
    std::vector<const PlannedGpulet*> around;
    std::vector<std::string_view> models;
  };

  // By their content. `models`: each with the number of a gpulet.
  static std::map<std::string, Scene> scenes_of(
      const Plan& plan, const std::map<std::string_view, std::size_t>& models) {
    std::map<std::string, Scene> scenes;
    for (const auto& [model, gpulet] : models) {
      std::vector<const PlannedGpulet*> around =
          gpulets_around(plan, model, plan.gpulets[gpulet].device);
      std::string content;
      for (const PlannedGpulet* one : around) {
        content += key_of(one->device);
        content += content_of(*one);
      }
      Scene& scene = scenes[std::move(content)];
      scene.around = std::move(around);
      scene.models.push_back(model);
    }
    return scenes;
  }

  // Those of the models that can be simulated.
  std::map<std::string_view, LatePart> simulate(
      const Plan& plan, const std::map<std::string_view, std::size_t>& models) {
    std::map<std::string_view, LatePart> late;
    for (const auto& [content, scene] : scenes_of(plan, models)) {
      auto& known = simulated_[content];
      std::vector<std::string_view> unknown;
      std::copy_if(scene.models.begin(), scene.models.end(), std::back_inserter(unknown),
                   [&known](std::string_view model) { return !known.contains(model); });
      if (!unknown.empty()) {
        const auto results = simulate_violations(plan, input_, scene.around, unknown, limit_);
        for (std::size_t at = 0; at < unknown.size(); ++at)
          known.emplace(std::string(unknown[at]), results[at]);
      }
      for (const std::string_view model : scene.models) {
        if (const auto& one = known.find(model)->second) late.emplace(model, *one);
      }
    }
    return late;
  }

  const PlanInput& input_;
  const std::optional<double> limit_;
  const double doubtful_;
  // By what they depend on, as text.
  std::unordered_map<std::string, PredictedViolations> chains_;
  std::unordered_map<std::string, std::map<std::string, std::optional<LatePart>, std::less<>>>
      simulated_;  // then by model
};

// The worst predictions of the models.
LateModels beyond_limit(const Plan& plan, const Prediction& predicted) {
  LateModels worst;
  const auto add = [&worst](std::string_view model, double late, double limit) {
    if (late <= limit) return;
    double& known = worst[std::string(model)];
    known = std::max(known, late);
  };
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
      add(plan.gpulets[at].assignments[slot].model, predicted.violations[at][slot].value_or(0),
          kMostPredictedLate);
    }
  }
  for (const auto& [model, late] : predicted.simulated)
    add(model, late.bad_minute, kMostLateInBadMinute);
  return worst;
}

// More rate for the models that are late too often: by how often, and twice the last step for
// those that more rate has not helped yet. A model with few requests may need several times its
// rate before it gets a larger batch.
class Reserves {
 public:
  explicit Reserves(bool coarse) : coarse_(coarse) {}

  void raise(const LateModels& late) {
    for (const auto& [model, part] : late) {
      Reserve& reserve = reserves_[model];
      const double step = part > 0.03 ? 0.12 : part > 0.012 ? 0.06 : 0.03;
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

void note_late(const LateModels& late, Plan& plan) {
  for (const auto& late_model : late) {
    const std::string& name = late_model.first;
    const double part = late_model.second;
    double rate = 0;
    for (PlannedGpulet& gpulet : plan.gpulets) {
      for (Assignment& one : gpulet.assignments) {
        if (one.model != name) continue;
        rate += one.rate * part;
        one.rate *= 1 - part;
      }
    }
    const auto known = std::find_if(plan.unserved.begin(), plan.unserved.end(),
                                    [&name](const Unserved& one) { return one.model == name; });
    if (known != plan.unserved.end()) {
      known->rate += rate;
      continue;
    }
    plan.unserved.push_back(
        {name, rate,
         fmt::format("{:.1f} % of its requests would be late by chance; raise slo_ms",
                     100 * part)});
  }
  std::sort(plan.unserved.begin(), plan.unserved.end(),
            [](const Unserved& a, const Unserved& b) { return a.model < b.model; });
}

// The sum of the parts of the models' demands that are not served.
double unserved_part(const Plan& plan, const PlanInput& input) {
  std::map<std::string_view, double> demanded;
  for (const ModelDemand& demand : input.demands) demanded.emplace(demand.name, demand.rate);
  double sum = 0;
  for (const Unserved& one : plan.unserved) sum += one.rate / demanded.at(one.model);
  return sum;
}

}  // namespace

PredictedViolations verified_violations(const Plan& plan, const PlanInput& input,
                                        const std::optional<double>& limit) {
  return Predictions(input, limit).of(plan).violations;
}

LateModels late_models(const Plan& plan, const PlanInput& input) {
  return beyond_limit(plan, Predictions(input, kMostPredictedLate).of(plan));
}

VerifiedPlan verified_plan(const PlanInput& input,
                           const std::function<Plan(const PlanInput&)>& plan,
                           std::optional<Plan> in_force) {
  Plan made = plan(input);
  if (input.options.headroom == schedule::Headroom::none) return {std::move(made), {}};
  const std::optional<std::uint32_t> lower_bound = made.lower_bound;
  const bool coarse = is_large(input) || !made.schedulable();
  const int repairs = coarse ? kCoarseRepairs : kRepairs;
  Predictions predictions(input, kMostPredictedLate);
  if (in_force && !schedule::serves_better(made, *in_force) &&
      beyond_limit(*in_force, predictions.of(*in_force)).empty()) {
    made.gpulets = std::move(in_force->gpulets);
    made.unserved.clear();
    return {std::move(made), {}};
  }
  Reserves reserves(coarse);
  VerifiedPlan best{std::move(made), {}};
  best.late = beyond_limit(best.plan, predictions.of(best.plan));
  note_late(best.late, best.plan);
  LateModels late = best.late;
  for (int repair = 0; repair < repairs && !late.empty(); ++repair) {
    reserves.raise(late);
    VerifiedPlan next{plan(with_more(input, reserves)), {}};
    scale_back(reserves, next.plan);
    late = beyond_limit(next.plan, predictions.of(next.plan));
    next.late = late;
    note_late(late, next.plan);
    if (unserved_part(next.plan, input) < unserved_part(best.plan, input)) best = std::move(next);
  }
  best.plan.lower_bound = lower_bound;
  return best;
}

}  // namespace gpulet::verify
