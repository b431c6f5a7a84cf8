#include "serve/deployment.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/serve/frontend_options.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kMostReasons = 4;  // of one plan

}  // namespace

const profile::ModelProfile* ProfilesInForce::find(const DeviceOffer* offer,
                                                   const std::string& model) const {
  const auto profile = offer == nullptr ? profiles->end() : profiles->find(offer->device.type);
  return profile == profiles->end() ? nullptr : profile->second.find(model);
}

// ---- PlanRequests

void PlanRequests::add(std::string why, std::string subject) {
  const auto known = std::find_if(reasons_.begin(), reasons_.end(), [&](const Reason& reason) {
    return reason.why == why || (!subject.empty() && reason.subject == subject);
  });
  if (known != reasons_.end()) {
    known->why = std::move(why);
  } else if (reasons_.size() < kMostReasons) {
    reasons_.push_back({std::move(why), std::move(subject)});
  }
}

void PlanRequests::add_urgent(std::string why) {
  add(std::move(why));
  urgent_ = true;
}

std::uint64_t PlanRequests::begin() {
  reasons_of_last_ = std::exchange(reasons_, {});
  pending_ = true;
  begun_ = true;
  urgent_ = false;
  return ++number_;
}

bool PlanRequests::finish(std::uint64_t number) {
  if (!pending_ || number != number_) return false;
  pending_ = false;
  return true;
}

void PlanRequests::discard() {
  pending_ = false;
  ++number_;
}

void PlanRequests::start_over() {
  discard();
  begun_ = false;
}

std::string PlanRequests::reasons_of_last() const {
  std::vector<std::string> reasons;
  for (const Reason& reason : reasons_of_last_) reasons.push_back(reason.why);
  return joined(reasons, "; ");
}

// ---- Rollout

Rollout::Rollout(schedule::Plan plan, schedule::Steps steps, std::set<schedule::DeviceKey> in_place,
                 const std::function<GpuletId()>& new_id, Time now, Duration patience)
    : plan_(std::move(plan)),
      steps_(std::move(steps)),
      in_place_(std::move(in_place)),
      began_(now),
      deadline_(now + patience) {
  for (const schedule::Steps::Keep& keep : steps_.keep) parts_[keep.running] = keep.planned;
  for (const std::size_t planned : steps_.create) {
    const GpuletId id = new_id();
    parts_[id] = planned;
    created_.insert(id);
    if (in_place_.contains(plan_.gpulets[planned].device)) {
      postponed_.insert(id);
    } else {
      awaited_.insert(id);
      to_create_.insert(id);
    }
  }
}

GpuletId Rollout::take_to_create() { return to_create_.extract(to_create_.begin()).value(); }

void Rollout::lost(GpuletId id) {
  const auto part = parts_.find(id);
  if (part == parts_.end()) return;
  for (const schedule::Assignment& one : plan_.gpulets[part->second].assignments)
    lost_models_.insert(one.model);
  awaited_.erase(id);
  late_.erase(id);
  to_create_.erase(id);
  postponed_.erase(id);
  parts_.erase(part);
}

std::set<std::string> Rollout::unready_models() const {
  std::set<std::string> models = lost_models_;
  for (const auto& [id, part] : parts_) {
    if (!awaits(id)) continue;
    for (const schedule::Assignment& one : plan_.gpulets[part].assignments)
      models.insert(one.model);
  }
  return models;
}

void Rollout::wait_longer(GpuletId id, Time until) {
  if (until > deadline_) longer_[id] = until;
}

Time Rollout::deadline() const {
  Time latest = deadline_;
  for (const auto& [id, until] : longer_) {
    if (awaited_.contains(id)) latest = std::max(latest, until);
  }
  return latest;
}

void Rollout::clear(Time now, Duration patience) {
  clearing_ = true;
  deadline_ = now + patience;
  longer_.clear();
}

void Rollout::create_postponed(GpuletId id) {
  postponed_.erase(id);
  awaited_.insert(id);
}

std::map<GpuletId, schedule::PlannedGpulet> Rollout::take_unready() {
  const std::set<GpuletId> not_created = std::exchange(postponed_, {});
  for (const GpuletId id : not_created) lost(id);
  std::map<GpuletId, schedule::PlannedGpulet> unready;
  for (const std::set<GpuletId>* const ids : {&awaited_, &late_}) {
    for (const GpuletId id : *ids) {
      unready.emplace(id, part_of(id));
      parts_.erase(id);
    }
  }
  awaited_.clear();
  late_.clear();
  return unready;
}

// ---- Deployment

Deployment::Deployment(BackendRegistry& backends, std::uint64_t run)
    : backends_(backends), first_id_((run << kRunShift) + 1), next_gpulet_(first_id_) {}

void Deployment::started_within(Duration took) {
  constexpr std::int64_t kForgets = 5;  // a part of what was longer, with every gpulet
  usual_start_ = std::max(took, usual_start_ - (usual_start_ - took) / kForgets);
}

Duration Deployment::patience(Duration least) const {
  constexpr Duration kMost = std::chrono::seconds(20);
  return std::max(least, std::min(usual_start_ + usual_start_ / 2, kMost));
}

