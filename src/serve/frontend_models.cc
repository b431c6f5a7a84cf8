// FrontendCore: models that come, change and go while others are served.
#include <algorithm>
#include <utility>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {
namespace {

// A catalogue of thousands of models is taken in over as many turns as that takes.
constexpr std::size_t kModelsInAStep = 64;
constexpr std::size_t kVersionsInAStep = 256;  // that take over, or are forgotten

bool same_description(const ServedModel& a, const ServedModel& b) {
  if (a.description == b.description) return true;
  return a.description && b.description && *a.description == *b.description;
}

bool same_settings(const ServedModel& a, const ServedModel& b) {
  return a.slo_ms == b.slo_ms && a.configured_rate == b.configured_rate &&
         a.max_batch == b.max_batch && a.queue == b.queue;
}

}  // namespace

void FrontendCore::on_event(CatalogueChanged event, Time now, FrontendEffects& effects) {
  Catalogue& catalogue = event.catalogue;
  for (FileProblems::News& news : file_problems_.read(catalogue))
    note(news.warning, std::move(news.text), now, effects);
  CatalogueUnderWay next;
  next.asked_for.insert(event.asked_for.begin(), event.asked_for.end());
  if (catalogue_) {  // replaced before it was taken in as a whole
    next.asked_for.merge(catalogue_->asked_for);
    next.changed = true;
  }
  if (catalogue.profiles != profiles_) {
    next.changed = true;
    if (catalogue.profiles != nullptr) {
      profiles_ = std::move(catalogue.profiles);
      interference_ = std::move(catalogue.interference);
    }
  }
  for (const ServedModel& model : catalogue.models) next.present.insert(model.name);
  next.models = std::move(catalogue.models);
  next.applications = std::move(catalogue.applications);
  next.unloaded = std::move(catalogue.unloaded);
  catalogue_.emplace(std::move(next));
}

void FrontendCore::take_in_catalogue(Time now, FrontendEffects& effects) {
  CatalogueUnderWay& taken = *catalogue_;
  std::size_t left = kModelsInAStep;
  for (; taken.next < taken.models.size() && left > 0; ++taken.next, --left) {
    // Moved, so that no turn frees thousands of them.
    const ServedModel model = std::move(taken.models[taken.next]);
    const bool asked_for = taken.asked_for.contains(model.name);
    taken.changed = take_in_model(model, asked_for, now, effects) || taken.changed;
  }
  if (taken.next == taken.models.size() && !taken.gone) {
    taken.gone.emplace();
    for (const auto& [name, known] : versions_.named()) {
      if (!taken.present.contains(name)) taken.gone->push_back(name);
    }
  }
  for (; taken.gone && !taken.gone->empty() && left > 0; --left) {
    remove_model(taken.gone->front(), now, effects);
    taken.gone->pop_front();
    taken.changed = true;
  }
  const bool whole = taken.gone && taken.gone->empty();
  if (whole && replace_applications(taken.applications, now)) taken.changed = true;
  const bool changed = taken.changed;
  if (whole) {
    unloaded_ = std::move(taken.unloaded);
    catalogue_.reset();
  }
  if (!changed) return;
  // What is being planned is out of date: its answer will not be looked at.
  plan_pending_ = false;
  ++plan_number_;
  want_plan("the models changed");
}

bool FrontendCore::take_in_model(const ServedModel& model, bool asked_for, Time now,
                                 FrontendEffects& effects) {
  bool changed = true;
  if (NamedModel* const known = versions_.find(model.name)) {
    changed = change_model(*known, model, asked_for, now, effects);
  } else {
    note(false,
         "model " + model.name + " is registered, version " + short_version(version_of(model)), now,
         effects);
    add_model(model, now);
  }
  if (!asked_for) return changed;
  NamedModel& known = *versions_.find(model.name);
  demands_.wake(known.demand);
  changed = quarantine_.release(model.name) || changed;
  changed = held_back_.erase(model.name) > 0 || !has_ready_lane(model.name) || changed;
  known.failure.reset();
  known.stuck = false;
  return changed;
}

void FrontendCore::on_event(const CatalogueRefused& event, Time now, FrontendEffects& effects) {
  for (FileProblems::News& news : file_problems_.refused(event.why, event.by_hand))
    note(news.warning, std::move(news.text), now, effects);
}

