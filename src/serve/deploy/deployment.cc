#include "serve/deploy/deployment.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/serve/values/frontend_options.h"

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

Rollout::Rollout(schedule::Plan plan, schedule::Steps steps,
                 const std::set<schedule::DeviceKey>& in_place,
                 const std::function<GpuletId()>& new_id, Time now, Duration patience)
    : plan_(std::move(plan)), steps_(std::move(steps)), began_(now), deadline_(now + patience) {
  for (const schedule::Steps::Keep& keep : steps_.keep) parts_[keep.running] = keep.planned;
  for (const std::size_t planned : steps_.create) {
    const GpuletId id = new_id();
    parts_[id] = planned;
    created_.insert(id);
    if (in_place.contains(plan_.gpulets[planned].device)) {
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

void Rollout::wait_longer(GpuletId id, Time until) {
  if (until > deadline_) longer_[id] = until;
}

Time Rollout::deadline() const {
  Time latest = deadline_;
  for (const auto& [id, until] : longer_) {
    if (awaited_.contains(id)) latest = std::max(latest, until);
  }
  for (const auto& [device, until] : leaving_) latest = std::max(latest, until);
  return latest;
}

void Rollout::await_leaving(const schedule::DeviceKey& device, Time until) {
  leaving_[device] = until;
}

bool Rollout::overdue(const schedule::DeviceKey& device, Time now) const {
  const auto leaving = leaving_.find(device);
  return leaving != leaving_.end() && now >= leaving->second;
}

void Rollout::create_postponed(GpuletId id, Time until) {
  leaving_.erase(part_of(id).device);
  postponed_.erase(id);
  awaited_.insert(id);
  // The others of its device have to wait for it.
  deadline_ = std::max(deadline_, until);
}

bool Rollout::awaits_any_of(const std::set<std::string>& models, Time now) const {
  return std::any_of(awaited_.begin(), awaited_.end(), [&](GpuletId id) {
    const auto longer = longer_.find(id);
    if (now >= (longer == longer_.end() ? deadline_ : longer->second)) return false;
    const std::vector<schedule::Assignment>& assigned = part_of(id).assignments;
    return std::any_of(assigned.begin(), assigned.end(),
                       [&models](const auto& one) { return models.contains(one.model); });
  });
}

void Rollout::give_up_postponed() {
  const std::set<GpuletId> not_created = postponed_;
  for (const GpuletId id : not_created) lost(id);
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

void Deployment::loaded(const std::vector<schedule::RunningModel>& models, Duration took) {
  constexpr std::size_t kMostModels = 16'384;  // models may come and go for years
  for (const schedule::RunningModel& model : models) {
    if (loads_.size() >= kMostModels && !loads_.contains(model.name)) loads_.clear();
    loads_[model.name] = took;
  }
}

std::optional<Duration> Deployment::expected_load(const schedule::PlannedGpulet& planned) const {
  Duration longest{};
  for (const schedule::Assignment& one : planned.assignments) {
    const auto known = loads_.find(one.model);
    if (known == loads_.end()) return std::nullopt;
    longest = std::max(longest, known->second);
  }
  return longest;
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

void Deployment::set_missing(const schedule::WantedParts& wanted, std::set<std::string> lost) {
  missing_.clear();
  stand_ins_.clear();
  lost_models_ = std::move(lost);
  for (const auto& [id, part] : wanted) {
    const auto serves = serving_.find(id);
    if (serves == serving_.end() || serves->second != *part) missing_.emplace(id, *part);
  }
  for (const auto& [id, part] : serving_) {
    if (missing_.contains(id) || !wanted.contains(id)) stand_ins_.insert(id);
  }
}

schedule::WantedParts Deployment::wanted() const {
  schedule::WantedParts wanted;
  if (rollout_) {
    for (const auto& [id, part] : rollout_->parts())
      wanted.emplace_hint(wanted.end(), id, &rollout_->part_of(id));
    return wanted;
  }
  for (const auto& [id, part] : serving_) {
    if (!stand_ins_.contains(id)) wanted.emplace_hint(wanted.end(), id, &part);
  }
  for (const auto& [id, part] : missing_) wanted.emplace(id, &part);
  return wanted;
}

void Deployment::follow(const schedule::MixtureChange& change,
                        const schedule::WantedParts& wanted) {
  for (const GpuletId id : change.begin) {
    serving_[id] = *wanted.at(id);
    missing_.erase(id);
    stand_ins_.erase(id);
    std::erase_if(outages_, [id](const PlannedOutage& one) { return one.until == id; });
  }
  for (const GpuletId id : change.end) {
    serving_.erase(id);
    stand_ins_.erase(id);
  }
}

void Deployment::drop_other_outages() {
  std::erase_if(outages_, [this](const PlannedOutage& one) {
    return !one.begun || backends_.find(one.until) == nullptr;
  });
}

void Deployment::begin_outage(PlannedOutage outage) {
  if (outage.dark.empty()) return;
  outage.begun = true;
  const auto expected =
      std::find_if(outages_.begin(), outages_.end(),
                   [&](const PlannedOutage& one) { return one.until == outage.until; });
  if (expected != outages_.end()) {
    *expected = std::move(outage);
  } else {
    outages_.push_back(std::move(outage));
  }
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
  abandon_rollout();
}

void Deployment::abandon_rollout() {
  stages_.clear();
  drop_other_outages();
  rollout_.reset();
}

void Deployment::start_over() {
  abandon_rollout();
  serving_.clear();
  missing_.clear();
  lost_models_.clear();
  stand_ins_.clear();
  least_rates_.clear();
  outages_.clear();
  set_routes({});
  set_plan({});
}

bool Deployment::lose(GpuletId id) {
  bool needed = in_rollout(id);
  if (serving_.erase(id) > 0) needed = true;
  if (rollout_) rollout_->lost(id);
  stand_ins_.erase(id);
  std::erase_if(outages_, [id](const PlannedOutage& one) { return one.until == id; });
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
