// The catalogue of a frontend: what it serves, read from the models file, the files that it names,
// the profiles, and the changes made by clients since the start.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/file_watch.h"
#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/frontend/setup.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/frontend_events.h"

namespace gpulet::frontend {

struct LoadedCatalogue {
  serve::Catalogue catalogue;
  ModelFiles model_files;
  std::vector<std::string> changed_models;  // the models that a client's change names
  std::string client_changes{};             // CatalogueLoader::adopt() takes them
};

// Reads the catalogue. Caches hashes of unchanged files. Blocks on file I/O; one thread at a time.
class CatalogueLoader {
 public:
  explicit CatalogueLoader(config::FrontendConfig config) : config_(std::move(config)) {}

  // Fails with the first error of the models file or of a file that it names, and then changes
  // nothing. The first call also fails if a profile cannot be read. Later calls keep the profile's
  // previous content and report the error in Catalogue::faults. A model that disappears from a
  // profile keeps its previous figures as long as the models file or a client's change names it
  // (Catalogue::kept_profiles).
  [[nodiscard]] Result<LoadedCatalogue> load();
  // Like load(), with a client's change added. The change stays in force if this succeeds.
  [[nodiscard]] Result<LoadedCatalogue> change(const ModelsChange& change);
  // Like load(), with the changes that clients made through another frontend in place of the own
  // ones (LoadedCatalogue::client_changes). They stay in force if this succeeds. Fails with
  // malformed where no frontend wrote the text.
  [[nodiscard]] Result<LoadedCatalogue> adopt(std::string_view client_changes);

  // The files to watch, by folder. An empty set means every file of the folder.
  [[nodiscard]] FileWatch::Folders watched() const;

 private:
  struct HashedFile {
    FileStamp stamp;
    std::string sha256;
  };
  // A client's text with entries, as it came.
  struct Source {
    std::string file;
    std::string text;
  };
  struct LoadedEntry {
    config::ModelConfig entry;
    std::shared_ptr<const Source> source;
  };
  struct ClientChanges {
    std::map<std::string, LoadedEntry> loaded;  // entries that are not in the models file
    std::set<std::string> unloaded;
    std::map<std::string, std::uint32_t> max_batch;  // overrides the entries
  };
  using ProfilesPointer = std::shared_ptr<const profile::ProfileSet>;
  using RetainedModels = std::map<std::string, std::string>;  // model -> profiles that lost it

  [[nodiscard]] static std::string to_text(const ClientChanges& changes);
  [[nodiscard]] static Result<ClientChanges> parse(std::string_view client_changes);
  [[nodiscard]] Result<std::vector<std::string>> apply(const ModelsChange& change,
                                                       const config::ServingConfig& serving,
                                                       ClientChanges& changes) const;
  [[nodiscard]] Result<LoadedCatalogue> assemble(const config::ServingConfig& serving,
                                                 const ClientChanges& changes);
  [[nodiscard]] Result<serve::ServedModel> served(const config::ModelConfig& model,
                                                  const std::string& sha256) const;
  // The description that clients read, with the contents of the label files.
  [[nodiscard]] Result<std::shared_ptr<const serve::ModelDescription>> description_of(
      const config::ModelConfig& model) const;
  [[nodiscard]] Result<HashedFile> hash_of(const config::ModelConfig& model);
  // Reads changed profiles. Models in `names` keep their figures when a profile loses them.
  [[nodiscard]] Status read_profiles(const std::set<std::string>& names);
  // As stored; a profile that cannot be read keeps its previous content and adds to `faults`.
  [[nodiscard]] Result<ProfilesPointer> read_stored(std::vector<std::string>& faults) const;
  [[nodiscard]] RetainedModels lost_by(const profile::ProfileSet& stored,
                                       const std::set<std::string>& names) const;
  // The profiles, with the memory that the models file states in place of the measured memory.
  [[nodiscard]] ProfilesPointer with_configured_memory(
      const std::vector<config::ModelConfig>& models);

  config::FrontendConfig config_;
  ClientChanges changes_;
  std::map<std::filesystem::path, HashedFile> hashes_;
  std::set<std::filesystem::path> label_files_;  // label files of the models read last
  std::map<std::filesystem::path, FileStamp> profile_stamps_;
  ProfilesPointer stored_;  // the last readable content of the files
  std::vector<std::string> profile_faults_;
  ProfilesPointer profiles_;  // stored_ and the retained figures
  RetainedModels retained_;
  std::shared_ptr<const profile::InterferenceSet> interference_;
  // The last result of with_configured_memory() and its inputs.
  ProfilesPointer sized_profiles_;
  ProfilesPointer sized_from_;
  std::map<std::string, double> configured_mb_;
};

// Keeps the catalogue up to date: watches the files, reads them again after a change, and applies
// clients' changes. Reading and hashing run on a separate thread. Everything else, callbacks
// included, runs on the io_context, which must have stopped before the service is destroyed.
class CatalogueService {
 public:
  using OnRead = std::function<void(Result<LoadedCatalogue>)>;

  // `changed` receives the result of every reload that a change of the files caused.
  CatalogueService(net::asio::io_context& io, std::shared_ptr<CatalogueLoader> loader,
                   OnRead changed);
  ~CatalogueService();
  CatalogueService(const CatalogueService&) = delete;
  CatalogueService& operator=(const CatalogueService&) = delete;

  // Starts watching and reads the files once, because they may have changed since the setup.
  void start();
  void change(ModelsChange change, OnRead done);
  // CatalogueLoader::adopt().
  void adopt(Bytes client_changes, OnRead done);
  // Calls `done` after the changes before it were read.
  void after_changes(std::function<void()> done);
  // Reads the files again, as after a change that the watch reported.
  void reload();
  void stop();

 private:
  void watch(const FileWatch::Folders& folders);
  // Runs `how` on thread_, and passes its result on.
  void read(std::function<Result<LoadedCatalogue>()> how, OnRead done);

  net::asio::io_context& io_;
  std::shared_ptr<CatalogueLoader> loader_;  // used on thread_ only
  OnRead changed_;
  FileWatch watch_;
  bool reading_ = false;
  bool reload_again_ = false;
  bool stopped_ = false;
  boost::asio::thread_pool thread_{1};  // last: joined before the members it uses are destroyed
};

}  // namespace gpulet::frontend
