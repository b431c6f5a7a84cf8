#include "catalogue_loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "file_look.h"
#include "gpulet/core/sha256.h"
#include "gpulet/profile/store.h"
#include "gpulet/serve/planning.h"
#include "model_places.h"

namespace gpulet::frontend {
namespace {

std::string names_of(const std::vector<config::ModelConfig>& models) {
  std::string names;
  for (const config::ModelConfig& model : models) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

const config::ModelConfig* find(const std::vector<config::ModelConfig>& models,
                                const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const auto& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

}  // namespace

Result<LoadedCatalogue> CatalogueLoader::load() {
  const Result<config::ServingConfig> serving = config::load_serving(config_.models);
  if (!serving.ok()) return serving.status();
  return assemble(serving.value(), by_hand_);
}

Result<LoadedCatalogue> CatalogueLoader::change(const serve::ModelsChange& change) {
  const Result<config::ServingConfig> serving = config::load_serving(config_.models);
  if (!serving.ok()) return serving.status();
  ByHand by_hand = by_hand_;
  Result<std::vector<std::string>> meant = apply(change, serving.value(), by_hand);
  if (!meant.ok()) return meant.status();
  Result<LoadedCatalogue> loaded = assemble(serving.value(), by_hand);
  if (!loaded.ok()) return loaded;
  by_hand_ = std::move(by_hand);
  loaded.value().meant = std::move(meant).value();
  return loaded;
}

Result<std::vector<std::string>> CatalogueLoader::apply(const serve::ModelsChange& change,
                                                        const config::ServingConfig& serving,
                                                        ByHand& by_hand) const {
  const std::string& name = change.name;
  const bool in_file = find(serving.models, name) != nullptr;
  const bool loaded = by_hand.loaded.contains(name);
  if (change.kind == serve::ModelsChange::Kind::unload) {
    if ((!in_file && !loaded) || by_hand.unloaded.contains(name)) {
      return Status(StatusCode::not_found,
                    "model " + name + " is not served here; `gpulet models list` shows what is");
    }
    by_hand.loaded.erase(name);
    if (in_file) by_hand.unloaded.insert(name);
    return std::vector<std::string>{name};
  }
  if (!name.empty()) {
    if (!in_file && !loaded) {
      return Status(StatusCode::not_found, config_.models.string() + ": has no model " + name +
                                               "; it has " + names_of(serving.models) +
                                               ". Add it there, or load it with --file");
    }
    if (in_file) by_hand.loaded.erase(name);
    by_hand.unloaded.erase(name);
    return std::vector<std::string>{name};
  }
  const auto bytes = change.text.view();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto given = config::parse_models(text, change.file);
  if (!given.ok()) return given.status();
  std::vector<std::string> names;
  for (const config::ModelConfig& model : given.value()) {
    by_hand.loaded.insert_or_assign(model.name, model);
    by_hand.unloaded.erase(model.name);
    names.push_back(model.name);
  }
  return names;
}

Result<LoadedCatalogue> CatalogueLoader::assemble(const config::ServingConfig& serving,
                                                  const ByHand& by_hand) {
  std::vector<config::ModelConfig> wanted;
  for (const config::ModelConfig& model : serving.models) {
    if (!by_hand.unloaded.contains(model.name) && !by_hand.loaded.contains(model.name))
      wanted.push_back(model);
  }
  // What the network named is looked at every time: its file may be another one by now.
  const ModelPlaces places(config_, serving.models);
  for (const auto& [name, model] : by_hand.loaded) {
    Result<std::filesystem::path> file = places.admit(model.file);
    if (!file.ok()) return file.status().within("model " + name);
    wanted.push_back(model);
    wanted.back().file = std::move(file).value();
  }

  LoadedCatalogue loaded;
  for (const config::ModelConfig& model : wanted) {
    const Result<Hashed> hashed = hash_of(model);
    if (!hashed.ok()) return hashed.status();
    Result<serve::ServedModel> one = served(model, hashed.value().sha256);
    if (!one.ok()) return one.status();
    loaded.model_files[hashed.value().sha256] = {model.file, hashed.value().look};
    loaded.catalogue.models.push_back(std::move(one).value());
  }
  std::erase_if(hashes_, [&](const auto& entry) {
    return std::none_of(wanted.begin(), wanted.end(),
                        [&](const auto& model) { return model.file == entry.first; });
  });
  if (const Status read = read_profiles(); !read.ok()) return read;
  loaded.catalogue.profiles = with_memory_of(wanted);
  loaded.catalogue.interference = interference_;
  for (const config::ApplicationConfig& graph : serving.applications) {
    auto application = serve::make_application(graph, loaded.catalogue.models, *profiles_);
    if (!application.ok()) return application.status().within(config_.models.string());
    loaded.catalogue.applications.push_back(std::move(application).value());
  }
  return loaded;
}

Result<serve::ServedModel> CatalogueLoader::served(const config::ModelConfig& model,
                                                   const std::string& sha256) const {
  serve::ServedModel served;
  served.name = model.name;
  served.sha256 = sha256;
  served.inputs = model.inputs;
  served.outputs = model.outputs;
  served.slo_ms = model.slo_ms;
  served.configured_rate = model.rate;
  served.max_batch = model.max_batch;
  served.numerics = model.numerics;
  Result<serve::ServedModel> sized = serve::with_sizes(std::move(served));
  return sized.ok() ? std::move(sized) : sized.status().within(config_.models.string());
}

Result<CatalogueLoader::Hashed> CatalogueLoader::hash_of(const config::ModelConfig& model) {
  const std::optional<FileLook> look = look_at(model.file);
  const auto known = hashes_.find(model.file);
  if (look && known != hashes_.end() && known->second.look == *look) return known->second;
  Result<std::string> hash = sha256_of_file(model.file);
  if (!hash.ok()) {
    return Status(hash.status().code(), config_.models.string() + ": model " + model.name + ": " +
                                            hash.status().message() +
                                            "; export it with scripts/export_models.py");
  }
  const Hashed hashed{look.value_or(FileLook()), std::move(hash).value()};
  if (look) hashes_.insert_or_assign(model.file, hashed);
  return hashed;
}

Status CatalogueLoader::read_profiles() {
  std::map<std::filesystem::path, FileLook> looks;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(config_.profiles, error), end;
       !error && entry != end; entry.increment(error)) {
    if (const auto look = look_at(entry->path())) looks.emplace(entry->path(), *look);
  }
  if (profiles_ != nullptr && !error && looks == profile_looks_) return {};
  Result<profile::ProfileSet> profiles = profile::read_profiles(config_.profiles);
  if (!profiles.ok()) return profiles.status();
  auto set = std::make_shared<const profile::ProfileSet>(std::move(profiles).value());
  // Which devices will join is not known: every profile counts.
  std::vector<std::string> types;
  for (const auto& [name, profile] : *set) types.push_back(name);
  Result<serve::ChosenInterference> chosen =
      serve::choose_interference(*set, types, config_.interference);
  if (!chosen.ok()) return chosen.status().within("interference");
  profiles_ = std::move(set);
  interference_ =
      std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  profile_looks_ = std::move(looks);
  return {};
}

// What the models file says of a model's memory counts before what was measured.
std::shared_ptr<const profile::ProfileSet> CatalogueLoader::with_memory_of(
    const std::vector<config::ModelConfig>& models) {
  std::map<std::string, double> told_mb;
  for (const config::ModelConfig& model : models) {
    if (model.memory_mb) told_mb[model.name] = *model.memory_mb;
  }
  if (told_mb.empty()) return profiles_;
  if (profiles_told_ != nullptr && told_of_ == profiles_ && told_mb == told_mb_)
    return profiles_told_;  // the same object: nothing has changed
  profile::ProfileSet set = *profiles_;
  for (auto& [type, profile] : set) {
    for (const auto& [name, megabytes] : told_mb) {
      const auto measured = profile.models.find(name);
      if (measured != profile.models.end()) measured->second.memory_mb = megabytes;
    }
  }
  profiles_told_ = std::make_shared<const profile::ProfileSet>(std::move(set));
  told_of_ = profiles_;
  told_mb_ = std::move(told_mb);
  return profiles_told_;
}

std::map<std::filesystem::path, std::set<std::string>> CatalogueLoader::watched() const {
  std::map<std::filesystem::path, std::set<std::string>> folders;
  const auto add = [&folders](const std::filesystem::path& file) {
    folders[file.parent_path()].insert(file.filename().string());
  };
  add(config_.models);
  for (const auto& [file, hashed] : hashes_) add(file);
  folders[config_.profiles] = {};
  for (const auto& [file, look] : profile_looks_) {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) folders[file] = {};
  }
  return folders;
}

}  // namespace gpulet::frontend
