#include "catalogue_loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "file_look.h"
#include "gpulet/config/label_file.h"
#include "gpulet/core/sha256.h"
#include "gpulet/net/kserve/configuration.h"
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

// What there is to tell without reading the files of labels.
serve::ModelDescription names_of_files(const config::ModelConfig& model) {
  serve::ModelDescription description;
  description.file_name = model.file.filename().string();
  for (const TensorSpec& output : model.outputs) {
    serve::OutputLabels& labels = description.labels.emplace_back();
    const auto file = model.labels.find(output.name);
    if (file != model.labels.end()) labels.file_name = file->second.filename().string();
  }
  return description;
}

// The largest batch that the configuration gives the entry; nothing: as the entry has it.
Result<std::optional<std::uint32_t>> configured_batch(const config::ModelConfig& entry,
                                                      const std::string& configuration) {
  if (configuration.empty()) return std::optional<std::uint32_t>();
  net::kserve::Model model;
  model.name = entry.name;
  model.inputs = entry.inputs;
  model.outputs = entry.outputs;
  model.max_batch = entry.max_batch;
  model.queue = entry.queue;
  model.description = std::make_shared<const serve::ModelDescription>(names_of_files(entry));
  const auto read = net::kserve::read_configuration(model, configuration);
  if (!read.ok()) return read.status();
  return read.value().max_batch;
}

// What is stored, and of the models that it has lost what `before` has of them.
profile::ProfileSet with_kept(profile::ProfileSet stored, const profile::ProfileSet& before,
                              const std::map<std::string, std::string>& kept) {
  for (const auto& [type, old] : before) {
    std::set<std::string, std::less<>> lost;
    const auto now = stored.find(type);
    for (const auto& [name, model] : old.models) {
      const bool is_there = now != stored.end() && now->second.find(name) != nullptr;
      if (kept.contains(name) && !is_there) lost.insert(name);
    }
    if (lost.empty()) continue;
    const bool is_new = now == stored.end();
    profile::Profile& profile = stored[type];
    if (is_new) {
      profile.name = type;
      profile.provenance = old.provenance;
      profile.pcie_gbps = old.pcie_gbps;
      profile.interference = old.interference;
    }
    for (const std::string& name : lost) profile.models.emplace(name, old.models.at(name));
    const auto concerns_lost = [&lost](const profile::PairSample& pair) {
      return lost.contains(pair.model) || lost.contains(pair.other_model);
    };
    std::erase_if(profile.pairs, concerns_lost);
    for (const profile::PairSample& pair : old.pairs) {
      const bool both_are_there =
          profile.find(pair.model) != nullptr && profile.find(pair.other_model) != nullptr;
      if (concerns_lost(pair) && both_are_there) profile.pairs.push_back(pair);
    }
  }
  return stored;
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
    by_hand.max_batch.erase(name);
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
    const config::ModelConfig& entry =
        in_file ? *find(serving.models, name) : by_hand.loaded.at(name);
    const auto max_batch = configured_batch(entry, change.configuration);
    if (!max_batch.ok()) return max_batch.status();
    by_hand.max_batch.erase(name);
    if (max_batch.value()) by_hand.max_batch.emplace(name, *max_batch.value());
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
    by_hand.max_batch.erase(model.name);
    names.push_back(model.name);
  }
  return names;
}

Result<LoadedCatalogue> CatalogueLoader::assemble(const config::ServingConfig& serving,
                                                  const ByHand& by_hand) {
  std::vector<config::ModelConfig> wanted;
  std::vector<std::string> unloaded;
  for (const config::ModelConfig& model : serving.models) {
    if (by_hand.unloaded.contains(model.name)) {
      unloaded.push_back(model.name);
    } else if (!by_hand.loaded.contains(model.name)) {
      wanted.push_back(model);
    }
  }
  std::sort(unloaded.begin(), unloaded.end());
  // What the network named is looked at every time: its file may be another one by now.
  const ModelPlaces places(config_, serving.models);
  for (const auto& [name, model] : by_hand.loaded) {
    Result<std::filesystem::path> file = places.admit(model.file);
    if (!file.ok()) return file.status().within("model " + name);
    wanted.push_back(model);
    wanted.back().file = std::move(file).value();
    for (auto& [output, labels] : wanted.back().labels) {
      Result<std::filesystem::path> admitted = places.admit_text(labels);
      if (!admitted.ok())
        return admitted.status().within("model " + name + ", labels of " + output);
      labels = std::move(admitted).value();
    }
  }
  for (config::ModelConfig& model : wanted) {
    const auto max_batch = by_hand.max_batch.find(model.name);
    if (max_batch != by_hand.max_batch.end()) model.max_batch = max_batch->second;
  }
  label_files_.clear();
  for (const config::ModelConfig& model : wanted) {
    for (const auto& [output, labels] : model.labels) label_files_.insert(labels);
  }

  LoadedCatalogue loaded;
  loaded.catalogue.unloaded = std::make_shared<const std::vector<std::string>>(std::move(unloaded));
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
  std::set<std::string> names;
  for (const config::ModelConfig& model : serving.models) names.insert(model.name);
  for (const auto& [name, model] : by_hand.loaded) names.insert(name);
  if (const Status read = read_profiles(names); !read.ok()) return read;
  loaded.catalogue.faults = profile_faults_;
  loaded.catalogue.kept_profiles = kept_;
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
  Result<std::shared_ptr<const serve::ModelDescription>> description = description_of(model);
  if (!description.ok()) return description.status();
  serve::ServedModel served;
  served.description = std::move(description).value();
  served.name = model.name;
  served.sha256 = sha256;
  served.inputs = model.inputs;
  served.outputs = model.outputs;
  served.slo_ms = model.slo_ms;
  served.configured_rate = model.rate;
  served.max_batch = model.max_batch;
  served.numerics = model.numerics;
  served.queue = model.queue;
  Result<serve::ServedModel> sized = serve::with_sizes(std::move(served));
  return sized.ok() ? std::move(sized) : sized.status().within(config_.models.string());
}

