#include "gpulet/serve/plans/planning.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gpulet/planning/pipeline.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {
namespace {

using planning::PlanRequest;
using planning::PlanResult;
using schedule::ModelDemand;

std::map<std::string, double> unserved_by_model(const schedule::Plan& plan) {
  std::map<std::string, double> rates;
  for (const schedule::Unserved& one : plan.unserved) rates[one.model] += one.rate;
  return rates;
}

bool serves_everything(const PlanResult& made) {
  return made.faults.empty() && made.plan.schedulable();
}

// The plan serves the trial at least in part, and the others no worse than `base`.
bool admits(const PlanResult& made, const PlanResult& base, const PlanRequest& request,
            const std::string& trial) {
  if (!made.faults.empty()) return false;
  const std::map<std::string, double> before = unserved_by_model(base.plan);
  const std::map<std::string, double> after = unserved_by_model(made.plan);
  return std::all_of(request.demands.begin(), request.demands.end(), [&](const auto& demand) {
    const auto unserved = after.find(demand.name);
    if (unserved == after.end()) return true;
    const auto known = before.find(demand.name);
    const double allowed = demand.name == trial ? demand.rate * (1 - 2 * schedule::kNegligiblePart)
                           : known == before.end() ? 0
                                                   : known->second;
    return unserved->second <= allowed + schedule::kNegligiblePart * demand.rate;
  });
}

// How one of MakePlan::trials is planned.
enum class Place : std::uint8_t { left_out, alone, shared };
using Places = std::map<std::string, Place>;

PlanRequest with_trials(const MakePlan& effect, const Places& places) {
  PlanRequest asked = effect.request;
  for (const MakePlan::Trial& trial : effect.trials) {
    const Place place = places.at(trial.model);
    const auto demand = std::find_if(asked.demands.begin(), asked.demands.end(),
                                     [&trial](const auto& one) { return one.name == trial.model; });
    if (demand == asked.demands.end()) continue;
    if (place == Place::left_out && !trial.replaces) {
      asked.demands.erase(demand);
    } else {
      demand->alone = place == Place::alone;
    }
  }
  return asked;
}

// Makes one or several plans for a MakePlan, which share its budget.
class Planner {
 public:
  Planner(const MakePlan& effect, const schedule::Policy& policy)
      : effect_(effect), policy_(policy), budget_(effect.request.options.budget_ms) {}

  // Models that may share gpulets only if they are not served otherwise do so if that serves more.
  PlanResult share_in_need(PlanRequest request) {
    PlanResult apart = plan(request);
    if (effect_.may_share.empty() || serves_everything(apart)) return apart;
    for (ModelDemand& demand : request.demands) {
      if (effect_.may_share.contains(demand.name)) demand.alone = false;
    }
    PlanResult shared = plan(std::move(request));
    const bool better =
        shared.faults.empty() &&
        (!apart.faults.empty() || shared.plan.unserved_rate() < apart.plan.unserved_rate());
    return better ? shared : apart;
  }

  // Trials get room one after the other, as long as nobody loses by it.
  PlanMade with_room_for_trials() {
    Places places;
    for (const MakePlan::Trial& trial : effect_.trials) places[trial.model] = Place::alone;
    PlanMade made;
    made.result = share_in_need(with_trials(effect_, places));
    if (serves_everything(made.result)) return made;
    for (auto& [model, place] : places)
      place = never_served(model) ? Place::alone : Place::left_out;
    made.result = share_in_need(with_trials(effect_, places));
    for (const MakePlan::Trial& trial : effect_.trials) {
      if (places.at(trial.model) == Place::left_out) try_places(trial, places, made.result);
    }
    for (const MakePlan::Trial& trial : effect_.trials) {
      if (places.at(trial.model) == Place::left_out) leave_out(trial, made);
    }
    std::sort(made.result.plan.unserved.begin(), made.result.plan.unserved.end(),
              [](const auto& a, const auto& b) { return a.model < b.model; });
    return made;
  }

 private:
  PlanResult plan(PlanRequest request) {
    request.options.budget_ms = budget_.take_ms();
    return planning::make_plan(request, policy_);
  }

  // No plan serves it even on empty devices: it lacks something else than room.
  bool never_served(const std::string& trial) {
    PlanRequest only = effect_.request;
    only.kept.clear();
    only.current.reset();
    std::erase_if(only.demands, [&trial](const auto& one) { return one.name != trial; });
    const PlanResult made = plan(only);
    return made.faults.empty() && !admits(made, made, only, trial);
  }

  void try_places(const MakePlan::Trial& trial, Places& places, PlanResult& made) {
    Place& place = places.at(trial.model);
    for (const Place tried : {Place::alone, Place::shared}) {
      if (tried == Place::shared && !trial.may_share) continue;
      place = tried;
      PlanResult next = share_in_need(with_trials(effect_, places));
      if (admits(next, made, effect_.request, trial.model)) {
        made = std::move(next);
        return;
      }
    }
    place = Place::left_out;
  }

  void leave_out(const MakePlan::Trial& trial, PlanMade& made) const {
    made.no_room.insert(trial.model);
    if (trial.replaces) return;
    const std::vector<ModelDemand>& demands = effect_.request.demands;
    const auto demand = std::find_if(demands.begin(), demands.end(),
                                     [&trial](const auto& one) { return one.name == trial.model; });
    if (demand == demands.end()) return;
    made.result.plan.unserved.push_back(
        {trial.model, demand->rate, "it " + std::string(why_waiting(TrialWait::room))});
  }

  const MakePlan& effect_;
  const schedule::Policy& policy_;
  planning::PlanBudget budget_;
};

}  // namespace

PlanMade make_plan(const MakePlan& effect, const schedule::Policy& policy) {
  PlanMade made;
  if (!effect.trials.empty()) {
    made = Planner(effect, policy).with_room_for_trials();
  } else if (!effect.may_share.empty()) {
    made.result = Planner(effect, policy).share_in_need(effect.request);
  } else {
    made.result = planning::make_plan(effect.request, policy);
  }
  made.number = effect.number;
  return made;
}

}  // namespace gpulet::serve
