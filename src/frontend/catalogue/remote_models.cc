#include "frontend/catalogue/remote_models.h"

#include <utility>

#include "gpulet/core/bucket.h"
#include "gpulet/serve/values/served_model.h"

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

std::vector<std::string> RemoteModels::names() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, model] : models_) names.push_back(name);
  return names;
}

void RemoteModels::follow(bool leads, const std::vector<ModelInfo>& models) {
  std::map<std::string, std::string> served;
  for (const ModelInfo& model : models)
    served.emplace(client_name(model.name), file_of_version(model.version));
  versions_->follow(leads, std::move(served));
  if (!leads) look_for(models);
  files_->report();
}

// Each version of the leader once: the store may have a newer one by now.
void RemoteModels::look_for(const std::vector<ModelInfo>& models) {
  const std::lock_guard lock(mutex_);
  for (const ModelInfo& model : models) {
    const std::string version = serve::wanted_version(model);
    const std::string name(client_name(model.name));
    const auto known = models_.find(name);
    if (version.empty() || known == models_.end()) continue;
    const std::string wanted(file_of_version(version));
    if (std::exchange(looked_for_[name], wanted) == wanted) continue;
    if (wanted != known->second.sha256) files_->look_now(known->second.file);
  }
}

// On a thread of RemoteFiles.
void RemoteModels::check() {
  const std::lock_guard lock(mutex_);
  bool arrived = false;
  serve::ModelSources sources;
  for (auto& [name, model] : models_) {
    store::remote::RemoteState state = files_->state(model.file);
    const bool is_new = !state.sha256.empty() && state.sha256 != model.sha256;
    if (is_new && (model.sha256.empty() || versions_->may_take(name, state.sha256))) {
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
    if (news) events_.deliver(serve::ModelSourcesChanged{std::move(sources)});
    if (arrived) catalogue_.reload();
  });
}

}  // namespace gpulet::frontend
