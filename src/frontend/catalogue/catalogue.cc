#include "frontend/catalogue/catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/store.h"
#include "gpulet/research/research.h"

namespace gpulet::frontend {

namespace {

using nlohmann::json;

constexpr int kChangesFormat = 1;

std::string names_of(const std::vector<config::ModelConfig>& models) {
  std::vector<std::string> names;
  names.reserve(models.size());
  for (const config::ModelConfig& model : models) names.push_back(model.name);
  return joined(names);
}

const config::ModelConfig* find(const std::vector<config::ModelConfig>& models,
                                const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const auto& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

std::string_view as_text(const Bytes& bytes) {
  const auto view = bytes.view();
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}

// For clients only: the backend looks at its own copy of the file.
config::FileFormat format_at(const std::filesystem::path& file) {
  const auto format = config::format_of(file);
  return format.ok() ? format.value() : config::FileFormat::torchscript;
}

// The description without the contents of the label files.
serve::ModelDescription file_names_of(const config::ModelConfig& model) {
  serve::ModelDescription description;
  description.file_name = config::file_name_of(model);
  description.version = model.version;
  for (const TensorSpec& input : model.inputs) {
    const auto format = model.formats.find(input.name);
    description.formats.push_back(format == model.formats.end() ? config::ImageFormat::none
                                                                : format->second);
    const auto value = model.defaults.find(input.name);
    description.defaults.push_back(value == model.defaults.end() ? std::vector<std::byte>()
                                                                 : value->second);
  }
  for (const TensorSpec& output : model.outputs) {
    serve::OutputLabels& labels = description.labels.emplace_back();
    const auto file = model.labels.find(output.name);
    if (file != model.labels.end()) labels.file_name = file->second.filename().string();
  }
  return description;
}

// The largest batch that the configuration sets; empty: the entry's own value applies. `file`: the
// model's on this machine.
Result<std::optional<std::uint32_t>> configured_batch(const config::ModelConfig& entry,
                                                      const std::filesystem::path& file,
                                                      const std::string& configuration) {
  if (configuration.empty()) return std::optional<std::uint32_t>();
  net::kserve::Model model;
  model.name = entry.name;
  model.inputs = entry.inputs;
  model.outputs = entry.outputs;
  model.max_batch = entry.max_batch;
  model.queue = entry.queue;
  serve::ModelDescription description = file_names_of(entry);
  description.format = format_at(file);
  model.description = std::make_shared<const serve::ModelDescription>(std::move(description));
  GPULET_TRY(const auto read, net::kserve::read_configuration(model, configuration));
  return read.max_batch;
}

// The stored profiles, with the figures in `before` of the retained models that they have lost.
profile::ProfileSet with_retained(profile::ProfileSet stored, const profile::ProfileSet& before,
                                  const std::map<std::string, std::string>& retained) {
  for (const auto& [type, old] : before) {
    std::set<std::string, std::less<>> lost;
    const auto now = stored.find(type);
    for (const auto& [name, model] : old.models) {
      const bool present = now != stored.end() && now->second.find(name) != nullptr;
      if (retained.contains(name) && !present) lost.insert(name);
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
      const bool both_present =
          profile.find(pair.model) != nullptr && profile.find(pair.other_model) != nullptr;
      if (concerns_lost(pair) && both_present) profile.pairs.push_back(pair);
    }
  }
  return stored;
}

}  // namespace

Result<LoadedCatalogue> CatalogueLoader::load() {
  GPULET_TRY(const config::ServingConfig serving, read_serving());
  return assemble(serving, changes_, Missing::use_own);
}

Result<LoadedCatalogue> CatalogueLoader::change(const ModelsChange& change,
                                                const std::vector<NamedFile>& files,
                                                Missing missing) {
  GPULET_TRY(const config::ServingConfig serving, read_serving());
  ClientChanges changes = changes_;
  GPULET_TRY(std::vector<std::string> changed, apply(change, serving, changes));
  for (const NamedFile& file : files) changes.contents[file.path] = file.sha256;
  Result<LoadedCatalogue> loaded = assemble(serving, changes, missing);
  if (!loaded.ok() || !loaded.value().missing.empty()) return loaded;
  loaded.value().client_changes = to_text(changes);
  changes_ = std::move(changes);
  loaded.value().changed_models = std::move(changed);
  // Who loads a model by hand wants its newest version.
  for (const std::string& name : loaded.value().changed_models) {
    const auto remote = loaded.value().remote_models.find(name);
    if (remote != loaded.value().remote_models.end()) remote_.files->look_now(remote->second.file);
  }
  return loaded;
}

Result<LoadedCatalogue> CatalogueLoader::adopt(std::string_view client_changes, Missing missing) {
  GPULET_TRY(const config::ServingConfig serving, read_serving());
  GPULET_TRY(ClientChanges changes, parse(client_changes));
  Result<LoadedCatalogue> loaded = assemble(serving, changes, missing);
  if (loaded.ok() && loaded.value().missing.empty()) changes_ = std::move(changes);
  return loaded;
}

CatalogueLoader::OwnFiles CatalogueLoader::files_of(const ModelsChange& change) {
  OwnFiles own;
  const Result<config::ServingConfig> serving = read_serving();
  if (!serving.ok() || change.kind != ModelsChange::Kind::load) return own;
  const auto entries = config::parse_models(as_text(change.text), change.file);
  if (!entries.ok()) return own;  // the leader reports the error
  const Result<PolicyPointer> policy = policy_for(serving.value());
  if (!policy.ok()) return own;
  const auto add = [&](const std::filesystem::path& named, const auto& admitted) {
    if (!admitted.ok()) return;
    const Result<HashedFile> hashed = hash_of(admitted.value());
    if (!hashed.ok()) return;
    own.names.push_back({named.string(), hashed.value().sha256});
    own.files[hashed.value().sha256] = {admitted.value(), hashed.value().stamp};
  };
  for (const config::ModelConfig& model : entries.value()) {
    add(model.file, admit(policy.value(), model.file, false));
    for (const auto& [output, labels] : model.labels)
      add(labels, admit(policy.value(), labels, true));
  }
  return own;
}

Result<bool> CatalogueLoader::store(const ModelPiece& piece) {
  if (!store_) return Status(StatusCode::unavailable, "this frontend has no model store");
  GPULET_TRY(const auto added, store_->add(piece));
  return added.has_value();
}

// Every text once, however many of its entries are loaded.
std::string CatalogueLoader::to_text(const ClientChanges& changes) {
  std::map<const Source*, std::size_t> numbers;
  json sources = json::array();
  json loaded = json::object();
  for (const auto& [name, one] : changes.loaded) {
    const auto [entry, is_new] = numbers.emplace(one.source.get(), numbers.size());
    if (is_new) sources.push_back({{"file", one.source->file}, {"text", one.source->text}});
    loaded[name] = entry->second;
  }
  const json document{{"format", kChangesFormat},       {"sources", std::move(sources)},
                      {"loaded", std::move(loaded)},    {"unloaded", changes.unloaded},
                      {"max_batch", changes.max_batch}, {"contents", changes.contents}};
  return json_line(document);
}

Result<CatalogueLoader::ClientChanges> CatalogueLoader::parse(std::string_view client_changes) {
  const auto malformed = [](const std::string& why) {
    return Status(StatusCode::malformed, "the changes of another frontend: " + why);
  };
  const json document = json::parse(client_changes, nullptr, false);
  if (!document.is_object() || document.value("format", json()) != kChangesFormat)
    return malformed("not a document of this version of gpulet");
  ClientChanges changes;
  try {
    std::vector<std::shared_ptr<const Source>> sources;
    std::vector<std::vector<config::ModelConfig>> entries;
    for (const json& one : document.at("sources")) {
      sources.push_back(std::make_shared<const Source>(
          Source{one.at("file").get<std::string>(), one.at("text").get<std::string>()}));
      auto parsed = config::parse_models(sources.back()->text, sources.back()->file);
      if (!parsed.ok()) return malformed(parsed.status().message());
      entries.push_back(std::move(parsed).value());
    }
    for (const auto& [name, number] : document.at("loaded").items()) {
      const auto source = number.get<std::size_t>();
      const config::ModelConfig* const entry =
          source < entries.size() ? find(entries[source], name) : nullptr;
      if (entry == nullptr) return malformed("no entry of model " + name);
      changes.loaded.emplace(name, LoadedEntry{*entry, sources[source]});
    }
    changes.unloaded = document.at("unloaded").get<std::set<std::string>>();
    changes.max_batch = document.at("max_batch").get<std::map<std::string, std::uint32_t>>();
    // Absent where an earlier version wrote the document.
    changes.contents =
        document.value("contents", json::object()).get<std::map<std::string, std::string>>();
  } catch (const json::exception& error) {
    return malformed(error.what());
  }
  return changes;
}

Result<std::vector<std::string>> CatalogueLoader::apply(const ModelsChange& change,
                                                        const config::ServingConfig& serving,
                                                        ClientChanges& changes) const {
  const std::string& name = change.name;
  const bool in_file = find(serving.models, name) != nullptr;
  const bool loaded = changes.loaded.contains(name);
  if (change.kind == ModelsChange::Kind::unload) {
    if ((!in_file && !loaded) || changes.unloaded.contains(name)) {
      return Status(
          StatusCode::not_found,
          "model " + name + " is not loaded; `gpulet models list` shows the loaded models");
    }
    changes.loaded.erase(name);
    changes.max_batch.erase(name);
    if (in_file) changes.unloaded.insert(name);
    return std::vector<std::string>{name};
  }
  if (!name.empty()) {
    if (!in_file && !loaded) {
      return Status(StatusCode::not_found, config_.models.string() + ": no model " + name +
                                               " among " + names_of(serving.models) +
                                               "; add it there, or load it with --file");
    }
    if (in_file) changes.loaded.erase(name);
    changes.unloaded.erase(name);
    const config::ModelConfig& entry =
        in_file ? *find(serving.models, name) : changes.loaded.at(name).entry;
    const auto copy = copies_.find(name);
    const std::filesystem::path& file =
        entry.remote && copy != copies_.end() ? copy->second.path : entry.file;
    GPULET_TRY(const auto max_batch, configured_batch(entry, file, change.configuration));
    changes.max_batch.erase(name);
    if (max_batch) changes.max_batch.emplace(name, *max_batch);
    return std::vector<std::string>{name};
  }
  const std::string text(as_text(change.text));
  GPULET_TRY(const auto entries, config::parse_models(text, change.file));
  std::vector<std::string> names;
  const auto source = std::make_shared<const Source>(Source{change.file, text});
  for (const config::ModelConfig& model : entries) {
    changes.loaded.insert_or_assign(model.name, LoadedEntry{model, source});
    changes.unloaded.erase(model.name);
    changes.max_batch.erase(model.name);
    changes.contents.erase(model.file.string());
    for (const auto& [output, labels] : model.labels) changes.contents.erase(labels.string());
    names.push_back(model.name);
  }
  return names;
}

Result<LoadedCatalogue> CatalogueLoader::assemble(const config::ServingConfig& serving,
                                                  ClientChanges& changes, Missing missing) {
  std::vector<Selected> selected;
  std::vector<std::string> unloaded;
  for (const config::ModelConfig& model : serving.models) {
    if (changes.unloaded.contains(model.name)) {
      unloaded.push_back(model.name);
    } else if (!changes.loaded.contains(model.name)) {
      selected.push_back({model, &model});
    }
  }
  std::sort(unloaded.begin(), unloaded.end());
  // Files named by clients are checked every time, because they may have been replaced.
  LoadedCatalogue loaded;
  GPULET_TRY(const PolicyPointer policy,
             changes.loaded.empty() ? Result<PolicyPointer>(PolicyPointer()) : policy_for(serving));
  for (const auto& [name, entry] : changes.loaded) {
    Result<Selected> one = select(entry, policy, changes, missing, loaded.missing);
    if (!one.ok()) return one.status().within("model " + name);
    selected.push_back(std::move(one).value());
  }
  if (!loaded.missing.empty()) return loaded;
  if (const Status status = want_remote(serving); !status.ok()) return status;
  for (Selected& one : selected) {
    const auto max_batch = changes.max_batch.find(one.model.name);
    if (max_batch != changes.max_batch.end()) one.model.max_batch = max_batch->second;
  }
  // Also those that cannot be read: they may be created later.
  label_files_.clear();
  for (const Selected& one : selected) {
    for (const auto& [output, labels] : one.model.labels) label_files_.insert(labels);
  }
  std::map<std::string, std::string> contents;
  loaded.catalogue.unloaded = std::make_shared<const std::vector<std::string>>(std::move(unloaded));
  for (Selected& one : selected) {
    Result<HashedFile> hashed = file_of(one);
    if (!hashed.ok()) {
      const auto before = hashes_.find(one.model.file);
      const StatusCode code = hashed.status().code();
      const bool is_known = before != hashes_.end();
      const bool goes_on = code == StatusCode::timeout
                               ? is_known || !changes.loaded.contains(one.model.name)
                               : is_known && code == StatusCode::invalid;
      if (goes_on) {
        loaded.catalogue.faults.push_back("model " + one.model.name + ": " +
                                          hashed.status().message());
        hashed = is_known ? before->second : HashedFile();
      }
    }
    if (!hashed.ok()) {
      return Status(hashed.status().code(), config_.models.string() + ": model " + one.model.name +
                                                ": " + hashed.status().message() +
                                                "; correct the path, or put the file there");
    }
    for (config::ModelConfig& bucket : config::buckets_of(one.model)) {
      GPULET_TRY(serve::ServedModel model, served({std::move(bucket), one.entry}, hashed.value()));
      loaded.catalogue.models.push_back(std::move(model));
    }
    if (!hashed.value().sha256.empty())
      loaded.model_files[hashed.value().sha256] = {one.model.file, hashed.value().stamp};
    if (one.model.remote)
      loaded.remote_models[one.model.name] = {*one.model.remote, hashed.value().sha256};
    if (!changes.loaded.contains(one.model.name)) continue;
    contents[one.entry->file.string()] = hashed.value().sha256;
    for (const auto& [output, labels] : one.model.labels) {
      const Result<HashedFile> content = hash_of(labels);
      if (!content.ok()) return content.status().within("model " + one.model.name);
      contents[one.entry->labels.at(output).string()] = content.value().sha256;
      loaded.model_files[content.value().sha256] = {labels, content.value().stamp};
    }
  }
  std::erase_if(hashes_, [&](const auto& entry) {
    return !label_files_.contains(entry.first) &&
           std::none_of(selected.begin(), selected.end(),
                        [&](const Selected& one) { return one.model.file == entry.first; });
  });
  std::set<std::string> names;
  const auto add_names = [&names](const config::ModelConfig& model) {
    for (const config::ModelConfig& bucket : config::buckets_of(model)) names.insert(bucket.name);
  };
  for (const config::ModelConfig& model : serving.models) add_names(model);
  for (const auto& [name, model] : changes.loaded) add_names(model.entry);
  if (const Status read = read_profiles(names); !read.ok()) return read;
  loaded.catalogue.faults.insert(loaded.catalogue.faults.end(), profile_faults_.begin(),
                                 profile_faults_.end());
  loaded.catalogue.kept_profiles = retained_;
  loaded.catalogue.profiles = with_stated(selected);
  loaded.catalogue.interference = interference_;
  for (const config::ApplicationConfig& graph : serving.applications) {
    auto application =
        serve::make_application(graph, loaded.catalogue.models, *loaded.catalogue.profiles);
    if (!application.ok()) return application.status().within(config_.models.string());
    loaded.catalogue.applications.push_back(std::move(application).value());
  }
  changes.contents = std::move(contents);
  if (store_) {
    std::set<std::string, std::less<>> used;
    for (const auto& [sha256, file] : loaded.model_files) used.insert(sha256);
    store_->keep_only(used);
  }
  keep_remote(loaded);
  return loaded;
}

Result<CatalogueLoader::Selected> CatalogueLoader::select(const LoadedEntry& entry,
                                                          const PolicyPointer& policy,
                                                          const ClientChanges& changes,
                                                          Missing what,
                                                          std::vector<std::string>& missing) {
  Selected one{entry.entry, &entry.entry};
  if (one.model.remote) {
    return Status(StatusCode::invalid, config::place_of(one.model) +
                                           ": only the models file may name a file in a store; add "
                                           "the model to " +
                                           config_.models.string());
  }
  GPULET_TRY(
      std::filesystem::path file,
      find_content(one.entry->file, admit(policy, one.entry->file, false), changes, what, missing));
  one.model.file = std::move(file);
  for (auto& [output, labels] : one.model.labels) {
    Result<std::filesystem::path> found =
        find_content(labels, admit(policy, labels, true), changes, what, missing);
    if (!found.ok()) return found.status().within("labels of " + output);
    labels = std::move(found).value();
  }
  return one;
}

Result<std::filesystem::path> CatalogueLoader::find_content(const std::filesystem::path& path,
                                                            Result<std::filesystem::path> own,
                                                            const ClientChanges& changes,
                                                            Missing what,
                                                            std::vector<std::string>& missing) {
  const auto content = changes.contents.find(path.string());
  if (content == changes.contents.end() || !store_) return own;
  if (own.ok()) {
    const Result<HashedFile> hashed = hash_of(own.value());
    if (hashed.ok() && hashed.value().sha256 == content->second) return own;
  }
  if (auto stored = store_->use(content->second)) return std::move(*stored);
  if (what == Missing::report) {
    missing.push_back(content->second);
    return path;
  }
  return own;
}

Result<serve::ServedModel> CatalogueLoader::served(const Selected& selected,
                                                   const HashedFile& file) const {
  GPULET_TRY(std::shared_ptr<const serve::ModelDescription> description,
             description_of(selected, file.format));
  const config::ModelConfig& model = selected.model;
  serve::ServedModel served;
  served.description = std::move(description);
  served.name = model.name;
  served.sha256 = file.sha256;
  served.file_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(file.stamp.size, 0));
  served.inputs = model.inputs;
  served.outputs = model.outputs;
  served.slo_ms = model.slo_ms;
  served.configured_rate = model.rate;
  served.max_batch = model.max_batch;
  served.numerics = model.numerics;
  served.queue = model.queue;
  if (model.bucket) served.bucket = std::make_shared<const Bucket>(*model.bucket);
  Result<serve::ServedModel> sized = serve::with_sizes(std::move(served));
  return sized.ok() ? std::move(sized) : sized.status().within(config_.models.string());
}

Result<std::shared_ptr<const serve::ModelDescription>> CatalogueLoader::description_of(
    const Selected& selected, config::FileFormat format) const {
  const config::ModelConfig& model = selected.model;
  auto description = std::make_shared<serve::ModelDescription>(file_names_of(*selected.entry));
  description->format = format;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    const TensorSpec& output = model.outputs[i];
    const auto file = model.labels.find(output.name);
    if (file == model.labels.end()) continue;
    Result<std::vector<std::string>> labels = guard_->run<std::vector<std::string>>(
        file->second, [path = file->second, output](ReadProgress&) {
          std::error_code error;
          const std::filesystem::file_status found = std::filesystem::status(path, error);
          return std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)
                     ? Result<std::vector<std::string>>(
                           Status(StatusCode::invalid, path.string() + ": it is no regular file"))
                     : config::load_labels(path, output);
        });
    if (!labels.ok()) {
      return labels.status().within(config_.models.string() + ": model " + model.name +
                                    ", labels of " + output.name);
    }
    description->labels[i].labels = std::move(labels).value();
  }
  return std::shared_ptr<const serve::ModelDescription>(std::move(description));
}

