#include "serve/plans/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace gpulet::serve {

void RolloutController::begin(schedule::Plan plan, schedule::Steps steps, Time now,
                              FrontendEffects& effects) {
  mixtures_.begin(now);
  const std::set<schedule::DeviceKey> in_place = in_place_.devices_for(plan, steps);
  std::vector<PlannedOutage> outages = in_place_.outages_of(plan, steps);
  Rollout& rollout = deployment_.begin_rollout(std::move(plan), std::move(steps), in_place,
                                               std::move(outages), now, options_.rollout_patience);
  for (const auto& [id, part] : rollout.parts()) {
    const std::optional<Time> since = starter_.preparing_since(id);
    if (!since || rollout.is_new(id)) continue;
    if (now - *since < options_.rollout_patience) {
      rollout.await(id);
    } else {
      rollout.expect_late(id);
    }
  }
  const Time until = now + deployment_.gpulets().patience(options_.rollout_patience);
  for (const auto& [id, part] : rollout.parts()) {
    if (rollout.awaits(id) && starter_.proven(rollout.part_of(id))) rollout.wait_longer(id, until);
  }
  // What serves nothing, and will not, only occupies memory.
  for (const GpuletId id : rollout.retire()) {
    if (!deployment_.in_force().serving().contains(id)) deployment_.gpulets().retire(id, effects);
  }
  starter_.start_some(now, effects);
}

void RolloutController::advance(Time now, FrontendEffects& effects) {
  const std::optional<Rollout>& rollout = deployment_.rollout();
  if (rollout && rollout->has_to_create()) return starter_.start_some(now, effects);
  mix_if_due(now, effects);
  if (!rollout) return;
  in_place_.advance(now, effects);
  if (rollout->complete(now)) end_rollout(now, effects);
}

Time RolloutController::next_wake() const {
  const std::optional<Rollout>& rollout = deployment_.rollout();
  const Time mixture = mixtures_.next_wake();
  return rollout ? std::min(mixture, rollout->deadline()) : mixture;
}

void RolloutController::mix_if_due(Time now, FrontendEffects& effects) {
  const std::size_t begun = mixtures_.mix_if_due(now, effects);
  if (deployment_.rollout() || begun == 0) return;
  journal_.note(false,
                fmt::format("{} of the plan in force {} now", counted(begun, "gpulet"),
                            begun == 1 ? "serves" : "serve"),
                now, effects);
  // Stages that depended on them were given up.
  journal_.request_plan("gpulets became ready after their plan had come into force");
}

void RolloutController::end_rollout(Time now, FrontendEffects& effects) {
  mixtures_.mix(now, effects);
  in_place_.give_up_devices(now, effects);
  const bool whole = deployment_.put_in_force();
  routes_.update(now, effects);
  const Rollout& rollout = *deployment_.rollout();
  for (const GpuletId id : rollout.retire()) {
    if (!deployment_.in_force().serving().contains(id)) deployment_.gpulets().retire(id, effects);
  }
  const Duration took = now - rollout.began();
  deployment_.end_rollout(whole);
  report_plan_in_force(took, now, effects);
}

void RolloutController::report_plan_in_force(Duration took, Time now, FrontendEffects& effects) {
  journal_.history().in_force(deployment_.in_force().epoch(), took, now);
  std::string text = fmt::format("epoch {} serves{}, {} ms after it was decided: {} on {}",
                                 deployment_.in_force().epoch().value,
                                 deployment_.stages().empty() ? "" : " on the way to the plan",
                                 std::llround(to_ms(took)),
                                 counted(deployment_.in_force().serving().size(), "gpulet"),
                                 counted(deployment_.in_force().plan().devices_used(), "device"));
  if (const std::size_t missing = deployment_.in_force().missing().size(); missing > 0) {
    text += fmt::format("; {} still being prepared", missing);
    if (!deployment_.in_force().stand_ins().empty())
      text += ", and what they replace serves meanwhile";
  }
  if (journal_.history().decision()->moves_gpulets()) {
    journal_.note_plan(*journal_.history().decision(), std::move(text), now, effects);
  } else {  // the event of the decision is enough for the status
    effects.emplace_back(EventNote{false, std::move(text)});
  }
}

}  // namespace gpulet::serve
