#include "serve/requests/catalogue_update.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpulet/base/text.h"
#include "serve/requests/application_gateway.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kModelsInAStep = 64;  // applied in one turn

bool same_description(const ServedModel& a, const ServedModel& b) {
  if (a.description == b.description) return true;
  return a.description && b.description && *a.description == *b.description;
}

bool same_bucket(const ServedModel& a, const ServedModel& b) {
  return a.bucket == b.bucket || (a.bucket && b.bucket && *a.bucket == *b.bucket);
}

bool same_settings(const ServedModel& a, const ServedModel& b) {
  return a.slo_ms == b.slo_ms && a.configured_rate == b.configured_rate &&
         a.max_batch == b.max_batch && a.queue == b.queue;
}

}  // namespace

// ---- CatalogueUpdate

bool CatalogueUpdate::is_unloaded(std::string_view name) const {
  return unloaded_ != nullptr && std::binary_search(unloaded_->begin(), unloaded_->end(), name);
}

void CatalogueUpdate::begin(CatalogueChanged event, Time now, FrontendEffects& effects) {
  Catalogue& catalogue = event.catalogue;
  for (FileProblems::News& news : file_problems_.read(catalogue))
    journal_.note(news.warning, std::move(news.text), now, effects);
  Update next;
  next.asked_for.insert(event.asked_for.begin(), event.asked_for.end());
  if (update_) {
    next.asked_for.merge(update_->asked_for);
    next.changed = true;
  }
  if (catalogue.profiles != profiles_.measured) {
    next.changed = true;
    if (catalogue.profiles != nullptr) {
      profiles_.profiles = catalogue.profiles;
      profiles_.measured = std::move(catalogue.profiles);
      profiles_.interference = std::move(catalogue.interference);
    }
  }
  for (const ServedModel& model : catalogue.models) next.present.insert(model.name);
  next.models = std::move(catalogue.models);
  next.applications = std::move(catalogue.applications);
  next.unloaded = std::move(catalogue.unloaded);
  update_.emplace(std::move(next));
}

void CatalogueUpdate::reject(const CatalogueRejected& event, Time now, FrontendEffects& effects) {
  for (FileProblems::News& news : file_problems_.rejected(event.why, event.by_hand))
    journal_.note(news.warning, std::move(news.text), now, effects);
}

void CatalogueUpdate::step(Time now, FrontendEffects& effects) {
  Update& update = *update_;
  std::size_t left = kModelsInAStep;
  for (; update.next < update.models.size() && left > 0; ++update.next, --left) {
    // Moved, so that no turn frees thousands of them.
    const ServedModel model = std::move(update.models[update.next]);
    const bool asked_for = update.asked_for.contains(std::string(client_name(model.name)));
    update.changed = apply(model, asked_for, now, effects) || update.changed;
  }
  if (update.next == update.models.size() && !update.removed) {
    update.removed.emplace();
    for (const auto& [name, known] : models_.all()) {
      if (!update.present.contains(name)) update.removed->push_back(name);
    }
  }
  for (; update.removed && !update.removed->empty() && left > 0; --left) {
    models_.remove(update.removed->front(), now, effects);
    update.removed->pop_front();
    update.changed = true;
  }
  const bool complete = update.removed && update.removed->empty();
  if (complete && applications_.replace(update.applications, now)) update.changed = true;
  const bool changed = update.changed;
  if (complete) {
    unloaded_ = std::move(update.unloaded);
    update_.reset();
  }
  if (!changed) return;
  journal_.requests().discard();
  journal_.request_plan("the models changed");
}

bool CatalogueUpdate::apply(const ServedModel& model, bool asked_for, Time now,
                            FrontendEffects& effects) {
  bool changed = true;
  if (NamedModel* const known = models_.find(model.name)) {
    changed = change_model(*known, model, asked_for, now, effects);
    models_.table().changed(*known);
  } else {
    journal_.note(false,
                  model.sha256.empty()
                      ? fmt::format("model {} is registered; its file is in a store", model.name)
                      : fmt::format("model {} is registered, version {}", model.name,
                                    short_version(version_of(model))),
                  now, effects);
    models_.add(model, now);
  }
  if (!asked_for) return changed;
  NamedModel& known = *models_.find(model.name);
  models_.wake(known);
  changed = models_.setbacks().quarantine().release(model.name) || changed;
  changed = models_.setbacks().end_backoff(model.name) ||
            !models_.table().has_ready_slot(model.name) || changed;
  known.failure.reset();
  known.stuck = false;
  return changed;
}

bool CatalogueUpdate::change_model(NamedModel& known, const ServedModel& model, bool asked_for,
                                   Time now, FrontendEffects& effects) {
  std::string id = version_of(model);
  bool changed = change_settings(known, model, now);
  // The file that the entry names is still in its store. The version in force stays.
  if (model.sha256.empty() && !models_.table().lacks_file(known)) return changed;
  for (const ModelVersion* const version : {&known.current, known.next ? &*known.next : nullptr}) {
    if (version != nullptr && version->id == id) change_description(version->index, model);
  }
  if (id == known.current.id) {
    if (known.next) {
      models_.successions().drop_next(known, effects);
      changed = true;
    }
    const bool again = asked_for && known.current_refused();
    if (again || !known.current_refused()) known.refused.reset();
    return changed || again;
  }
  // A new version replaces the one that crashed.
  changed = models_.setbacks().quarantine().release(model.name) || changed;
  if (known.next && known.next->id == id) return changed;
  if (known.refused && known.refused->id == id && !asked_for) return changed;
  models_.successions().stage(known, model, std::move(id), now, effects);
  return true;
}

bool CatalogueUpdate::change_settings(const NamedModel& known, const ServedModel& model, Time now) {
  if (same_settings(models_.served(known), model)) return false;
  const auto change = [&](ModelIndex index) {
    ServedModel changed = models_.table().served(index);
    changed.slo_ms = model.slo_ms;
    changed.configured_rate = model.configured_rate;
    changed.max_batch = model.max_batch;
    changed.queue = model.queue;
    models_.change(index, std::move(changed));
  };
  change(known.current.index);
  if (known.next) change(known.next->index);
  models_.plan_for(known, model, now);
  return true;
}

void CatalogueUpdate::change_description(ModelIndex index, const ServedModel& model) {
  const ServedModel& before = models_.table().served(index);
  if (same_description(before, model) && same_bucket(before, model)) return;
  ServedModel changed = before;
  changed.description = model.description;
  changed.bucket = model.bucket;
  models_.change(index, std::move(changed));
}

}  // namespace gpulet::serve