Status CatalogueLoader::want_remote(const config::ServingConfig& serving) {
  std::vector<config::RemoteFile> wanted = wanted_;
  for (const config::ModelConfig& model : serving.models)
    if (model.remote) wanted.push_back(*model.remote);
  if (remote_.files == nullptr && !wanted.empty())
    return {StatusCode::unavailable, "model files in stores are not fetched here"};
  if (remote_.files == nullptr) return {};
  std::set<std::string, std::less<>> used;
  for (const auto& [name, copy] : copies_) used.insert(copy.sha256);
  remote_.files->want(wanted, used);
  return {};
}

void CatalogueLoader::keep_remote(const LoadedCatalogue& loaded) {
  if (remote_.files == nullptr) return;
  wanted_.clear();
  std::map<std::string, Copy> copies;
  std::set<std::string, std::less<>> used;
  for (const auto& [name, model] : loaded.remote_models) {
    wanted_.push_back(model.file);
    // The version that it had before stays in force meanwhile.
    Copy copy = copies_[name];
    if (!model.sha256.empty()) copy = {model.sha256, loaded.model_files.at(model.sha256).path};
    used.insert(copy.sha256);
    copies.emplace(name, std::move(copy));
  }
  copies_ = std::move(copies);
  remote_.files->want(wanted_, used);
}

