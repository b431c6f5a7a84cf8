#include "serve/adapt/feedback.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpulet::serve {
namespace {

// A correction that differs from the planned one by more requests a plan.
constexpr double kBand = 0.08;
constexpr Duration kFirstWait = std::chrono::seconds(5);  // between two plans for one model
constexpr Duration kLongestWait = std::chrono::minutes(2);
// A batch that takes longer than this multiple of its prediction is no mere slow model.
constexpr double kFarFromPredicted = 3;
constexpr double kSlackOfObjective = 0.5;
// After the routes changed, violations may still be due to the previous ones.
constexpr Duration kSettling = std::chrono::seconds(5);

// "1.8 times slower", "1.4 times faster"
std::string pace_in_words(double factor) {
  return factor >= 1 ? fmt::format("{:.1f} times slower", factor)
                     : fmt::format("{:.1f} times faster", 1 / factor);
}

}  // namespace

Feedback::Feedback(const FrontendOptions& options, const ModelLoads& loads, const Fleet& fleet,
                   const ModelTable& models, const Deployment& deployment, Journal& journal,
                   Time now)
    : options_(options),
      loads_(loads),
      fleet_(fleet),
      models_(models),
      deployment_(deployment),
      journal_(journal),
      profiles_(fleet.in_force().profiles),
      estimator_({options.period}),
      planned_(std::make_shared<const profile::Corrections>()),
      period_end_(now + options.period),
      routes_changed_(now) {}

// ---- observations

void Feedback::follow_routes(Time now) {
  routes_changed_ = now;
  slots_.clear();
  of_model_.clear();
  for (const auto& [id, planned] : deployment_.in_force().serving()) {
    if (planned.service != schedule::Service::rounds) continue;
    std::vector<Slot> slots = slots_of(id, planned);
    for (std::size_t i = 0; i < slots.size(); ++i)
      of_model_[slots[i].place.model].emplace_back(id, i);
    if (!slots.empty()) slots_.emplace(id, std::move(slots));
  }
}

std::vector<Feedback::Slot> Feedback::slots_of(GpuletId id,
                                               const schedule::PlannedGpulet& planned) {
  const DeviceOffer* const offer = fleet_.backends().offer_of(planned.device);
  if (offer == nullptr) return {};
  const std::uint32_t processes = deployment_.in_force().processes_beside(planned).count;
  std::vector<Slot> slots;
  for (const schedule::Assignment& assignment : planned.assignments) {
    const auto* const measured = fleet_.in_force().find(offer, assignment.model);
    const auto index = models_.version_in(id, assignment.model);
    if (measured == nullptr || !index) continue;
    Slot slot;
    slot.index = *index;
    slot.place = {assignment.model, offer->device.type, planned.size, planned.device};
    slot.planned = planned_factor(slot.place);
    const profile::LatencyTable& shared = measured->latency_of(processes);
    for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
      const auto alone_ms = measured->latency.latency_ms(count, planned.size);
      const auto shared_ms = shared.latency_ms(count, planned.size);
      if (!alone_ms || !shared_ms) break;
      slot.alone.push_back(from_ms(*alone_ms));
      slot.beside.push_back(from_ms(*shared_ms * assignment.slowdown));
    }
    double shortest_ms = 0;  // objective of the other models
    for (const schedule::Assignment& other : planned.assignments) {
      if (other.model == assignment.model) continue;
      if (shortest_ms == 0 || other.slo_ms < shortest_ms) shortest_ms = other.slo_ms;
    }
    slot.slack = from_ms(kSlackOfObjective * shortest_ms);
    const auto remembered = slack_.find(assignment.model);
    if (shortest_ms == 0 && remembered != slack_.end()) slot.slack = remembered->second;
    slots.push_back(std::move(slot));
  }
  return slots;
}

void Feedback::ran(const BatchRun& batch, Time now) {
  const auto found = slots_.find(batch.gpulet);
  if (found == slots_.end()) return;
  const auto slot = std::find_if(found->second.begin(), found->second.end(),
                                 [&batch](const Slot& one) { return one.index == batch.model; });
  if (slot == found->second.end() || batch.count == 0 || batch.count > slot->alone.size()) return;
  const Duration alone = slot->alone[batch.count - 1];
  const Duration beside = slot->beside[batch.count - 1];
  if (slot->estimate == nullptr) slot->estimate = &estimator_.at(slot->place, now);
  slot->estimate->add({batch.executed, alone, beside}, now);
  if (slot->slack == Duration::zero()) return;
  const Duration predicted = from_seconds(to_seconds(beside) * std::max(1.0, slot->planned));
  const Duration excess = batch.executed - predicted;
  if (excess <= slot->slack ||
      to_seconds(batch.executed) < kFarFromPredicted * to_seconds(predicted))
    return;
  slack_[slot->place.model] = slot->slack;
  disturbances_.blocked(slot->place.model, batch.executed, predicted, excess - slot->slack, now);
}

