#include "serve/models/setbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpulet::serve {

bool Setbacks::withheld(const std::string& name) const {
  const NamedModel* const known = models_.find(name);
  if (backoff_.contains(name) || quarantine_.holds(name)) return true;
  if (known == nullptr) return false;
  // A next version may be tried although the current one is refused.
  const bool refused = known->current_refused() && (!known->next || known->parked);
  return refused || known->stuck || models_.lacks_file(*known);
}

void Setbacks::prove(const std::vector<schedule::RunningModel>& models) {
  bool is_news = false;
  for (const schedule::RunningModel& model : models) {
    NamedModel* const known = models_.find(model.name);
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
      is_news && std::any_of(models_.all().begin(), models_.all().end(), [](const auto& entry) {
        return entry.second.trial_wait != TrialWait::none;
      });
  if (others_wait) journal_.request_plan("new models were loaded for the first time");
}

void Setbacks::refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                              FrontendEffects& effects) {
  const ServedModel model = models_.served(known.wanted().index);
  const std::string refused = short_version(known.wanted().id);
  const bool is_next = known.takes_next();
  known.refused = {model, known.wanted().id, why, until};
  known.wanted().failed_on.clear();
  known.wanted().tried_since.reset();
  known.failure.reset();
  std::string text =
      fmt::format("model {}: version {} is refused: {}", model.name, refused, why.message());
  if (is_next) {
    successions_.drop_next(known, effects);
    text += "; version " + short_version(known.current.id) + " stays";
  } else {
    refuse_waiting(known,
                   fmt::format("model {} could not be loaded: {}", model.name, why.message()), now,
                   effects);
  }
  journal_.note(true, std::move(text), now, effects);
  journal_.request_plan("a version of " + model.name + " was refused");
}

void Setbacks::expire_backoffs(Time now) {
  const std::size_t over =
      std::erase_if(backoff_, [now](const auto& entry) { return entry.second <= now; });
  if (over > 0) journal_.request_plan("models that failed are tried again");
}

void Setbacks::retry_refused(Time now, FrontendEffects& effects) {
  for (auto& [name, known] : models_.all()) {
    if (!known.refused || known.refused->until > now) continue;
    const RefusedVersion refused = *std::exchange(known.refused, std::nullopt);
    if (refused.id != known.current.id)
      successions_.stage(known, refused.model, refused.id, now, effects);
    journal_.request_plan("models that failed are tried again");
  }
}

void Setbacks::refuse_waiting(NamedModel& known, std::string why, Time now,
                              FrontendEffects& effects) {
  known.waking = false;
  DispatchOutput output;
  versions_.refuse_waiting(known.current.index, {StatusCode::unavailable, std::move(why)}, now,
                           output);
  responses_.write(std::move(output), effects);
}

void Setbacks::enter_quarantine(const std::string& name, Time now, FrontendEffects& effects) {
  const std::string text = "model " + name + " is " + quarantine_.why(name, now);
  journal_.note(true, text, now, effects);
  refuse_waiting(*models_.find(name), text, now, effects);
  journal_.request_urgent_plan("model " + name + " is in quarantine");
}

void Setbacks::expire_quarantines(Time now, FrontendEffects& effects) {
  for (const std::string& name : quarantine_.tick(now)) {
    journal_.note(false, "the quarantine of model " + name + " is over: it is tried again", now,
                  effects);
    journal_.request_plan("the quarantine of " + name + " is over");
  }
}

void Setbacks::forget(const std::string& name) {
  backoff_.erase(name);
  quarantine_.forget(name);
}

}  // namespace gpulet::serve
