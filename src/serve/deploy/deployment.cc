#include "serve/deploy/deployment.h"

#include <utility>

namespace gpulet::serve {

schedule::WantedParts Deployment::wanted() const {
  schedule::WantedParts wanted;
  if (rollout_) {
    for (const auto& [id, part] : rollout_->parts())
      wanted.emplace_hint(wanted.end(), id, &rollout_->part_of(id));
    return wanted;
  }
  for (const auto& [id, part] : in_force_.serving()) {
    if (!in_force_.stand_ins().contains(id)) wanted.emplace_hint(wanted.end(), id, &part);
  }
  for (const auto& [id, part] : in_force_.missing()) wanted.emplace(id, &part);
  return wanted;
}

// ---- the plans that come next

schedule::Plan Deployment::take_stage() {
  schedule::Plan next = std::move(stages_.front());
  stages_.pop_front();
  return next;
}

void Deployment::abandon(Abandoned why) {
  stages_.clear();
  if (why < Abandoned::gpulet_failed) return;
  in_force_.outages().drop_others(backends_);
  rollout_.reset();
}

// ---- the rollout

Rollout& Deployment::begin_rollout(schedule::Plan plan, schedule::Steps steps,
                                   const std::set<schedule::DeviceKey>& in_place,
                                   std::vector<PlannedOutage> outages, Time now,
                                   Duration patience) {
  gpulets_changed_ = true;
  Rollout& rollout = rollout_.emplace(
      std::move(plan), std::move(steps), in_place, [this] { return gpulets_.take_id(); }, now,
      patience);
  std::map<std::size_t, GpuletId> id_of;
  for (const auto& [id, part] : rollout.parts()) id_of[part] = id;
  for (PlannedOutage& outage : outages) outage.until = id_of.at(outage.until.value);
  in_force_.outages().expect(std::move(outages));
  least_rates_ = schedule::least_rates(in_force_.serving(), wanted());
  return rollout;
}

bool Deployment::put_in_force() {
  rollout_->give_up_postponed();
  in_force_.set_missing(wanted(), rollout_->lost_models());
  const bool whole = in_force_.missing().empty() && rollout_->lost_models().empty();
  in_force_.advance(rollout_->take_plan());
  return whole;
}

void Deployment::end_rollout(bool whole) {
  if (!whole) abandon(Abandoned::incomplete);
  in_force_.outages().drop_others(backends_);
  rollout_.reset();
}

void Deployment::cancel_rollout(FrontendEffects& effects) {
  for (const auto& [id, part] : rollout_->parts()) {
    if (rollout_->is_new(id) && !in_force_.serving().contains(id)) gpulets_.retire(id, effects);
  }
  abandon(Abandoned::version_withdrawn);
}

void Deployment::start_over() {
  abandon(Abandoned::leads_no_more);
  least_rates_.clear();
  in_force_.clear();
}

// ---- gpulets

bool Deployment::lose(GpuletId id) {
  const bool in_rollout = this->in_rollout(id);
  if (rollout_) rollout_->lost(id);
  return in_force_.lose(id) || in_rollout;
}

void Deployment::lose_device(const schedule::DeviceKey& device) {
  abandon(Abandoned::device_lost);
  if (!rollout_) return;
  gpulets_changed_ = true;
  for (const auto& [id, gpulet] : backends_.gpulets()) {
    if (gpulet.device == device) rollout_->lost(id);
  }
}

}  // namespace gpulet::serve