void Feedback::follow_profiles(Time now) {
  if (fleet_.in_force().profiles == profiles_) return;
  std::set<std::string> changed;
  for (const auto& [type, profile] : *profiles_) {
    const auto found = fleet_.in_force().profiles->find(type);
    for (const auto& [name, model] : profile.models) {
      const profile::ModelProfile* const known =
          found == fleet_.in_force().profiles->end() ? nullptr : found->second.find(name);
      if (known == nullptr || known->latency.samples() != model.latency.samples())
        changed.insert(name);
    }
  }
  profiles_ = fleet_.in_force().profiles;
  for (const std::string& name : changed) {
    estimator_.forget(name);
    disturbances_.forget(name);
    slack_.erase(name);
  }
  follow_routes(now);
}

// ---- reactions

void Feedback::tick(Time now, FrontendEffects& effects) {
  follow_profiles(now);
  if (estimator_.tick(now)) {
    for (auto& [id, slots] : slots_) {
      for (Slot& slot : slots) slot.estimate = nullptr;
    }
  }
  note_slow_devices(now, effects);
  if (!acts()) return;
  look_for_disturbances(now, effects);
  look_for_slow_models(now, effects);
  look_for_late_models(now, effects);
  if (now < period_end_) return;
  period_end_ = now + options_.period;
  look_for_fast_models(now, effects);
  if (plans_too_much()) journal_.request_plan("models behave as planned again");
}

double Feedback::planned_factor(const ObservedPlace& place) const {
  return profile::factor_of(*planned_, place.device_type, place.model, place.size) *
         serve::slowness_of(planned_slow_devices_, place.device);
}

void Feedback::note_slow_devices(Time now, FrontendEffects& effects) {
  const SlowDevices& slow = estimator_.slow_devices();
  for (const auto& [device, slowness] : slow) {
    if (noted_slow_devices_.contains(device)) continue;
    journal_.note(true,
                  fmt::format("{} runs {:.1f} times slower than other devices of its type",
                              device_name(device), slowness),
                  now, effects);
  }
  for (const auto& [device, slowness] : noted_slow_devices_) {
    if (slow.contains(device)) continue;
    journal_.note(false, device_name(device) + " runs as fast as its type again", now, effects);
  }
  noted_slow_devices_ = slow;
}

void Feedback::look_for_disturbances(Time now, FrontendEffects& effects) {
  const Disturbances::Changes changes = disturbances_.tick(now);
  for (const std::string& model : changes.begin) {
    const auto held = of_model_.find(model);
    std::string where;
    if (held != of_model_.end())
      where = " on " + device_name(slots_.at(held->second.front().first).front().place.device);
    const std::string text = fmt::format("{} blocks the other models of its gpulet{}: {}", model,
                                         where, disturbances_.why(model));
    journal_.note(true, text + "; it gets gpulets of its own", now, effects);
    journal_.request_urgent_plan(text);
  }
  for (const std::string& model : changes.end) {
    slack_.erase(model);
    journal_.note(false, model + " may share gpulets again: its batches take as long as predicted",
                  now, effects);
    may_share_again_ = true;
  }
}

std::string_view Feedback::basis_of(const ObservedPlace& place) const {
  const profile::ModelProfile* const known = fleet_.profile_of(place.device, place.model);
  return known != nullptr && known->estimate ? "estimated" : "its profile";
}

bool Feedback::may_plan(const std::string& model, Time now) {
  Backoff& backoff = backoff_[model];
  if (now < backoff.next) return false;
  const bool calm = now - backoff.next >= kLongestWait;
  backoff.wait = calm ? kFirstWait : std::clamp(2 * backoff.wait, kFirstWait, kLongestWait);
  backoff.next = now + backoff.wait;
  return true;
}

void Feedback::look_for_slow_models(Time now, FrontendEffects& effects) {
  for (const auto& [model, places] : of_model_) {
    const Slot* worst = nullptr;
    for (const auto& [id, at] : places) {
      const Slot& slot = slots_.at(id)[at];
      if (slot.estimate == nullptr) continue;
      const double planned = planned_factor(slot.place);
      const bool slow = slot.estimate->factor() > (1 + kBand) * planned;
      if (slow && (worst == nullptr || slot.estimate->factor() > worst->estimate->factor()))
        worst = &slot;
    }
    if (worst == nullptr || !may_plan(model, now)) continue;
    const double factor = worst->estimate->factor();
    std::string text = fmt::format("{} runs {} than {} on {}", model, pace_in_words(factor),
                                   basis_of(worst->place), device_name(worst->place.device));
    journal_.note(factor > 1, text, now, effects);
    journal_.request_plan(std::move(text), model);
  }
}

