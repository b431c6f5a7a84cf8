#include "frontend/endpoints/remote_host.h"

#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

std::shared_ptr<const net::kserve::Model> RemoteHost::model(std::string_view name) {
  const PublishedModels::Entry* const entry = models_.find(name);
  const auto shown = shown_.find(name);
  if (entry == nullptr || !is_for_clients(entry->model->model)) {
    if (shown != shown_.end()) shown_.erase(shown);
    return nullptr;
  }
  if (shown != shown_.end() && shown->second.published == entry->model) return shown->second.model;
  const PublishedModel& published = *entry->model;
  auto model = std::make_shared<const net::kserve::Model>(
      protocol_model({.model = published.model,
                      .number = published.number,
                      .state = ModelState::ready,
                      .reason = {},
                      .application = published.application}));
  shown_.insert_or_assign(std::string(name), Shown{entry->model, model});
  return model;
}

}  // namespace gpulet::frontend
