// CatalogueLoader: what a frontend is to serve, from models.json, the files it names and the
// profiles, and from what was asked for by hand since the start. Remembers the hashes of files that
// have not changed. Blocking file I/O; one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/frontend/model_file.h"
#include "gpulet/serve/catalogue.h"
#include "gpulet/serve/messages.h"

namespace gpulet::frontend {

struct LoadedCatalogue {
  serve::Catalogue catalogue;
  ModelFiles model_files;
  std::vector<std::string> meant;  // the models that a change by hand names
};

class CatalogueLoader {
 public:
  explicit CatalogueLoader(config::FrontendConfig config) : config_(std::move(config)) {}

  // Fails with the first error of the models file or a model's file (its name, place and mend):
  // then nothing counts of what was read. So does a profile that cannot be read, the first time;
  // later, what was read of it before counts, and Catalogue::faults says so. A model of the models
  // file or loaded by hand that a profile has lost keeps the figures that it had there
  // (Catalogue::kept_profiles).
  [[nodiscard]] Result<LoadedCatalogue> load();
  // The same with a change by hand, which counts from then on if it did not fail.
  [[nodiscard]] Result<LoadedCatalogue> change(const serve::ModelsChange& change);

  // The files and folders to watch: a file's name in its folder; no names: whatever is in it.
  [[nodiscard]] std::map<std::filesystem::path, std::set<std::string>> watched() const;

 private:
  struct Hashed {
    FileLook look;
    std::string sha256;
  };
  struct ByHand {
    std::map<std::string, config::ModelConfig> loaded;  // entries of other files
    std::set<std::string> unloaded;
    std::map<std::string, std::uint32_t> max_batch;  // in place of what the entries say
  };

  [[nodiscard]] Result<std::vector<std::string>> apply(const serve::ModelsChange& change,
                                                       const config::ServingConfig& serving,
                                                       ByHand& by_hand) const;
  [[nodiscard]] Result<LoadedCatalogue> assemble(const config::ServingConfig& serving,
                                                 const ByHand& by_hand);
  [[nodiscard]] Result<serve::ServedModel> served(const config::ModelConfig& model,
                                                  const std::string& sha256) const;
  // What clients read of it, its label files included.
  [[nodiscard]] Result<std::shared_ptr<const serve::ModelDescription>> description_of(
      const config::ModelConfig& model) const;
  // With the look that the file had before it was read.
  [[nodiscard]] Result<Hashed> hash_of(const config::ModelConfig& model);
  // Reads those that have changed; `names`: of models that keep what a profile has lost.
  [[nodiscard]] Status read_profiles(const std::set<std::string>& names);
  using ProfilesPointer = std::shared_ptr<const profile::ProfileSet>;
  using Kept = std::map<std::string, std::string>;  // models, and the profiles that have lost them
  // As the files are; `faults` get those that cannot be read.
  [[nodiscard]] Result<ProfilesPointer> read_stored(std::vector<std::string>& faults) const;
  [[nodiscard]] Kept lost_by(const profile::ProfileSet& stored,
                             const std::set<std::string>& names) const;
  [[nodiscard]] std::shared_ptr<const profile::ProfileSet> with_memory_of(
      const std::vector<config::ModelConfig>& models);

  config::FrontendConfig config_;
  ByHand by_hand_;
  std::map<std::filesystem::path, Hashed> hashes_;
  std::set<std::filesystem::path> label_files_;  // of the models that were read last
  std::map<std::filesystem::path, FileLook> profile_looks_;
  ProfilesPointer stored_;  // what the files hold, or held when they could be read
  std::vector<std::string> profile_faults_;
  ProfilesPointer profiles_;  // with what models keep
  Kept kept_;
  std::shared_ptr<const profile::InterferenceSet> interference_;
  // The last answer of with_memory_of(), and to what.
  std::shared_ptr<const profile::ProfileSet> profiles_told_;
  std::shared_ptr<const profile::ProfileSet> told_of_;
  std::map<std::string, double> told_mb_;
};

}  // namespace gpulet::frontend