void Feedback::look_for_fast_models(Time now, FrontendEffects& effects) {
  const profile::Corrections current = estimator_.corrections();
  for (const auto& [model, places] : of_model_) {
    for (const auto& [id, at] : places) {
      const ObservedPlace& place = slots_.at(id)[at].place;
      const double planned = planned_factor(place);
      const double factor = profile::factor_of(current, place.device_type, model, place.size) *
                            slowness_of(place.device);
      if (factor >= (1 - kBand) * planned) continue;
      if (!may_plan(model, now)) break;
      std::string text = factor == 1 ? fmt::format("{} runs as its profile says again", model)
                                     : fmt::format("{} runs {} than {}", model,
                                                   pace_in_words(factor), basis_of(place));
      journal_.note(false, text, now, effects);
      journal_.request_plan(std::move(text), model);
      break;
    }
  }
}

void Feedback::look_for_late_models(Time now, FrontendEffects& effects) {
  const auto& models = models_.all();
  if (headroom_.size() > models.size()) {
    std::erase_if(headroom_, [&models](const auto& one) { return !models.contains(one.first); });
  }
  for (const auto& [name, known] : models) {
    const auto lacks = [&, &model = name, &of = known] { return lacks_headroom(model, of, now); };
    ExtraHeadroom& headroom = headroom_[name];
    if (!headroom.tick(loads_.counters(name, known), lacks, now)) continue;
    std::string text =
        fmt::format("{} misses its target as planned: it gets {:.0f} % more headroom", name,
                    100 * (headroom.factor() - 1));
    journal_.note(true, text, now, effects);
    journal_.request_plan(std::move(text), name);
  }
}

bool Feedback::lacks_headroom(const std::string& name, const NamedModel& known, Time now) const {
  if (journal_.requests().any() || journal_.requests().pending() || deployment_.rolls_out())
    return false;
  if (now - routes_changed_ < kSettling || !models_.has_ready_slot(name)) return false;
  const bool explained = disturbances_.disturbs(name) ||
                         deployment_.in_force().unserved_part(name) != nullptr ||
                         loads_.above_plan(known);
  return !explained && of_model_.contains(name) && has_room();
}

bool Feedback::has_room() const {
  std::map<schedule::DeviceKey, std::pair<int, std::uint32_t>> used;  // percent, gpulets
  for (const schedule::PlannedGpulet& gpulet : deployment_.in_force().plan().gpulets) {
    used[gpulet.device].first += schedule::policy_size(gpulet).percent;
    ++used[gpulet.device].second;
  }
  const bool may_open = !options_.max_devices || used.size() < *options_.max_devices;
  const schedule::Cluster cluster = fleet_.backends().cluster();
  return std::any_of(cluster.devices.begin(), cluster.devices.end(),
                     [&](const schedule::Device& device) {
                       const auto found = used.find(device.key);
                       if (found == used.end()) return may_open;
                       const auto& [percent, gpulets] = found->second;
                       return percent + device.sizes.front().percent <= kWholeDevice.percent &&
                              gpulets < device.max_partitions;
                     });
}

bool Feedback::plans_too_much() const {
  return may_share_again_ ||
         std::any_of(planned_headroom_.begin(), planned_headroom_.end(),
                     [this](const auto& one) { return extra_headroom_of(one.first) < one.second; });
}

// ---- planning

std::set<std::string> Feedback::adjust(std::vector<schedule::ModelDemand>& demands) {
  planned_ = std::make_shared<const profile::Corrections>(
      options_.feedback ? estimator_.corrections() : profile::Corrections());
  planned_slow_devices_ = options_.feedback ? estimator_.slow_devices() : SlowDevices();
  planned_headroom_.clear();
  may_share_again_ = false;
  std::set<std::string> may_share;
  for (schedule::ModelDemand& demand : demands) {
    if (const double factor = extra_headroom_of(demand.name); factor > 1) {
      demand.rate *= factor;
      planned_headroom_[demand.name] = factor;
    }
    if (demand.alone || !options_.feedback || !disturbances_.disturbs(demand.name)) continue;
    demand.alone = true;
    may_share.insert(demand.name);
  }
  return may_share;
}

// ---- status

std::vector<CorrectionStatus> Feedback::corrections() const {
  std::vector<CorrectionStatus> all = estimator_.status();
  for (CorrectionStatus& one : all)
    one.planned = planned_factor({one.model, one.device_type, one.size, one.slowest});
  return all;
}

double Feedback::correction_of(const std::string& model) const {
  const auto found = of_model_.find(model);
  double most = 0;
  if (found != of_model_.end()) {
    for (const auto& [id, at] : found->second) {
      const Slot& slot = slots_.at(id)[at];
      if (slot.estimate != nullptr) most = std::max(most, slot.estimate->factor());
    }
  }
  return most == 0 ? 1 : most;
}

double Feedback::extra_headroom_of(const std::string& model) const {
  const auto found = headroom_.find(model);
  return found == headroom_.end() ? 1 : found->second.factor();
}

}  // namespace gpulet::serve
