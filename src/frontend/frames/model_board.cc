#include "frontend/frames/model_board.h"

#include <algorithm>

namespace gpulet::frontend {
namespace {

std::string_view name_of(const PublishedModels::Entry& entry) { return entry.model->model.name; }

}  // namespace

PublishedModels::PublishedModels(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return name_of(a) < name_of(b); });
}

const PublishedModels::Entry* PublishedModels::find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& entry, std::string_view key) { return name_of(entry) < key; });
  return found == entries_.end() || name_of(*found) != name ? nullptr : &*found;
}

void ModelBoard::publish(PublishedModelsPointer models) {
  const std::lock_guard lock(mutex_);
  models_.swap(models);
  revision_.fetch_add(1, std::memory_order_release);
}

PublishedModelsPointer ModelBoard::current() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

const PublishedModels::Entry* ModelReader::find(std::string_view name) const {
  // Read first: a list that is published meanwhile is fetched again.
  const std::uint64_t revision = board_.revision();
  if (revision != revision_) {
    models_ = board_.current();
    revision_ = revision;
  }
  return models_->find(name);
}

}  // namespace gpulet::frontend