void FrontendCore::add_model(ServedModel model, Time now) {
  NamedModel named;
  const std::string name = model.name;
  named.current.id = version_of(model);
  named.demand = demands_.add(model, now);
  if (auto back = versions_.take_back(name, named.current.id)) {
    named.current = std::move(*back);
    dispatcher_.change(named.current.index, std::move(model));
  } else {
    named.current.index = dispatcher_.add(std::move(model));
  }
  versions_.named().insert_or_assign(name, std::move(named));
}

bool FrontendCore::change_model(NamedModel& known, const ServedModel& model, bool asked_for,
                                Time now, FrontendEffects& effects) {
  std::string id = version_of(model);
  bool changed = change_settings(known, model, now);
  for (const ModelVersion* const version : {&known.current, known.next ? &*known.next : nullptr}) {
    if (version != nullptr && version->id == id) change_description(version->index, model);
  }
  if (id == known.current.id) {
    if (known.next) {
      drop_next(known, effects);
      changed = true;
    }
    const bool again = asked_for && known.current_refused();
    if (again || !known.current_refused()) known.refused.reset();
    return changed || again;
  }
  // What crashed is what is replaced.
  changed = quarantine_.release(model.name) || changed;
  if (known.next && known.next->id == id) return changed;
  if (known.refused && known.refused->id == id && !asked_for) return changed;
  stage_version(known, model, std::move(id), now, effects);
  return true;
}

bool FrontendCore::change_settings(const NamedModel& known, const ServedModel& model, Time now) {
  if (same_settings(dispatcher_.models()[known.current.index], model)) return false;
  const auto settle = [&](ModelIndex index) {
    ServedModel changed = dispatcher_.models()[index];
    changed.slo_ms = model.slo_ms;
    changed.configured_rate = model.configured_rate;
    changed.max_batch = model.max_batch;
    changed.queue = model.queue;
    dispatcher_.change(index, std::move(changed));
  };
  settle(known.current.index);
  if (known.next) settle(known.next->index);
  demands_.change(known.demand, model, now);
  return true;
}

// No plan depends on it.
void FrontendCore::change_description(ModelIndex index, const ServedModel& model) {
  if (same_description(dispatcher_.models()[index], model)) return;
  ServedModel changed = dispatcher_.models()[index];
  changed.description = model.description;
  dispatcher_.change(index, std::move(changed));
}

void FrontendCore::stage_version(NamedModel& known, const ServedModel& model, std::string id,
                                 Time now, FrontendEffects& effects) {
  if (known.next) drop_next(known, effects);
  known.refused.reset();
  known.failure.reset();
  known.stuck = false;
  ModelVersion version;
  if (auto back = versions_.take_back(model.name, id)) {
    version = std::move(*back);
    dispatcher_.change(version.index, model);
  } else {
    version.index = dispatcher_.add(model);
    version.id = std::move(id);
  }
  note(false,
       "model " + model.name + ": version " + short_version(version.id) +
           " is to take over from version " + short_version(known.current.id),
       now, effects);
  known.next = std::move(version);
  // Nothing serves it and nothing waits for it: there is nobody to take over from.
  const ModelIndex current = known.current.index;
  if (!demands_.asleep(known.demand) || !dispatcher_.unused(current)) return;
  DispatchOutput output;
  take_over(known, output, now, effects);
  emit(std::move(output), effects);
}

void FrontendCore::drop_next(NamedModel& known, FrontendEffects& effects) {
  const std::string& name = dispatcher_.models()[known.next->index].name;
  // A plan that brings it would take the gpulets of the version in force, and give nothing.
  const auto holds_it = [&](const auto& part) {
    const FleetGpulet* const gpulet = fleet_.find(part.first);
    return gpulet != nullptr &&
           std::any_of(gpulet->models.begin(), gpulet->models.end(), [&](const auto& loaded) {
             return loaded.name == name && loaded.version == known.next->id;
           });
  };
  if (rollout_ && std::any_of(rollout_->parts().begin(), rollout_->parts().end(), holds_it))
    cancel_rollout(effects);
  versions_.leaving().push_back({name, std::move(*known.next), false, false});
  known.next.reset();
  known.parked = false;
}

void FrontendCore::take_over(NamedModel& known, DispatchOutput& output, Time now,
                             FrontendEffects& effects) {
  const std::string name = dispatcher_.models()[known.next->index].name;
  dispatcher_.succeed(known.current.index, known.next->index, now, output);
  versions_.leaving().push_back({name, std::move(known.current), false, true});
  known.current = std::move(*known.next);
  known.next.reset();
  known.parked = false;
  ++known.number;
  note(false, "model " + name + ": version " + short_version(known.current.id) + " has taken over",
       now, effects);
}