CatalogueLoader::Copy CatalogueLoader::copy_of(const std::string& model,
                                               const config::RemoteFile& file) const {
  const store::remote::RemoteState newest = remote_.files->state(file);
  const auto in_force = copies_.find(model);
  const bool replaces = in_force != copies_.end() && !in_force->second.sha256.empty() &&
                        in_force->second.sha256 != newest.sha256;
  if (replaces && !newest.sha256.empty() && remote_.versions != nullptr &&
      !remote_.versions->may_take(model, newest.sha256))
    return in_force->second;
  return {newest.sha256, newest.path};
}

Result<CatalogueLoader::HashedFile> CatalogueLoader::file_of(Selected& selected) {
  config::ModelConfig& model = selected.model;
  if (!model.remote) return hash_of(model.file);
  Copy copy = copy_of(model.name, *model.remote);
  const std::optional<FileStamp> stamp = copy.sha256.empty() ? std::nullopt : stamp_of(copy.path);
  model.file = std::move(copy.path);
  // The name of a copy tells its hash.
  return stamp ? HashedFile{*stamp, std::move(copy.sha256), format_at(model.file)} : HashedFile();
}

Result<CatalogueLoader::ProfilesPointer> CatalogueLoader::read_stored(
    std::vector<std::string>& faults) const {
  Result<profile::ReadProfiles> read = guard_->run<profile::ReadProfiles>(
      config_.profiles,
      [folder = config_.profiles](ReadProgress&) { return profile::read_each_profile(folder); });
  if (stored_ == nullptr) {
    if (!read.ok()) return read.status();
    if (!read.value().faults.empty()) return read.value().faults.begin()->second;
    return std::make_shared<const profile::ProfileSet>(std::move(read.value().profiles));
  }
  constexpr const char* kRetained = " (the previous content stays in use)";
  if (!read.ok()) {
    faults.push_back(read.status().message() + kRetained);
    return stored_;
  }
  for (const auto& [name, why] : read.value().faults) {
    const auto before = stored_->find(name);
    faults.push_back(why.message() + (before == stored_->end() ? "" : kRetained));
    if (before != stored_->end()) read.value().profiles.insert(*before);
  }
  return std::make_shared<const profile::ProfileSet>(std::move(read.value().profiles));
}

