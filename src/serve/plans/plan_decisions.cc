#include "serve/plans/plan_decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/schedule/reconcile.h"
#include "serve/adapt/trials.h"

namespace gpulet::serve {
namespace {

std::vector<std::string> models_of(const std::vector<schedule::Unserved>& unserved) {
  std::vector<std::string> names;
  for (const schedule::Unserved& one : unserved) names.push_back(one.model);
  return names;
}

// "cannot place 39.8/s of a, 12.0/s of b and 7 more: <the reason of the first>"
std::string describe(const std::vector<schedule::Unserved>& unserved) {
  constexpr std::size_t kMostModels = 4;
  std::vector<std::string> models;
  for (const schedule::Unserved& one : unserved) {
    if (models.size() == kMostModels) break;
    models.push_back(fmt::format("{} of {}", per_second(one.rate), one.model));
  }
  std::string text = "cannot place " + joined(models);
  if (unserved.size() > kMostModels)
    text += fmt::format(" and {} more", unserved.size() - kMostModels);
  text += ": " + unserved.front().reason;
  return text + (unserved.size() > 1 ? " (" + unserved.front().model + ")" : "");
}

}  // namespace

std::optional<schedule::Plan> PlanDecisions::decide(PlanMade event, Time now,
                                                    FrontendEffects& effects) {
  if (!event.result.faults.empty()) {
    refused_ = true;
    journal_.note(true,
                  fmt::format("the plan of policy {} was refused by the checker: {}",
                              event.result.plan.policy, to_string(event.result.faults.front())),
                  now, effects);
    return std::nullopt;
  }
  // Devices may have been lost while the plan was made.
  if (!inputs_.devices_remain(event.result.plan)) {
    journal_.request_plan("devices were lost while the plan was made");
    return std::nullopt;
  }
  refused_ = false;
  put_off_trials(models_, event.no_room, now);
  const schedule::Steps steps = schedule::reconcile(inputs_.running_gpulets(), event.result.plan);
  if (const std::set<std::string> in_place = in_place_.trials_in_place(event.result.plan, steps);
      !in_place.empty()) {
    put_off_trials(models_, in_place, now + options_.backoff);
    journal_.request_urgent_plan(
        "no device has room for " +
        joined(std::vector<std::string>(in_place.begin(), in_place.end())) + " beside what serves");
    return std::nullopt;
  }
  // Gpulets that were to stay on excluded devices may have failed meanwhile.
  if (!inputs_.may_create(event.result.plan, steps)) {
    journal_.request_urgent_plan("gpulets failed while the plan was made");
    return std::nullopt;
  }
  if (!event.result.plan.schedulable()) journal_.history().count_unschedulable();
  if (in_force(event.result.plan, steps)) return std::nullopt;
  add_outage_notes(event.result.plan, steps, now, effects);
  report_decision(event.result.plan, steps, std::move(event.result.explanation), now, effects);
  return std::move(event.result.plan);
}

bool PlanDecisions::in_force(const schedule::Plan& plan, const schedule::Steps& steps) const {
  const ServingPlan& deployment = deployment_.in_force();
  if (deployment.epoch().value == 0 || !steps.empty() || plan != deployment.plan()) return false;
  return std::all_of(steps.keep.begin(), steps.keep.end(), [&](const auto& keep) {
    if (deployment.missing().contains(keep.running)) return true;  // it joins later
    const auto part = deployment.serving().find(keep.running);
    return part != deployment.serving().end() && part->second == plan.gpulets[keep.planned];
  });
}

void PlanDecisions::add_outage_notes(schedule::Plan& plan, const schedule::Steps& steps, Time now,
                                     FrontendEffects& effects) {
  for (const PlannedOutage& outage : in_place_.outages_of(plan, steps)) {
    std::string text = fmt::format(
        "device {} cannot hold old and new gpulets: {}, with {}, {} replaced in place and {} for "
        "{}",
        device_name(outage.device), counted(outage.dark.size(), "gpulet"), joined(outage.models),
        outage.dark.size() == 1 ? "is" : "are",
        outage.dark.size() == 1 ? "does not serve" : "do not serve",
        outage.expected ? fmt::format("about {:.1f} s", to_seconds(*outage.expected))
                        : "an unknown time, as long as the new one loads");
    journal_.note(false, text, now, effects);
    plan.notes.push_back(std::move(text));
  }
}

void PlanDecisions::report_decision(const schedule::Plan& plan, const schedule::Steps& steps,
                                    schedule::Explanation explanation, Time now,
                                    FrontendEffects& effects) {
  const std::uint32_t before = deployment_.in_force().plan().devices_used();
  const std::uint32_t after = plan.devices_used();
  std::string text = fmt::format("new plan: {} on {}", counted(plan.gpulets.size(), "gpulet"),
                                 counted(after, "device"));
  if (after > before) text += fmt::format(" ({} more)", after - before);
  if (after < before) text += fmt::format(" ({} fewer)", before - after);
  text += steps.empty() ? "; same gpulets, new rates: "
                        : fmt::format("; {} to start, {} to stop: ", steps.create.size(),
                                      steps.retire.size());
  text += journal_.requests().reasons_of_last();
  std::vector<bool> created(plan.gpulets.size());
  for (const std::size_t index : steps.create) created[index] = true;
  journal_.history().decide({journal_.requests().number(), now, text, plan, std::move(created),
                             steps.retire.size(), std::move(explanation)},
                            before);
  journal_.note_plan(*journal_.history().decision(), std::move(text), now, effects);
  if (models_of(plan.unserved) == models_of(deployment_.in_force().plan().unserved))
    return;  // reported before
  if (plan.schedulable()) {
    journal_.note(false, "every rate is served again", now, effects);
  } else {
    journal_.note(true, describe(plan.unserved), now, effects, StatusEvent::Kind::shortage);
  }
}

}  // namespace gpulet::serve
