#include "serve/models/model_table.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

std::string_view why_waiting(TrialWait wait) {
  return wait == TrialWait::turn
             ? "waits until other new models have been loaded for the first time"
             : "waits: no device has room for a gpulet of its own beside what serves, which a "
               "model "
               "needs until it was loaded once; add a device, or lower rates";
}

NamedModel* ModelTable::find(std::string_view name) {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

const NamedModel* ModelTable::find(std::string_view name) const {
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : &found->second;
}

std::size_t ModelTable::listed() const {
  std::size_t buckets = 0;
  for (const auto& [name, model] : dynamic_.all()) buckets += model.buckets.size();
  return named_.size() - buckets + dynamic_.all().size();
}

std::optional<ModelIndex> ModelTable::version_in(GpuletId id, const std::string& name) const {
  const GpuletRecord* const gpulet = backends_.find(id);
  if (gpulet == nullptr) return std::nullopt;
  const auto loaded = std::find_if(gpulet->models.begin(), gpulet->models.end(),
                                   [&name](const auto& one) { return one.name == name; });
  if (loaded == gpulet->models.end()) return std::nullopt;
  const std::string& version = loaded->version;
  if (const NamedModel* const known = find(name)) {
    if (known->current.id == version) return known->current.index;
    if (known->next && known->next->id == version) return known->next->index;
  }
  const auto found = std::find_if(draining_.begin(), draining_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version;
  });
  return found == draining_.end() ? std::nullopt : std::optional(found->version.index);
}

template <typename Predicate>
bool ModelTable::any_file(const Predicate& predicate) const {
  const auto of_version = [&](const ModelVersion& version) {
    const std::string_view sha256 = queues_.models()[version.index].sha256;
    return !sha256.empty() && predicate(sha256);
  };
  return std::any_of(named_.begin(), named_.end(), [&](const auto& entry) {
    const NamedModel& known = entry.second;
    return of_version(known.current) || (known.next && of_version(*known.next)) ||
           (known.refused && predicate(std::string_view(known.refused->model.sha256)));
  });
}

bool ModelTable::knows_file(std::string_view sha256) const {
  return any_file([sha256](std::string_view file) { return file == sha256; });
}

std::unordered_set<std::string_view> ModelTable::known_files() const {
  std::unordered_set<std::string_view> files;
  any_file([&files](std::string_view file) {
    files.insert(file);
    return false;
  });
  return files;
}

bool ModelTable::has_ready_slot(const std::string& name) const {
  const NamedModel* const known = find(name);
  return known != nullptr && has_ready_slot(*known);
}

std::optional<ModelVersion> ModelTable::take_back(std::string_view name, std::string_view version) {
  const auto found = std::find_if(draining_.begin(), draining_.end(), [&](const auto& one) {
    return one.name == name && one.version.id == version && !one.closed;
  });
  if (found == draining_.end()) return std::nullopt;
  ModelVersion taken = std::move(found->version);
  draining_.erase(found);
  return taken;
}

void ModelTable::add(const std::string& name, NamedModel model) {
  ++revision_;
  dynamic_.set(served(model));
  named_.insert_or_assign(name, std::move(model));
}

ModelVersion ModelTable::remove(const std::string& name) {
  ++revision_;
  const auto found = named_.find(name);
  dynamic_.remove(served(found->second));
  ModelVersion current = std::move(found->second.current);
  named_.erase(found);
  return current;
}

}  // namespace gpulet::serve
