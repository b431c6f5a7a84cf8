#include "serve/status/model_reporter.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "serve/requests/application_states.h"

namespace gpulet::serve {
namespace {

ModelInfo info_of(const ServedModel& model, ModelState state) {
  ModelInfo info;
  info.name = model.name;
  info.inputs = model.inputs;
  info.outputs = model.outputs;
  info.slo_ms = model.slo_ms;
  info.max_batch = model.max_batch;
  info.state = state;
  return info;
}

}  // namespace

ModelInfo ModelReporter::describe(const std::string& name, const NamedModel& known) const {
  ServedModelState state = served_state(name, known);
  ModelInfo info = info_of(models_.served(known), state.state);
  info.version = std::move(state.version);
  info.next = std::move(state.next);
  info.reason = std::move(state.reason);
  info.next_refused = state.next_refused;
  info.pending = state.pending;
  info.number = state.number;
  return info;
}

ServedModelState ModelReporter::served_state(const std::string& name,
                                             const NamedModel& known) const {
  ServedModelState state;
  state.name = name;
  state.state = models_.states().state_of(name, known);
  state.reason = models_.states().reason_of(name, known);
  state.number = models_.states().number_of(name, known);
  if (const ServedModelState* const told = models_.states().followed(name)) {
    state.version = told->version;
    state.next = told->next;
    state.next_refused = told->next_refused;
    state.pending = told->pending;
    return state;
  }
  if (!models_.table().lacks_file(known)) state.version = known.current.id;
  if (routes_.leads()) {
    state.owner = routes_.member_for(name);
    if (routes_.divided(name)) state.owners = routes_.owners().at(name);
  }
  if (known.next) state.next = known.next->id;
  if (known.refused && !known.current_refused()) {
    state.next = known.refused->id;
    state.next_refused = true;
  }
  // Unknown until the frontend that serves has told.
  const bool untold = !routes_.leads();
  state.pending = untold || (!keep_plan_ && models_.successions().change_expected());
  return state;
}

ModelReporter::WorstBucket ModelReporter::worst_bucket(const DynamicModel& dynamic) const {
  // Among equal states, a bucket that shows what becomes of the next version.
  const auto rank = [](ModelState state, const NamedModel& known) {
    return std::tuple(bucket_rank(state), !known.refused, !known.next);
  };
  WorstBucket worst;
  for (std::string& name : dynamic.names()) {
    const NamedModel* const known = models_.find(name);
    if (known == nullptr) continue;
    const ModelState state = models_.states().state_of(name, *known);
    if (worst.known == nullptr || rank(state, *known) < rank(worst.state, *worst.known))
      worst = {std::move(name), known, state};
  }
  return worst;
}

std::string ModelReporter::reason_of(const WorstBucket& bucket) const {
  std::string reason = models_.states().reason_of(bucket.name, *bucket.known);
  return reason.empty() ? reason : bucket.name + ": " + reason;
}

ModelInfo ModelReporter::describe(const DynamicModel& dynamic) const {
  const WorstBucket worst = worst_bucket(dynamic);
  ModelInfo info = info_of(dynamic.front, worst.state);
  if (worst.known != nullptr) {
    info = describe(worst.name, *worst.known);
    info.reason = reason_of(worst);
    // The versions of its buckets differ in the lengths only.
    info.version = file_of_version(info.version);
    info.next = file_of_version(info.next);
  }
  info.name = dynamic.front.name;
  info.inputs = dynamic.front.inputs;
  info.outputs = dynamic.front.outputs;
  for (const auto& [length, bucket] : dynamic.buckets)
    info.lengths.push_back(static_cast<std::uint32_t>(length));
  info.pads = !dynamic.front.bucket->padding.empty();
  return info;
}

ModelInfo ModelReporter::describe(const DrainingVersion& draining) const {
  ModelInfo info = info_of(models_.table().served(draining.version.index), ModelState::leaving);
  info.version = draining.version.id;
  info.name = client_name(draining.name);
  return info;
}

ModelInfo ModelReporter::describe(const Application& application) const {
  ModelInfo info = info_of(application.front, serve::state_of(application, models_));
  info.reason = why_unserved(application, models_);
  return info;
}

std::optional<ModelView> ModelReporter::model(std::string_view name) const {
  if (const NamedModel* const known = models_.find(name)) {
    const ServedModel& model = models_.served(*known);
    return ModelView{model, models_.states().shown_number(model.name, *known),
                     models_.states().state_of(model.name, *known),
                     models_.states().reason_of(model.name, *known)};
  }
  if (const DynamicModel* const dynamic = models_.table().dynamic().find(name)) {
    const WorstBucket worst = worst_bucket(*dynamic);
    if (worst.known == nullptr) return ModelView{dynamic->front, 1, worst.state, {}};
    return ModelView{dynamic->front, models_.states().shown_number(worst.name, *worst.known),
                     worst.state, reason_of(worst)};
  }
  if (const auto application = applications_.find(name))
    return ModelView{application->front, 1, serve::state_of(*application, models_),
                     why_unserved(*application, models_), application};
  return std::nullopt;
}

std::uint64_t ModelReporter::revision() const {
  return models_.table().revision() + models_.states().revision() + applications_.revision();
}

void ModelReporter::each_model(const std::function<void(const ModelView&)>& visit) const {
  const ModelStates& states = models_.states();
  for (const auto& [name, known] : models_.all())
    visit(
        {.model = models_.served(known), .number = states.shown_number(name, known), .reason = {}});
  for (const auto& [name, dynamic] : models_.table().dynamic().all()) {
    const WorstBucket worst = worst_bucket(dynamic);
    const std::uint64_t number =
        worst.known == nullptr ? 1 : states.shown_number(worst.name, *worst.known);
    visit({.model = dynamic.front, .number = number, .reason = {}});
  }
  for (const auto& application : applications_.all())
    visit({.model = application->front, .reason = {}, .application = application});
}

ModelsReply ModelReporter::models_after(const std::string& name, std::size_t most) const {
  // By name: the first draining version of a removed model; null: the name is served.
  std::map<std::string_view, const DrainingVersion*> found;
  const auto& named = models_.all();
  for (auto one = named.upper_bound(name); one != named.end() && found.size() <= most; ++one) {
    if (models_.served(one->second).bucket == nullptr) found.emplace(one->first, nullptr);
  }
  const auto& dynamic = models_.table().dynamic().all();
  std::size_t left = most + 1;
  for (auto one = dynamic.upper_bound(name); one != dynamic.end() && left > 0; ++one, --left)
    found.emplace(one->first, nullptr);
  for (const DrainingVersion& draining : models_.table().draining()) {
    const std::string_view listed = client_name(draining.name);
    if (draining.removed && listed > name && !is_served(listed)) found.emplace(listed, &draining);
  }
  const std::vector<ApplicationRunner::Row> rows =
      applications_.rows(models_.states().settled_at(), name, most + 1);
  for (const ApplicationRunner::Row& row : rows)
    found.emplace(row.application->front.name, nullptr);
  ModelsReply page;
  page.problems = file_problems_.all();
  for (const auto& [listed, draining] : found) {
    if (page.models.size() == most) {
      page.more = true;
      break;
    }
    if (draining != nullptr) {
      page.models.push_back(describe(*draining));
    } else if (const NamedModel* const known = models_.find(listed)) {
      page.models.push_back(describe(std::string(listed), *known));
    } else if (const DynamicModel* const listed_dynamic = models_.table().dynamic().find(listed)) {
      page.models.push_back(describe(*listed_dynamic));
    } else {
      page.models.push_back(describe(*applications_.find(listed)));
    }
  }
  return page;
}

bool ModelReporter::is_served(std::string_view name) const {
  return models_.find(name) != nullptr || models_.table().dynamic().find(name) != nullptr;
}

std::vector<ModelInfo> ModelReporter::models(std::vector<std::string> names) const {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<ModelInfo> infos;
  for (const std::string& name : names) {
    if (const NamedModel* const known = models_.find(name)) {
      infos.push_back(describe(name, *known));
      continue;
    }
    if (const DynamicModel* const dynamic = models_.table().dynamic().find(name)) {
      infos.push_back(describe(*dynamic));
      continue;
    }
    for (const DrainingVersion& draining : models_.table().draining()) {
      if (!draining.removed || client_name(draining.name) != name) continue;
      infos.push_back(describe(draining));
      if (draining.name != name) break;  // one for all buckets
    }
  }
  return infos;
}

ServedModels ModelReporter::served_models(bool serving) const {
  ServedModels served;
  if (!routes_.leads()) return served;
  served.serving = serving;
  served.models.reserve(models_.all().size());
  for (const auto& [name, known] : models_.all())
    served.models.push_back(served_state(name, known));
  return served;
}

std::vector<std::string> ModelReporter::leaving() const {
  std::vector<std::string> names;
  for (const DrainingVersion& draining : models_.table().draining()) {
    std::string name(client_name(draining.name));
    if (!draining.removed || is_served(name)) continue;
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

}  // namespace gpulet::serve
