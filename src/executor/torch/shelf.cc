#include "executor/torch/shelf.h"

#include <sys/stat.h>

#include <sstream>
#include <utility>

namespace gpulet::executor {
namespace {

// A file may come by another name each time.
std::string key_of(const ModelToLoad& wanted) {
  std::ostringstream key;
  struct stat file {};
  if (::stat(wanted.file.c_str(), &file) == 0) {
    key << file.st_dev << ' ' << file.st_ino << ' ' << file.st_size << ' ' << file.st_mtim.tv_sec
        << ' ' << file.st_mtim.tv_nsec;
  } else {
    key << wanted.file;
  }
  for (const auto* specs : {&wanted.inputs, &wanted.outputs}) {
    key << '\n';
    for (const TensorSpec& spec : *specs) key << to_string(spec) << ' ';
  }
  key << '\n'
      << to_string(wanted.numerics.precision) << ' ' << wanted.numerics.channels_last << ' '
      << std::hexfloat << wanted.numerics.largest_error;
  return key.str();
}

}  // namespace

std::shared_ptr<ModelShelf::Place> ModelShelf::place_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  // Those that only the map knows are in nobody's hands.
  std::erase_if(places_, [](const auto& place) {
    return place.second.use_count() == 1 && place.second->model.expired();
  });
  std::shared_ptr<Place>& place = places_[key];
  if (place == nullptr) place = std::make_shared<Place>();
  return place;
}

Result<std::shared_ptr<const LoadedModel>> ModelShelf::take(const ModelToLoad& wanted,
                                                            const Load& load) {
  const std::shared_ptr<Place> place = place_of(key_of(wanted));
  const std::lock_guard lock(place->loading);
  if (auto model = place->model.lock()) return model;
  Result<LoadedModel> loaded = load();
  if (!loaded.ok()) return loaded.status();
  auto model = std::make_shared<const LoadedModel>(std::move(loaded).value());
  if (!model->network.changes_itself) place->model = model;
  return model;
}

}  // namespace gpulet::executor
