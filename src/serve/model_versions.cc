#include "gpulet/serve/model_versions.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

NamedModel* ModelVersions::find(std::string_view name) {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

const NamedModel* ModelVersions::find(std::string_view name) const {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

std::optional<ModelIndex> ModelVersions::index_of(std::string_view name,
                                                  std::string_view version) const {
  if (const NamedModel* model = find(name)) {
    if (model->current.id == version) return model->current.index;
    if (model->next && model->next->id == version) return model->next->index;
  }
  const auto found = std::find_if(leaving_.begin(), leaving_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version;
  });
  return found == leaving_.end() ? std::nullopt : std::optional(found->version.index);
}

std::optional<ModelVersion> ModelVersions::take_back(std::string_view name,
                                                     std::string_view version) {
  const auto found = std::find_if(leaving_.begin(), leaving_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version && !one.closed;
  });
  if (found == leaving_.end()) return std::nullopt;
  ModelVersion taken = std::move(found->version);
  leaving_.erase(found);
  return taken;
}

}  // namespace gpulet::serve
