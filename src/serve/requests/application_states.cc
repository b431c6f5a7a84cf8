#include "serve/requests/application_states.h"

#include <variant>

namespace gpulet::serve {

std::map<std::string, std::size_t> calls_of(const Application& application) {
  std::map<std::string, std::size_t> calls;
  for (const config::ApplicationNode& node : application.graph.nodes) {
    if (const auto* call = std::get_if<config::ModelCall>(&node.work)) ++calls[call->model];
  }
  return calls;
}

std::string why_unserved(const Application& application, const ModelRegistry& models) {
  if (!application.split.unmet.empty()) return application.split.unmet;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = models.find(name);
    const std::string reason =
        known == nullptr ? "it is not served here" : models.states().why_unserved(name, *known);
    if (!reason.empty()) return "model " + name + ": " + reason;
  }
  return {};
}

ModelState state_of(const Application& application, const ModelRegistry& models) {
  if (!application.split.unmet.empty()) return ModelState::unavailable;
  bool all_ready = true;
  bool any_loading = false;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = models.find(name);
    const ModelState state =
        known == nullptr ? ModelState::unavailable : models.states().state_of(name, *known);
    if (state == ModelState::unavailable) return state;
    all_ready = all_ready && state == ModelState::ready;
    any_loading = any_loading || state == ModelState::loading;
  }
  if (all_ready) return ModelState::ready;
  return any_loading ? ModelState::loading : ModelState::idle;
}

}  // namespace gpulet::serve
