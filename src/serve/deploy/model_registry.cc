#include "serve/deploy/model_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/values/file_problems.h"

namespace gpulet::serve {

std::string_view why_waiting(TrialWait wait) {
  return wait == TrialWait::turn
             ? "waits until other new models have been loaded for the first time"
             : "waits: no device has room for a gpulet of its own beside what serves, which a "
               "model "
               "needs until it was loaded once; add a device, or lower rates";
}

namespace {

constexpr std::size_t kVersionsInAStep = 256;  // that take over or are forgotten in one turn

}  // namespace

// ---- lookups

NamedModel* ModelRegistry::find(std::string_view name) {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

const NamedModel* ModelRegistry::find(std::string_view name) const {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

std::size_t ModelRegistry::listed() const {
  std::size_t buckets = 0;
  for (const auto& [name, model] : dynamic_.all()) buckets += model.buckets.size();
  return named_.size() - buckets + dynamic_.all().size();
}

const ServedModel& ModelRegistry::served(const NamedModel& known) const {
  return core_.dispatcher.models()[known.current.index];
}

std::optional<ModelIndex> ModelRegistry::version_in(GpuletId id, const std::string& name) const {
  const GpuletRecord* const gpulet = core_.backends.find(id);
  if (gpulet == nullptr) return std::nullopt;
  const auto loaded = std::find_if(gpulet->models.begin(), gpulet->models.end(),
                                   [&name](const auto& one) { return one.name == name; });
  if (loaded == gpulet->models.end()) return std::nullopt;
  const std::string& version = loaded->version;
  if (const NamedModel* const known = find(name)) {
    if (known->current.id == version) return known->current.index;
    if (known->next && known->next->id == version) return known->next->index;
  }
  const auto found = std::find_if(draining_.begin(), draining_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version;
  });
  return found == draining_.end() ? std::nullopt : std::optional(found->version.index);
}

std::vector<std::string> ModelRegistry::wanted_models(const GpuletRecord& gpulet) const {
  std::vector<std::string> names;
  for (const schedule::RunningModel& loaded : gpulet.models) {
    const NamedModel* const known = find(loaded.name);
    if (known != nullptr && known->wanted().id == loaded.version) names.push_back(loaded.name);
  }
  return names;
}

template <typename Predicate>
bool ModelRegistry::any_file(const Predicate& predicate) const {
  const auto of_version = [&](const ModelVersion& version) {
    const std::string_view sha256 = core_.dispatcher.models()[version.index].sha256;
    return !sha256.empty() && predicate(sha256);
  };
  return std::any_of(named_.begin(), named_.end(), [&](const auto& entry) {
    const NamedModel& known = entry.second;
    return of_version(known.current) || (known.next && of_version(*known.next)) ||
           (known.refused && predicate(std::string_view(known.refused->model.sha256)));
  });
}

bool ModelRegistry::knows_file(std::string_view sha256) const {
  return any_file([sha256](std::string_view file) { return file == sha256; });
}

std::unordered_set<std::string_view> ModelRegistry::known_files() const {
  std::unordered_set<std::string_view> files;
  any_file([&files](std::string_view file) {
    files.insert(file);
    return false;
  });
  return files;
}

// ---- states

bool ModelRegistry::has_ready_slot(const std::string& name) const {
  const NamedModel* const known = find(name);
  return known != nullptr && core_.dispatcher.has_ready_slot(known->current.index);
}

bool ModelRegistry::withheld(const std::string& name) const {
  const NamedModel* const known = find(name);
  return backoff_.contains(name) || quarantine_.holds(name) ||
         (known != nullptr && (known->current_refused() || known->stuck || lacks_file(*known)));
}

void ModelRegistry::follow(const std::vector<ServedModelState>& states, bool elsewhere) {
  followed_.reset();
  if (!elsewhere) return;
  States& followed = followed_.emplace();
  for (const ServedModelState& state : states) followed.emplace(state.name, state);
}

const ServedModelState* ModelRegistry::followed(const std::string& name) const {
  if (!followed_) return nullptr;
  const auto found = followed_->find(name);
  return found == followed_->end() ? nullptr : &found->second;
}

std::uint32_t ModelRegistry::number_of(const std::string& name, const NamedModel& known) const {
  const ServedModelState* const told = followed(name);
  return told == nullptr ? known.number : told->number;
}

std::uint64_t ModelRegistry::shown_number(const std::string& name, const NamedModel& known) const {
  const auto& description = served(known).description;
  return description && description->version > 0 ? description->version : number_of(name, known);
}

std::string ModelRegistry::why_unserved(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told != nullptr && told->state == ModelState::unavailable ? told->reason : std::string();
  }
  if (std::string why = quarantine_.why(name, settled_at_); !why.empty()) return why;
  if (lacks_file(known)) {
    const ModelSource* const source = source_of(name);
    return source == nullptr ? "its file could not be read yet" : source->text;
  }
  if (core_.dispatcher.has_slot(known.current.index)) return {};
  if (known.current_refused()) {
    return fmt::format("it could not be loaded: {}{}", known.refused->why.message(),
                       known.refused->until == kNever ? "" : "; it is tried again soon");
  }
  if (reorganising() || core_.plan_requests.pending() || core_.plan_requests.any()) return {};
  if (known.trial_wait == TrialWait::room && !known.next)
    return "it " + std::string(why_waiting(TrialWait::room));
  if (backoff_.contains(name) || known.stuck)
    return describe_failure(known) + "; it is tried again soon";
  const schedule::Unserved* const unserved = core_.deployment.unserved_part(name);
  if (unserved == nullptr) return {};
  return known.failure ? describe_failure(known) + "; it is tried again soon" : unserved->reason;
}

ModelState ModelRegistry::state_of(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told == nullptr ? ModelState::loading : told->state;
  }
  if (quarantine_.holds(name)) return ModelState::unavailable;
  if (lacks_file(known)) {
    const ModelSource* const source = source_of(name);
    return source != nullptr && source->failed ? ModelState::unavailable : ModelState::loading;
  }
  if (core_.dispatcher.has_ready_slot(known.current.index)) return ModelState::ready;
  if (withheld(name) || !core_.backends.has_usable_device()) return ModelState::unavailable;
  if (core_.demands.asleep(known.demand)) return ModelState::idle;
  return why_unserved(name, known).empty() ? ModelState::loading : ModelState::unavailable;
}

