#include "frontend/remote_models.h"

#include <utility>

#include "gpulet/serve/served_model.h"

namespace gpulet::frontend {

void RemoteModels::start() {
  files_->start([this] { check(); });
}

void RemoteModels::stop() {
  stopped_ = true;
  files_->stop();
}

void RemoteModels::replace(RemoteModelFiles models) {
  {
    const std::lock_guard lock(mutex_);
    models_ = std::move(models);
  }
  files_->report();  // a file may have come since the catalogue was read
}

void RemoteModels::on_routes(const SetRoutes& routes) {
  const std::lock_guard lock(mutex_);
  if (models_.empty()) return;
  for (const NodeRoutes& node : routes.nodes) {
    for (const Route& route : node.routes) {
      for (const RouteSlot& slot : route.slots) {
        const auto model = models_.find(slot.model);
        if (model != models_.end() && serve::file_of_version(slot.version) != model->second.sha256)
          files_->look_now(model->second.file);
      }
    }
  }
}

// On a thread of RemoteFiles.
void RemoteModels::check() {
  const std::lock_guard lock(mutex_);
  bool arrived = false;
  serve::ModelSources sources;
  for (auto& [name, model] : models_) {
    store::remote::RemoteState state = files_->state(model.file);
    if (!state.sha256.empty() && state.sha256 != model.sha256) {
      model.sha256 = state.sha256;
      arrived = true;
    }
    if (!state.text.empty()) sources.emplace(name, serve::ModelSource{state.failed, state.text});
  }
  const bool news = sources != told_;
  if (news) told_ = sources;
  if (!news && !arrived) return;
  net::asio::post(io_, [this, news, arrived, sources = std::move(sources)]() mutable {
    if (stopped_) return;
    if (news) owner_.tell(std::move(sources));
    if (arrived) owner_.reload();
  });
}

}  // namespace gpulet::frontend