void Deployment::set_plan(schedule::Plan plan) {
  plan_ = std::move(plan);
  unserved_.clear();
  for (std::size_t i = 0; i < plan_.unserved.size(); ++i)
    unserved_.try_emplace(plan_.unserved[i].model, i);
}

Deployment::Processes Deployment::processes_beside(const schedule::PlannedGpulet& gpulet) const {
  if (!gpulet.instance) return {};
  Processes processes{0, {}};
  for (const auto& [id, other] : serving_) {
    if (other.instance != gpulet.instance || other.device != gpulet.device) continue;
    if (processes.count++ == 0 || id < processes.first) processes.first = id;
  }
  return processes;
}

void Deployment::advance(schedule::Plan plan) {
  set_plan(std::move(plan));
  ++epoch_.value;
}

std::set<std::string> Deployment::unready_models() const {
  std::set<std::string> models = lost_models_;
  for (const auto& [id, planned] : missing_) {
    for (const schedule::Assignment& one : planned.assignments) models.insert(one.model);
  }
  return models;
}

void Deployment::set_missing(Serving missing, std::set<std::string> lost) {
  missing_ = std::move(missing);
  lost_models_ = std::move(lost);
}

Deployment::Serving Deployment::take_arrived() {
  Serving arrived;
  for (auto one = missing_.begin(); one != missing_.end();) {
    const GpuletRecord* const gpulet = backends_.find(one->first);
    const bool serves =
        gpulet != nullptr && gpulet->state == GpuletState::ready && !gpulet->retiring;
    const auto next = std::next(one);
    if (serves) arrived.insert(missing_.extract(one));
    one = next;
  }
  return arrived;
}

void Deployment::keep_stand_ins(const Serving& before) {
  stand_ins_.clear();
  const std::set<std::string> unready = unready_models();
  for (const auto& [id, old] : before) {
    const GpuletRecord* const gpulet = backends_.find(id);
    if (gpulet == nullptr || gpulet->retiring) continue;
    for (const schedule::Assignment& one : old.assignments) {
      if (!unready.contains(one.model)) continue;
      const auto [at, added] = serving_.try_emplace(id, old);
      schedule::PlannedGpulet& part = at->second;
      if (added) part.assignments.clear();
      const bool planned =
          std::any_of(part.assignments.begin(), part.assignments.end(),
                      [&one](const auto& other) { return other.model == one.model; });
      if (planned) continue;
      part.assignments.push_back(one);
      part.duty_cycle_ms = std::max(part.duty_cycle_ms, old.duty_cycle_ms);
      stand_ins_[id].insert(one.model);
    }
  }
}

std::vector<GpuletId> Deployment::release_stand_ins() {
  std::vector<GpuletId> released;
  const std::set<std::string> unready = unready_models();
  for (auto& [id, models] : stand_ins_) {
    const auto part = serving_.find(id);
    std::erase_if(models, [&](const std::string& model) {
      if (unready.contains(model)) return false;
      if (part != serving_.end()) {
        std::erase_if(part->second.assignments,
                      [&model](const auto& one) { return one.model == model; });
      }
      return true;
    });
    if (!models.empty() || part == serving_.end() || !part->second.assignments.empty()) continue;
    serving_.erase(part);
    released.push_back(id);
  }
  std::erase_if(stand_ins_, [](const auto& one) { return one.second.empty(); });
  return released;
}

const schedule::Unserved* Deployment::unserved_part(const std::string& model) const {
  const auto found = unserved_.find(model);
  return found == unserved_.end() ? nullptr : &plan_.unserved[found->second];
}

void Deployment::cancel_rollout(FrontendEffects& effects) {
  stages_.clear();
  if (!rollout_) return;
  for (const auto& [id, part] : rollout_->parts()) {
    if (rollout_->is_new(id) && !serving_.contains(id)) retire(id, effects);
  }
  rollout_.reset();
}

void Deployment::abandon_rollout() {
  stages_.clear();
  rollout_.reset();
}

void Deployment::start_over() {
  abandon_rollout();
  serving_.clear();
  missing_.clear();
  lost_models_.clear();
  stand_ins_.clear();
  set_routes({});
  set_plan({});
}

bool Deployment::lose(GpuletId id) {
  bool needed = in_rollout(id);
  if (serving_.erase(id) > 0) needed = true;
  if (rollout_) rollout_->lost(id);
  stand_ins_.erase(id);
  if (const auto missing = missing_.find(id); missing != missing_.end()) {
    for (const schedule::Assignment& one : missing->second.assignments)
      lost_models_.insert(one.model);
    missing_.erase(missing);
    needed = true;
  }
  return needed;
}

void Deployment::retire(GpuletId id, FrontendEffects& effects) {
  const GpuletRecord* const gpulet = backends_.find(id);
  if (gpulet == nullptr || gpulet->retiring || !backends_.commanded(gpulet->backend)) return;
  effects.emplace_back(
      SendToBackend{gpulet->backend, RetireGpulet{id, backends_.term_for(gpulet->backend)}});
  backends_.set_retiring(id);
}

RunIds Deployment::run_ids() const {
  const std::uint64_t begin = first_id_ - 1;
  return {GpuletId{first_id_}, GpuletId{next_gpulet_},
          GpuletId{begin + (std::uint64_t{1} << kRunShift)}};
}

}  // namespace gpulet::serve