Result<std::shared_ptr<const serve::ModelDescription>> CatalogueLoader::description_of(
    const config::ModelConfig& model) const {
  auto description = std::make_shared<serve::ModelDescription>(names_of_files(model));
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    const TensorSpec& output = model.outputs[i];
    const auto file = model.labels.find(output.name);
    if (file == model.labels.end()) continue;
    Result<std::vector<std::string>> labels = config::load_labels(file->second, output);
    if (!labels.ok()) {
      return labels.status().within(config_.models.string() + ": model " + model.name +
                                    ", labels of " + output.name);
    }
    description->labels[i].labels = std::move(labels).value();
  }
  return std::shared_ptr<const serve::ModelDescription>(std::move(description));
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

Result<CatalogueLoader::ProfilesPointer> CatalogueLoader::read_stored(
    std::vector<std::string>& faults) const {
  Result<profile::ReadProfiles> read = profile::read_each_profile(config_.profiles);
  if (stored_ == nullptr) {
    if (!read.ok()) return read.status();
    if (!read.value().faults.empty()) return read.value().faults.begin()->second;
    return std::make_shared<const profile::ProfileSet>(std::move(read.value().profiles));
  }
  constexpr const char* kStays = " (what was read before stays in use)";
  if (!read.ok()) {
    faults.push_back(read.status().message() + kStays);
    return stored_;
  }
  for (const auto& [name, why] : read.value().faults) {
    const auto before = stored_->find(name);
    faults.push_back(why.message() + (before == stored_->end() ? "" : kStays));
    if (before != stored_->end()) read.value().profiles.insert(*before);
  }
  return std::make_shared<const profile::ProfileSet>(std::move(read.value().profiles));
}

CatalogueLoader::Kept CatalogueLoader::lost_by(const profile::ProfileSet& stored,
                                               const std::set<std::string>& names) const {
  Kept lost;
  if (profiles_ == nullptr) return lost;
  for (const auto& [type, before] : *profiles_) {
    const auto now = stored.find(type);
    for (const auto& [name, model] : before.models) {
      if (!names.contains(name)) continue;
      if (now != stored.end() && now->second.find(name) != nullptr) continue;
      std::string& types = lost[name];
      types += (types.empty() ? "" : ", ") + type;
    }
  }
  return lost;
}

Status CatalogueLoader::read_profiles(const std::set<std::string>& names) {
  std::map<std::filesystem::path, FileLook> looks;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(config_.profiles, error), end;
       !error && entry != end; entry.increment(error)) {
    if (const auto look = look_at(entry->path())) looks.emplace(entry->path(), *look);
  }
  const bool same_files =
      stored_ != nullptr && !error && profile_faults_.empty() && looks == profile_looks_;
  std::vector<std::string> faults;
  const Result<ProfilesPointer> stored = same_files ? stored_ : read_stored(faults);
  if (!stored.ok()) return stored.status();
  Kept kept = lost_by(*stored.value(), names);
  if (!same_files || kept != kept_) {
    const ProfilesPointer profiles = kept.empty()
                                         ? stored.value()
                                         : std::make_shared<const profile::ProfileSet>(
                                               with_kept(*stored.value(), *profiles_, kept));
    // Which devices will join is not known: every profile counts.
    std::vector<std::string> types;
    for (const auto& [name, profile] : *profiles) types.push_back(name);
    Result<serve::ChosenInterference> chosen =
        serve::choose_interference(*profiles, types, config_.interference);
    if (!chosen.ok()) return chosen.status().within("interference");
    profiles_ = profiles;
    interference_ =
        std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  }
  stored_ = stored.value();
  kept_ = std::move(kept);
  profile_faults_ = std::move(faults);
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
  add((config_.profiles / "").parent_path());  // the folder may be replaced as a whole
  for (const auto& [file, hashed] : hashes_) add(file);
  for (const std::filesystem::path& file : label_files_) add(file);
  folders[config_.profiles] = {};
  for (const auto& [file, look] : profile_looks_) {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) folders[file] = {};
  }
  return folders;
}

}  // namespace gpulet::frontend