std::string ModelRegistry::reason_of(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told == nullptr ? std::string() : told->reason;
  }
  if (quarantine_.holds(name)) return quarantine_.why(name, settled_at_);
  if (known.current_refused() || lacks_file(known)) return why_unserved(name, known);
  if (known.refused) {
    return fmt::format("version {} is refused: {}", short_version(known.refused->id),
                       known.refused->why.message());
  }
  if (known.next) {
    return fmt::format("version {} {}{}", short_version(known.next->id),
                       known.trial_wait != TrialWait::none ? why_waiting(known.trial_wait)
                       : known.parked                      ? "waits"
                                                           : "is being warmed",
                       known.failure ? "; " + describe_failure(known) : std::string());
  }
  if (known.failure) return describe_failure(known);
  if (known.trial_wait == TrialWait::turn)
    return "it " + std::string(why_waiting(known.trial_wait));
  if (std::string why = core_.backends.why_nothing_serves(); !why.empty()) return why;
  if (const schedule::Unserved* const unserved = core_.deployment.unserved_part(name))
    return unserved->reason;
  if (const ModelSource* const source = source_of(name)) return source->text;
  return core_.file_problems.of_model(name);
}

const ModelSource* ModelRegistry::source_of(const std::string& name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() ? nullptr : &found->second;
}