void FrontendCore::remove_model(const std::string& name, Time now, FrontendEffects& effects) {
  NamedModel& known = *versions_.find(name);
  if (known.next) drop_next(known, effects);
  demands_.remove(known.demand);
  held_back_.erase(name);
  quarantine_.forget(name);
  versions_.leaving().push_back({name, std::move(known.current), true, false});
  versions_.named().erase(name);
  note(false, "model " + name + " is removed", now, effects);
  DispatchOutput output;
  sweep_versions(now, output);
  emit(std::move(output), effects);
}

std::deque<std::string> FrontendCore::begin_successions(const std::vector<Route>& routes, Time now,
                                                        DispatchOutput& output) {
  std::vector<bool> routed(dispatcher_.models().size());
  std::vector<bool> ready(dispatcher_.models().size());  // by a gpulet that takes batches
  for (const Route& route : routes) {
    const FleetGpulet* const gpulet = fleet_.find(route.gpulet);
    const bool takes_batches = gpulet != nullptr && gpulet->state == GpuletState::ready;
    for (const LaneSpec& lane : route.lanes) {
      routed[lane.model] = true;
      if (takes_batches) ready[lane.model] = true;
    }
  }
  std::deque<std::string> successions;
  for (const auto& [name, known] : versions_.named()) {
    if (!known.next || !routed[known.next->index] || ready[known.current.index]) continue;
    successions.push_back(name);
    const ServedModel& old = dispatcher_.models()[known.current.index];
    const ServedModel& next = dispatcher_.models()[known.next->index];
    const bool can_follow = old.inputs == next.inputs && old.outputs == next.outputs;
    if (!can_follow) dispatcher_.flush(known.current.index, now, output);
  }
  for (const LeavingVersion& leaving : versions_.leaving()) {
    if (!leaving.closed && !routed[leaving.version.index])
      dispatcher_.flush(leaving.version.index, now, output);
  }
  return successions;
}

void FrontendCore::continue_successions(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (std::size_t left = kVersionsInAStep; left > 0 && !successions_.empty(); --left) {
    NamedModel* const known = versions_.find(successions_.front());
    successions_.pop_front();
    if (known != nullptr && known->next && dispatcher_.has_lane(known->next->index))
      take_over(*known, output, now, effects);
  }
  sweep_versions(now, output);
  emit(std::move(output), effects);
}

void FrontendCore::sweep_versions(Time now, DispatchOutput& output) {
  for (LeavingVersion& leaving : versions_.leaving()) {
    if (leaving.closed || dispatcher_.has_lane(leaving.version.index)) continue;
    dispatcher_.close(leaving.version.index,
                      {StatusCode::unavailable, "model " + leaving.name + " was removed"}, now,
                      output);
    leaving.closed = true;
  }
  std::size_t left = kVersionsInAStep;
  sweep_goes_on_ = false;
  std::erase_if(versions_.leaving(), [&](const LeavingVersion& leaving) {
    if (!leaving.closed || !dispatcher_.unused(leaving.version.index)) return false;
    if (left == 0) {
      sweep_goes_on_ = true;
      return false;
    }
    --left;
    dispatcher_.forget(leaving.version.index);
    return true;
  });
}

// ---- versions that cannot be loaded

void FrontendCore::proven(const std::vector<schedule::LoadedModel>& models) {
  for (const schedule::LoadedModel& model : models) {
    NamedModel* const known = versions_.find(model.name);
    if (known == nullptr) continue;
    if (known->failure && known->failure->version == model.version) known->failure.reset();
    const auto prove = [](ModelVersion& version) {
      version.proven = true;
      version.failed_on.clear();
    };
    if (known->current.id == model.version) prove(known->current);
    if (known->next && known->next->id == model.version) prove(*known->next);
  }
}

void FrontendCore::refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                                  FrontendEffects& effects) {
  const ServedModel model = dispatcher_.models()[known.wanted().index];
  const std::string refused = short_version(known.wanted().id);
  known.refused = {model, known.wanted().id, why, until};
  known.wanted().failed_on.clear();
  known.failure.reset();
  std::string text =
      "model " + model.name + ": version " + refused + " is refused: " + why.message();
  if (known.next) {
    drop_next(known, effects);
    text += "; version " + short_version(known.current.id) + " stays";
  } else {
    known.waking = false;
    DispatchOutput output;
    dispatcher_.refuse_waiting(
        known.current.index,
        {StatusCode::unavailable, "model " + model.name + " could not be loaded: " + why.message()},
        now, output);
    emit(std::move(output), effects);
  }
  note(true, std::move(text), now, effects);
  want_plan("a version of " + model.name + " was refused");
}