CatalogueLoader::RetainedModels CatalogueLoader::lost_by(const profile::ProfileSet& stored,
                                                         const std::set<std::string>& names) const {
  RetainedModels lost;
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
  using Stamps = std::map<std::filesystem::path, FileStamp>;
  Result<Stamps> found = guard_->run<Stamps>(
      config_.profiles, [folder = config_.profiles](ReadProgress&) -> Result<Stamps> {
        Stamps stamps;
        std::error_code error;
        for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
             !error && entry != end; entry.increment(error)) {
          if (const auto stamp = stamp_of(entry->path())) stamps.emplace(entry->path(), *stamp);
        }
        if (error) return Status(StatusCode::unavailable, folder.string() + ": " + error.message());
        return stamps;
      });
  const bool all_found = found.ok();
  Stamps stamps = all_found ? std::move(found).value() : Stamps();
  const bool same_files =
      stored_ != nullptr && all_found && profile_faults_.empty() && stamps == profile_stamps_;
  std::vector<std::string> faults;
  GPULET_TRY(const ProfilesPointer stored, same_files ? stored_ : read_stored(faults));
  RetainedModels retained = lost_by(*stored, names);
  if (!same_files || retained != retained_) {
    const ProfilesPointer profiles = retained.empty()
                                         ? stored
                                         : std::make_shared<const profile::ProfileSet>(
                                               with_retained(*stored, *profiles_, retained));
    // Any type of device may join later, so every profile counts.
    std::vector<std::string> types;
    for (const auto& [name, profile] : *profiles) types.push_back(name);
    Result<planning::ChosenInterference> chosen = planning::choose_interference(
        *profiles, types, config_.interference, research::fit_pair_model());
    if (!chosen.ok()) return chosen.status().within("interference");
    profiles_ = profiles;
    interference_ =
        std::make_shared<const profile::InterferenceSet>(std::move(chosen.value().models));
  }
  stored_ = stored;
  retained_ = std::move(retained);
  profile_faults_ = std::move(faults);
  profile_stamps_ = std::move(stamps);
  return {};
}

