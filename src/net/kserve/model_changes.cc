#include <algorithm>
#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/repository.h"

namespace gpulet::net::kserve {

Result<serve::ModelsChange> loading(const std::string& model, std::string config) {
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::load;
  if (config.empty()) {
    change.name = model;
    return change;
  }
  change.file = "config";
  const auto models = config::parse_models(config, change.file);
  if (!models.ok()) return models.status();
  const bool only_it =
      std::all_of(models.value().begin(), models.value().end(),
                  [&model](const config::ModelConfig& entry) { return entry.name == model; });
  if (!only_it || models.value().empty()) {
    return Status(
        StatusCode::invalid,
        "the parameter config must be a models file with one entry, that of '" + model + "'");
  }
  change.text = http::bytes_of(std::move(config));
  return change;
}

serve::ModelsChange unloading(const std::string& model) {
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::unload;
  change.name = model;
  return change;
}

}  // namespace gpulet::net::kserve