void FrontendCore::retry_refused(Time now, FrontendEffects& effects) {
  for (auto& [name, known] : versions_.named()) {
    if (!known.refused || known.refused->until > now) continue;
    const RefusedVersion refused = *std::exchange(known.refused, std::nullopt);
    if (refused.id != known.current.id)
      stage_version(known, refused.model, refused.id, now, effects);
    want_plan("models that failed are tried again");
  }
}

void FrontendCore::refuse_wakers(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (auto& [name, known] : versions_.named()) {
    if (!known.waking) continue;
    const std::string reason = why_unserved(name, known);
    if (reason.empty()) continue;
    known.waking = false;
    dispatcher_.refuse_waiting(
        known.current.index,
        {StatusCode::unavailable, "model " + name + " has no place: " + reason}, now, output);
  }
  emit(std::move(output), effects);
}

// ---- what is asked of them

bool FrontendCore::withheld(const std::string& name) const {
  const NamedModel* const known = versions_.find(name);
  return held_back_.contains(name) || quarantine_.holds(name) ||
         (known != nullptr && (known->current_refused() || known->stuck));
}

bool FrontendCore::is_unloaded(std::string_view name) const {
  return unloaded_ != nullptr && std::binary_search(unloaded_->begin(), unloaded_->end(), name);
}

bool FrontendCore::has_ready_lane(const std::string& name) const {
  const NamedModel* const known = versions_.find(name);
  return known != nullptr && dispatcher_.has_ready_lane(known->current.index);
}

std::optional<ModelIndex> FrontendCore::lane_model(GpuletId gpulet, const std::string& name) const {
  const FleetGpulet* const known = fleet_.find(gpulet);
  if (known == nullptr) return std::nullopt;
  for (const schedule::LoadedModel& loaded : known->models) {
    if (loaded.name == name) return versions_.index_of(name, loaded.version);
  }
  return std::nullopt;
}

std::vector<schedule::RunningGpulet> FrontendCore::running_gpulets() const {
  std::vector<schedule::RunningGpulet> running = fleet_.running();
  const auto wanted = [this](const schedule::LoadedModel& loaded) {
    const NamedModel* const known = versions_.find(loaded.name);
    return known != nullptr && known->wanted().id == loaded.version &&
           !demands_.asleep(known->demand);
  };
  for (schedule::RunningGpulet& gpulet : running) {
    if (kept_.contains(gpulet.id)) continue;
    if (std::all_of(gpulet.models.begin(), gpulet.models.end(), wanted)) continue;
    for (schedule::LoadedModel& loaded : gpulet.models) loaded.max_batch = 0;
  }
  return running;
}

ModelState FrontendCore::state_of(const std::string& name, const NamedModel& known) const {
  if (quarantine_.holds(name)) return ModelState::unavailable;
  if (dispatcher_.has_ready_lane(known.current.index)) return ModelState::ready;
  if (withheld(name) || !why_nothing_serves().empty()) return ModelState::unavailable;
  if (demands_.asleep(known.demand)) return ModelState::idle;
  return why_unserved(name, known).empty() ? ModelState::loading : ModelState::unavailable;
}

std::string FrontendCore::reason_of(const std::string& name, const NamedModel& known) const {
  if (quarantine_.holds(name)) return quarantine_.why(name, settled_at_);
  if (known.current_refused()) return why_unserved(name, known);
  if (known.refused) {
    return "version " + short_version(known.refused->id) +
           " is refused: " + known.refused->why.message();
  }
  if (known.next) {
    return "version " + short_version(known.next->id) +
           (known.parked ? " waits" : " is being warmed") +
           (known.failure ? "; " + failure_of(known) : std::string());
  }
  if (known.failure) return failure_of(known);
  if (std::string why = why_nothing_serves(); !why.empty()) return why;
  if (const schedule::Unserved* const unserved = unserved_part(name)) return unserved->reason;
  return file_problems_.of_model(name);
}

bool FrontendCore::knows_file(std::string_view sha256) const {
  const auto of_file = [&](const ModelVersion& version) {
    return dispatcher_.models()[version.index].sha256 == sha256;
  };
  const auto& named = versions_.named();
  return std::any_of(named.begin(), named.end(), [&](const auto& entry) {
    const NamedModel& known = entry.second;
    return of_file(known.current) || (known.next && of_file(*known.next)) ||
           (known.refused && known.refused->model.sha256 == sha256);
  });
}

}  // namespace gpulet::serve