CatalogueLoader::ProfilesPointer CatalogueLoader::with_stated(const std::vector<Selected>& models) {
  std::vector<config::ModelConfig> stated;
  for (const Selected& one : models) {
    if (!one.model.memory_mb && one.model.measured.empty()) continue;
    for (const config::ModelConfig& bucket : config::buckets_of(one.model)) {
      config::ModelConfig& entry = stated.emplace_back();
      entry.name = bucket.name;
      entry.memory_mb = one.model.memory_mb;
      entry.measured = bucket.measured;
    }
  }
  if (stated.empty()) return profiles_;
  if (with_stated_ != nullptr && with_stated_from_ == profiles_ && stated == stated_)
    return with_stated_;  // the same object, because nothing has changed
  profile::ProfileSet set = *profiles_;
  for (const config::ModelConfig& entry : stated) profile::state_figures(entry, set);
  with_stated_ = std::make_shared<const profile::ProfileSet>(std::move(set));
  with_stated_from_ = profiles_;
  stated_ = std::move(stated);
  return with_stated_;
}

FileWatch::Folders CatalogueLoader::watched() const {
  FileWatch::Folders folders;
  const auto add = [&folders](const std::filesystem::path& file) {
    folders[file.parent_path()].insert(file.filename().string());
  };
  add(config_.models);
  add((config_.profiles / "").parent_path());  // the whole folder may be replaced
  for (const auto& [file, hashed] : hashes_) {
    if (!guard_->hangs(file)) add(file);
  }
  for (const std::filesystem::path& file : label_files_) {
    if (!guard_->hangs(file)) add(file);
  }
  folders[config_.profiles] = {};
  for (const auto& [file, stamp] : profile_stamps_) {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) folders[file] = {};
  }
  return folders;
}

}  // namespace gpulet::frontend
