#include "serve/models/model_registry.h"

#include <fmt/format.h>

#include <utility>

namespace gpulet::serve {

ModelRegistry::ModelRegistry(const QuarantineOptions& quarantine, const Context& on)
    : versions_(on.dispatch.dispatcher().versions()),
      demands_(on.demands),
      journal_(on.journal),
      table_(on.dispatch.dispatcher().queues(), on.dispatch.dispatcher().slots(), on.demands,
             on.backends),
      successions_(table_, versions_, on.dispatch.responses(), on.backends, on.deployment,
                   on.journal),
      setbacks_(quarantine, table_, successions_, versions_, on.dispatch.responses(), on.journal),
      states_({table_, successions_, setbacks_, on.backends, on.deployment, on.file_problems}) {}

void ModelRegistry::add(ServedModel model, Time now) {
  NamedModel named;
  const std::string name = model.name;
  named.current.id = version_of(model);
  named.demand = demands_.add(model, now);
  if (auto back = table_.take_back(name, named.current.id)) {
    named.current = std::move(*back);
    versions_.change(named.current.index, std::move(model));
  } else {
    named.current.index = versions_.add(std::move(model));
  }
  table_.add(name, std::move(named));
}

void ModelRegistry::remove(const std::string& name, Time now, FrontendEffects& effects) {
  NamedModel& known = *find(name);
  if (known.next) successions_.drop_next(known, effects);
  demands_.remove(known.demand);
  setbacks_.forget(name);
  table_.draining().push_back(
      {.name = name, .version = table_.remove(name), .removed = true, .closed = false});
  journal_.note(false, "model " + name + " is removed", now, effects);
  successions_.sweep(now, effects);
}

void ModelRegistry::adopt_rate(const std::string& name, double planned_rate, Time now) {
  if (const NamedModel* const known = find(name)) demands_.adopt(known->demand, planned_rate, now);
}

void ModelRegistry::follow(const std::vector<ServedModelState>& states, bool elsewhere) {
  states_.follow(states, elsewhere);
  successions_.serve_elsewhere(elsewhere);
}

void ModelRegistry::refuse_wakers(Time now, FrontendEffects& effects) {
  for (auto& [name, known] : all()) {
    if (!known.waking) continue;
    const std::string reason = states_.why_unserved(name, known);
    if (!reason.empty())
      setbacks_.refuse_waiting(known, fmt::format("model {} cannot be served: {}", name, reason),
                               now, effects);
  }
}

void ModelRegistry::forget_waking() {
  for (auto& [name, known] : all()) known.waking = false;
}

}  // namespace gpulet::serve
