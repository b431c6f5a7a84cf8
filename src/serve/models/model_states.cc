#include "serve/models/model_states.h"

#include <fmt/format.h>

#include <utility>

#include "serve/values/file_problems.h"

namespace gpulet::serve {

void ModelStates::follow(const std::vector<ServedModelState>& states, bool elsewhere) {
  ++revision_;
  followed_.reset();
  if (!elsewhere) return;
  States& followed = followed_.emplace();
  for (const ServedModelState& state : states) followed.emplace(state.name, state);
}

const ServedModelState* ModelStates::followed(const std::string& name) const {
  if (!followed_) return nullptr;
  const auto found = followed_->find(name);
  return found == followed_->end() ? nullptr : &found->second;
}

std::uint32_t ModelStates::number_of(const std::string& name, const NamedModel& known) const {
  const ServedModelState* const told = followed(name);
  return told == nullptr ? known.number : told->number;
}

std::uint64_t ModelStates::shown_number(const std::string& name, const NamedModel& known) const {
  const auto& description = from_.models.served(known).description;
  return description && description->version > 0 ? description->version : number_of(name, known);
}

std::string ModelStates::why_unserved(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told != nullptr && told->state == ModelState::unavailable ? told->reason : std::string();
  }
  if (std::string why = from_.setbacks.quarantine().why(name, settled_at_); !why.empty())
    return why;
  if (from_.models.lacks_file(known)) {
    const ModelSource* const source = source_of(name);
    return source == nullptr ? "its file could not be read yet" : source->text;
  }
  if (from_.models.has_slot(known.current)) return {};
  if (known.current_refused()) {
    return fmt::format("it could not be loaded: {}{}", known.refused->why.message(),
                       known.refused->until == kNever ? "" : "; it is tried again soon");
  }
  if (from_.successions.change_expected()) return {};
  if (known.trial_wait == TrialWait::room && !known.next)
    return "it " + std::string(why_waiting(TrialWait::room));
  if (from_.setbacks.in_backoff(name) || known.stuck)
    return describe_failure(known) + "; it is tried again soon";
  const schedule::Unserved* const unserved = from_.deployment.in_force().unserved_part(name);
  if (unserved == nullptr) return {};
  return known.failure ? describe_failure(known) + "; it is tried again soon" : unserved->reason;
}

ModelState ModelStates::state_of(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told == nullptr ? ModelState::loading : told->state;
  }
  if (from_.setbacks.quarantine().holds(name)) return ModelState::unavailable;
  if (from_.models.lacks_file(known)) {
    const ModelSource* const source = source_of(name);
    return source != nullptr && source->failed ? ModelState::unavailable : ModelState::loading;
  }
  if (from_.models.has_ready_slot(known)) return ModelState::ready;
  if (from_.setbacks.withheld(name) || !from_.backends.has_usable_device())
    return ModelState::unavailable;
  if (from_.models.asleep(known)) return ModelState::idle;
  return why_unserved(name, known).empty() ? ModelState::loading : ModelState::unavailable;
}

std::string ModelStates::reason_of(const std::string& name, const NamedModel& known) const {
  if (followed_) {
    const ServedModelState* const told = followed(name);
    return told == nullptr ? std::string() : told->reason;
  }
  if (from_.setbacks.quarantine().holds(name))
    return from_.setbacks.quarantine().why(name, settled_at_);
  if (known.current_refused() || from_.models.lacks_file(known)) return why_unserved(name, known);
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
  if (std::string why = from_.backends.why_nothing_serves(); !why.empty()) return why;
  if (const schedule::Unserved* const unserved = from_.deployment.in_force().unserved_part(name))
    return unserved->reason;
  if (const ModelSource* const source = source_of(name)) return source->text;
  return from_.file_problems.of_model(name);
}

const ModelSource* ModelStates::source_of(const std::string& name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() ? nullptr : &found->second;
}

void ModelStates::set_sources(ModelSources sources, Journal& journal, Time now,
                              FrontendEffects& effects) {
  for (const auto& [name, source] : sources) {
    const ModelSource* const before = source_of(name);
    if (source.failed && (before == nullptr || *before != source))
      journal.note(true, fmt::format("model {}: {}", name, source.text), now, effects);
  }
  sources_ = std::move(sources);
}

std::string ModelStates::describe_failure(const NamedModel& known) {
  if (!known.failure) return "its gpulet failed";
  return fmt::format("its gpulet on {} failed ({}): {}", device_name(known.failure->device),
                     to_string(known.failure->cause), known.failure->why.message());
}

}  // namespace gpulet::serve
