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

  // Fails with the first error of any file (its name, place and mend): then nothing counts of what
  // was read.
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
  };

  [[nodiscard]] Result<std::vector<std::string>> apply(const serve::ModelsChange& change,
                                                       const config::ServingConfig& serving,
                                                       ByHand& by_hand) const;
  [[nodiscard]] Result<LoadedCatalogue> assemble(const config::ServingConfig& serving,
                                                 const ByHand& by_hand);
  [[nodiscard]] Result<serve::ServedModel> served(const config::ModelConfig& model,
                                                  const std::string& sha256) const;
  // With the look that the file had before it was read.
  [[nodiscard]] Result<Hashed> hash_of(const config::ModelConfig& model);
  [[nodiscard]] Status read_profiles();
  [[nodiscard]] std::shared_ptr<const profile::ProfileSet> with_memory_of(
      const std::vector<config::ModelConfig>& models);

  config::FrontendConfig config_;
  ByHand by_hand_;
  std::map<std::filesystem::path, Hashed> hashes_;
  std::map<std::filesystem::path, FileLook> profile_looks_;
  std::shared_ptr<const profile::ProfileSet> profiles_;
  std::shared_ptr<const profile::InterferenceSet> interference_;
  // The last answer of with_memory_of(), and to what.
  std::shared_ptr<const profile::ProfileSet> profiles_told_;
  std::shared_ptr<const profile::ProfileSet> told_of_;
  std::map<std::string, double> told_mb_;
};

}  // namespace gpulet::frontend