void ModelRegistry::set_sources(ModelSources sources, Time now, FrontendEffects& effects) {
  for (const auto& [name, source] : sources) {
    const ModelSource* const before = source_of(name);
    if (source.failed && (before == nullptr || *before != source))
      core_.log.note(true, fmt::format("model {}: {}", name, source.text), now, effects);
  }
  sources_ = std::move(sources);
}

std::string ModelRegistry::describe_failure(const NamedModel& known) {
  if (!known.failure) return "its gpulet failed";
  return fmt::format("its gpulet on {} failed ({}): {}", device_name(known.failure->device),
                     to_string(known.failure->cause), known.failure->why.message());
}

// ---- models and versions

void ModelRegistry::add(ServedModel model, Time now) {
  dynamic_.set(model);
  NamedModel named;
  const std::string name = model.name;
  named.current.id = version_of(model);
  named.demand = core_.demands.add(model, now);
  if (auto back = take_back(name, named.current.id)) {
    named.current = std::move(*back);
    core_.dispatcher.change(named.current.index, std::move(model));
  } else {
    named.current.index = core_.dispatcher.add(std::move(model));
  }
  named_.insert_or_assign(name, std::move(named));
}

void ModelRegistry::remove(const std::string& name, Time now, FrontendEffects& effects) {
  NamedModel& known = *find(name);
  dynamic_.remove(served(known));
  if (known.next) drop_next(known, effects);
  core_.demands.remove(known.demand);
  backoff_.erase(name);
  quarantine_.forget(name);
  draining_.push_back({name, std::move(known.current), true, false});
  named_.erase(name);
  core_.log.note(false, "model " + name + " is removed", now, effects);
  sweep(now, effects);
}

std::optional<ModelVersion> ModelRegistry::take_back(std::string_view name,
                                                     std::string_view version) {
  const auto found = std::find_if(draining_.begin(), draining_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version && !one.closed;
  });
  if (found == draining_.end()) return std::nullopt;
  ModelVersion taken = std::move(found->version);
  draining_.erase(found);
  return taken;
}

void ModelRegistry::stage(NamedModel& known, const ServedModel& model, std::string id, Time now,
                          FrontendEffects& effects) {
  if (known.next) drop_next(known, effects);
  known.refused.reset();
  known.failure.reset();
  known.stuck = false;
  ModelVersion version;
  if (auto back = take_back(model.name, id)) {
    version = std::move(*back);
    core_.dispatcher.change(version.index, model);
  } else {
    version.index = core_.dispatcher.add(model);
    version.id = std::move(id);
  }
  const bool first = lacks_file(known);
  core_.log.note(
      false,
      first ? fmt::format("model {}: version {} has come from its store", model.name,
                          short_version(version.id))
            : fmt::format("model {}: version {} is to take over from version {}", model.name,
                          short_version(version.id), short_version(known.current.id)),
      now, effects);
  known.next = std::move(version);
  // A version can be replaced at once if it is asleep and unused, if another frontend serves it, or
  // if there is no file of it.
  const bool idle =
      core_.demands.asleep(known.demand) && core_.dispatcher.unused(known.current.index);
  if (!idle && !followed_ && !first) return;
  DispatchOutput output;
  take_over(known, output, now, effects);
  core_.responses.write(std::move(output), effects);
}

void ModelRegistry::drop_next(NamedModel& known, FrontendEffects& effects) {
  const std::string& name = core_.dispatcher.models()[known.next->index].name;
  // A rollout that brings this version would retire the gpulets of the current one.
  const auto holds_it = [&](const auto& part) {
    const GpuletRecord* const gpulet = core_.backends.find(part.first);
    return gpulet != nullptr &&
           std::any_of(gpulet->models.begin(), gpulet->models.end(), [&](const auto& loaded) {
             return loaded.name == name && loaded.version == known.next->id;
           });
  };
  const std::optional<Rollout>& rollout = core_.deployment.rollout();
  if (rollout && std::any_of(rollout->parts().begin(), rollout->parts().end(), holds_it))
    core_.deployment.cancel_rollout(effects);
  draining_.push_back({name, std::move(*known.next), false, false});
  known.next.reset();
  known.parked = false;
  known.trial_wait = TrialWait::none;
}

void ModelRegistry::take_over(NamedModel& known, DispatchOutput& output, Time now,
                              FrontendEffects& effects) {
  const std::string name = core_.dispatcher.models()[known.next->index].name;
  // A version without a file never served, so it does not count as the first one.
  const bool first = lacks_file(known);
  core_.dispatcher.succeed(known.current.index, known.next->index, now, output);
  draining_.push_back({name, std::move(known.current), false, true});
  known.current = std::move(*known.next);
  known.next.reset();
  known.parked = false;
  known.trial_wait = TrialWait::none;
  changed(known);
  if (first) return;
  ++known.number;
  core_.log.note(
      false,
      fmt::format("model {}: version {} has taken over", name, short_version(known.current.id)),
      now, effects);
}

void ModelRegistry::begin_successions(const std::vector<GpuletRoute>& routes, Time now,
                                      DispatchOutput& output) {
  std::vector<bool> routed(core_.dispatcher.models().size());
  std::vector<bool> ready(core_.dispatcher.models().size());  // on a gpulet that takes batches
  for (const GpuletRoute& route : routes) {
    const GpuletRecord* const gpulet = core_.backends.find(route.gpulet);
    const bool takes_batches = gpulet != nullptr && gpulet->state == GpuletState::ready;
    for (const SlotSpec& slot : route.slots) {
      routed[slot.model] = true;
      if (takes_batches) ready[slot.model] = true;
    }
  }
  successions_.clear();
  for (const auto& [name, known] : named_) {
    if (!known.next || !routed[known.next->index] || ready[known.current.index]) continue;
    successions_.push_back(name);
    const ServedModel& old = served(known);
    const ServedModel& next = core_.dispatcher.models()[known.next->index];
    const bool can_follow = old.inputs == next.inputs && old.outputs == next.outputs;
    if (!can_follow) core_.dispatcher.flush(known.current.index, now, output);
  }
  for (const DrainingVersion& draining : draining_) {
    if (!draining.closed && !routed[draining.version.index])
      core_.dispatcher.flush(draining.version.index, now, output);
  }
  sweep_goes_on_ = true;
}

void ModelRegistry::finish_successions(Time now, FrontendEffects& effects) {
  successions_.clear();
  DispatchOutput output;
  for (auto& [name, known] : named_) {
    if (known.next) take_over(known, output, now, effects);
  }
  core_.responses.write(std::move(output), effects);
}

void ModelRegistry::continue_successions(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (std::size_t left = kVersionsInAStep; left > 0 && !successions_.empty(); --left) {
    NamedModel* const known = find(successions_.front());
    successions_.pop_front();
    if (known != nullptr && known->next && core_.dispatcher.has_slot(known->next->index))
      take_over(*known, output, now, effects);
  }
  sweep(now, output);
  core_.responses.write(std::move(output), effects);
}

void ModelRegistry::sweep(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  sweep(now, output);
  core_.responses.write(std::move(output), effects);
}

void ModelRegistry::sweep(Time now, DispatchOutput& output) {
  for (DrainingVersion& draining : draining_) {
    if (draining.closed || core_.dispatcher.has_slot(draining.version.index)) continue;
    core_.dispatcher.close(draining.version.index,
                           {StatusCode::unavailable, "model " + draining.name + " was removed"},
                           now, output);
    draining.closed = true;
  }
  std::size_t left = kVersionsInAStep;
  sweep_goes_on_ = false;
  std::erase_if(draining_, [&](const DrainingVersion& draining) {
    if (!draining.closed || !core_.dispatcher.unused(draining.version.index)) return false;
    if (left == 0) {
      sweep_goes_on_ = true;
      return false;
    }
    --left;
    core_.dispatcher.forget(draining.version.index);
    return true;
  });
}

// ---- failures

void ModelRegistry::prove(const std::vector<schedule::RunningModel>& models) {
  bool is_news = false;
  for (const schedule::RunningModel& model : models) {
    NamedModel* const known = find(model.name);
    if (known == nullptr) continue;
    if (known->failure && known->failure->version == model.version) known->failure.reset();
    const auto prove_version = [known, &is_news](ModelVersion& version) {
      is_news = is_news || !version.proven;
      version.proven = true;
      version.failed_on.clear();
      version.tried_since.reset();
      if (known->slow_version == version.id) known->slow_loads = 0;
    };
    if (known->current.id == model.version) prove_version(known->current);
    if (known->next && known->next->id == model.version) prove_version(*known->next);
  }
  const bool others_wait =
      is_news && std::any_of(named_.begin(), named_.end(), [](const auto& entry) {
        return entry.second.trial_wait != TrialWait::none;
      });
  if (others_wait) core_.plan_requests.add("new models were loaded for the first time");
}

void ModelRegistry::refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                                   FrontendEffects& effects) {
  const ServedModel model = core_.dispatcher.models()[known.wanted().index];
  const std::string refused = short_version(known.wanted().id);
  known.refused = {model, known.wanted().id, why, until};
  known.wanted().failed_on.clear();
  known.wanted().tried_since.reset();
  known.failure.reset();
  std::string text =
      fmt::format("model {}: version {} is refused: {}", model.name, refused, why.message());
  if (known.next) {
    drop_next(known, effects);
    text += "; version " + short_version(known.current.id) + " stays";
  } else {
    refuse_waiting(known,
                   fmt::format("model {} could not be loaded: {}", model.name, why.message()), now,
                   effects);
  }
  core_.log.note(true, std::move(text), now, effects);
  core_.plan_requests.add("a version of " + model.name + " was refused");
}

void ModelRegistry::expire_backoffs(Time now) {
  const std::size_t over =
      std::erase_if(backoff_, [now](const auto& entry) { return entry.second <= now; });
  if (over > 0) core_.plan_requests.add("models that failed are tried again");
}

void ModelRegistry::retry_refused(Time now, FrontendEffects& effects) {
  for (auto& [name, known] : named_) {
    if (!known.refused || known.refused->until > now) continue;
    const RefusedVersion refused = *std::exchange(known.refused, std::nullopt);
    if (refused.id != known.current.id) stage(known, refused.model, refused.id, now, effects);
    core_.plan_requests.add("models that failed are tried again");
  }
}

void ModelRegistry::refuse_wakers(Time now, FrontendEffects& effects) {
  for (auto& [name, known] : named_) {
    if (!known.waking) continue;
    const std::string reason = why_unserved(name, known);
    if (!reason.empty())
      refuse_waiting(known, fmt::format("model {} cannot be served: {}", name, reason), now,
                     effects);
  }
}

void ModelRegistry::forget_waking() {
  for (auto& [name, known] : named_) known.waking = false;
}

void ModelRegistry::refuse_waiting(NamedModel& known, std::string why, Time now,
                                   FrontendEffects& effects) {
  known.waking = false;
  DispatchOutput output;
  core_.dispatcher.refuse_waiting(known.current.index, {StatusCode::unavailable, std::move(why)},
                                  now, output);
  core_.responses.write(std::move(output), effects);
}

void ModelRegistry::enter_quarantine(const std::string& name, Time now, FrontendEffects& effects) {
  const std::string text = "model " + name + " is " + quarantine_.why(name, now);
  core_.log.note(true, text, now, effects);
  refuse_waiting(*find(name), text, now, effects);
  core_.plan_requests.add_urgent("model " + name + " is in quarantine");
}

void ModelRegistry::expire_quarantines(Time now, FrontendEffects& effects) {
  for (const std::string& name : quarantine_.tick(now)) {
    core_.log.note(false, "the quarantine of model " + name + " is over: it is tried again", now,
                   effects);
    core_.plan_requests.add("the quarantine of " + name + " is over");
  }
}

}  // namespace gpulet::serve
