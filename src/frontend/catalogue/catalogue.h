// The catalogue of a frontend: what it serves, read from the models file, the files that it names,
// the profiles, and the changes made by clients since the start.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/catalogue/model_file.h"
#include "frontend/catalogue/model_files.h"
#include "frontend/catalogue/remote_versions.h"
#include "frontend/loop/done.h"
#include "frontend/loop/file_guard.h"
#include "frontend/loop/file_watch.h"
#include "gpulet/base/sha256.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/store/model_store.h"
#include "gpulet/store/remote/remote_files.h"

namespace gpulet::frontend {

struct LoadedCatalogue {
  serve::Catalogue catalogue;
  ModelFiles model_files;
  RemoteModelFiles remote_models{};
  std::vector<std::string> changed_models;  // the models that a client's change names
  std::string client_changes{};             // CatalogueLoader::adopt() takes them
  // SHA-256 of contents that neither this machine nor the store has. Nothing was changed then, and
  // the other members are empty.
  std::vector<std::string> missing{};
};

// What to do about a file without the content that another frontend names.
enum class Missing : std::uint8_t {
  report,   // LoadedCatalogue::missing, if there is a store to put the content in
  use_own,  // use the file of this machine, whatever its content; fail if there is none
};

// How a CatalogueLoader reads files. Reads that make no progress for the patience are given up.
struct FileReading {
  Duration patience = std::chrono::seconds(10);
  std::function<Result<std::string>(const std::filesystem::path&, ReadProgress&)> hash =
      [](const std::filesystem::path& file, ReadProgress& progress) {
        return sha256_of_file(file, [&progress] { progress.advance(); });
      };
};

// Where a CatalogueLoader gets the files that are in remote stores.
struct RemoteSource {
  std::shared_ptr<store::remote::RemoteFiles> files;  // null: there are none
  std::shared_ptr<RemoteVersions> versions;           // null: the newest
};

// Reads the catalogue. Caches hashes of unchanged files. Blocks on file I/O; one thread at a time.
//
// A file that does not answer holds up neither the others nor the end of the process (FileGuard).
// If it is a model's, the content that was read before stays in force. Without one, the model has
// no SHA-256, and the error is among Catalogue::faults.
//
// A file that a client's entry names is known by its content, too: that which it had where the
// change was made. A frontend without such a file takes the content from the store.
//
// A file in a remote store is the copy that RemoteFiles has. While there is none, the model has no
// SHA-256 (serve::Catalogue). Only the models file may name such files: with a client's entry, a
// client could make this machine fetch from any place that it reaches.
class CatalogueLoader {
 public:
  // Without a store, files must be readable at their paths. Without `remote`, none may be in a
  // remote store.
  explicit CatalogueLoader(config::FrontendConfig config,
                           std::optional<store::ModelStore> store = std::nullopt,
                           RemoteSource remote = {}, FileReading reading = {})
      : config_(std::move(config)),
        store_(std::move(store)),
        remote_(std::move(remote)),
        reading_(std::move(reading)),
        guard_(std::make_shared<FileGuard>(reading_.patience)) {}

  // Fails with the first error of the models file or of a file that it names, and then changes
  // nothing. The first call also fails if a profile cannot be read. Later calls keep the profile's
  // previous content and report the error in Catalogue::faults. A model that disappears from a
  // profile keeps its previous figures as long as the models file or a client's change names it
  // (Catalogue::kept_profiles).
  [[nodiscard]] Result<LoadedCatalogue> load();
  // Like load(), with a client's change added. The change stays in force if this succeeds.
  // `files`: those that the frontend which took the change has.
  [[nodiscard]] Result<LoadedCatalogue> change(const ModelsChange& change,
                                               const std::vector<NamedFile>& files = {},
                                               Missing missing = Missing::use_own);
  // Like load(), with the changes that clients made through another frontend in place of the own
  // ones (LoadedCatalogue::client_changes). They stay in force if this succeeds. Fails with
  // malformed where no frontend wrote the text.
  [[nodiscard]] Result<LoadedCatalogue> adopt(std::string_view client_changes,
                                              Missing missing = Missing::use_own);

  // The files of the change's entries that this machine has and may serve, by SHA-256. The names
  // are those that change() takes.
  struct OwnFiles {
    std::vector<NamedFile> names;
    ModelFiles files;
  };
  [[nodiscard]] OwnFiles files_of(const ModelsChange& change);
  // Adds the next piece of a missing file to the store. Returns whether the file is complete.
  // Errors as of ModelStore::add().
  [[nodiscard]] Result<bool> store(const ModelPiece& piece);

  // Reading ends early, with an error. Any thread.
  void stop() { guard_->stop(); }

  // The files to watch, by folder. An empty set means every file of the folder. Files that do not
  // answer are left out, because watching them might block.
  [[nodiscard]] FileWatch::Folders watched() const;

 private:
  struct HashedFile {
    FileStamp stamp;
    std::string sha256;
    config::FileFormat format = config::FileFormat::torchscript;
  };
  // Of a file in a remote store.
  struct Copy {
    std::string sha256;
    std::filesystem::path path;
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
    std::map<std::string, std::string> contents;     // path of an entry's file -> SHA-256
  };
  // An entry to serve. `model` has the paths of the files to read, `entry` those that it names.
  struct Selected {
    config::ModelConfig model;
    const config::ModelConfig* entry = nullptr;
  };
  using ProfilesPointer = std::shared_ptr<const profile::ProfileSet>;
  using PolicyPointer = std::shared_ptr<const ModelPathPolicy>;
  using RetainedModels = std::map<std::string, std::string>;  // model -> profiles that lost it

  [[nodiscard]] static std::string to_text(const ClientChanges& changes);
  [[nodiscard]] static Result<ClientChanges> parse(std::string_view client_changes);
  [[nodiscard]] Result<std::vector<std::string>> apply(const ModelsChange& change,
                                                       const config::ServingConfig& serving,
                                                       ClientChanges& changes) const;
  // Updates `changes.contents` if it succeeds.
  [[nodiscard]] Result<LoadedCatalogue> assemble(const config::ServingConfig& serving,
                                                 ClientChanges& changes, Missing missing);
  // Replaces the paths of a client's entry by those of the files to read. Adds contents that cannot
  // be had to `missing`.
  [[nodiscard]] Result<Selected> select(const LoadedEntry& entry, const PolicyPointer& policy,
                                        const ClientChanges& changes, Missing what,
                                        std::vector<std::string>& missing);
  // The path of a file with the content that `path` should have, else `own` if that is a file.
  [[nodiscard]] Result<std::filesystem::path> find_content(const std::filesystem::path& path,
                                                           Result<std::filesystem::path> own,
                                                           const ClientChanges& changes,
                                                           Missing what,
                                                           std::vector<std::string>& missing);
  [[nodiscard]] Result<serve::ServedModel> served(const Selected& selected,
                                                  const HashedFile& file) const;
  // The description that clients read, with the contents of the label files.
  [[nodiscard]] Result<std::shared_ptr<const serve::ModelDescription>> description_of(
      const Selected& selected, config::FileFormat format) const;
  [[nodiscard]] Result<HashedFile> hash_of(const std::filesystem::path& file);
  [[nodiscard]] Result<config::ServingConfig> read_serving() const;
  [[nodiscard]] Result<PolicyPointer> policy_for(const config::ServingConfig& serving) const;
  // ModelPathPolicy::admit() or admit_text().
  [[nodiscard]] Result<std::filesystem::path> admit(const PolicyPointer& policy,
                                                    const std::filesystem::path& file,
                                                    bool is_text) const;
  // The file of the model, with its path in `selected`. Without a SHA-256: it is in its store.
  [[nodiscard]] Result<HashedFile> file_of(Selected& selected);
  // Those of the models file that are in remote stores. Keeps the copies that are in force.
  [[nodiscard]] Status want_remote(const config::ServingConfig& serving);
  // Lets go of the copies that this catalogue does not need.
  void keep_remote(const LoadedCatalogue& loaded);
  // The version of a remote file to serve: the newest that this frontend may take.
  [[nodiscard]] Copy copy_of(const std::string& model, const config::RemoteFile& file) const;
  // Reads changed profiles. Models in `names` keep their figures when a profile loses them.
  [[nodiscard]] Status read_profiles(const std::set<std::string>& names);
  // As stored; a profile that cannot be read keeps its previous content and adds to `faults`.
  [[nodiscard]] Result<ProfilesPointer> read_stored(std::vector<std::string>& faults) const;
  [[nodiscard]] RetainedModels lost_by(const profile::ProfileSet& stored,
                                       const std::set<std::string>& names) const;
  // The profiles, with the figures that entries state in place of the measured ones.
  [[nodiscard]] ProfilesPointer with_stated(const std::vector<Selected>& models);

  config::FrontendConfig config_;
  std::optional<store::ModelStore> store_;
  RemoteSource remote_;
  FileReading reading_;
  std::shared_ptr<FileGuard> guard_;
  std::vector<config::RemoteFile> wanted_;  // by the last catalogue
  std::map<std::string, Copy> copies_;      // in force, by model
  ClientChanges changes_;
  std::map<std::filesystem::path, HashedFile> hashes_;
  std::set<std::filesystem::path> label_files_;  // of the models read last
  std::map<std::filesystem::path, FileStamp> profile_stamps_;
  ProfilesPointer stored_;  // the last readable content of the files
  std::vector<std::string> profile_faults_;
  ProfilesPointer profiles_;  // stored_ and the retained figures
  RetainedModels retained_;
  std::shared_ptr<const profile::InterferenceSet> interference_;
  // The last result of with_stated() and its inputs. Of the entries, only name and figures count.
  ProfilesPointer with_stated_;
  ProfilesPointer with_stated_from_;
  std::vector<config::ModelConfig> stated_;
};

// Keeps the catalogue up to date: watches the files, reads them again after a change, and applies
// clients' changes. Reading and hashing run on a separate thread. Everything else, callbacks
// included, runs on the io_context, which must have stopped before the service is destroyed.
class CatalogueService final : public Reloadable {
 public:
  using OnRead = std::function<void(Result<LoadedCatalogue>)>;
  using OnFiles = std::function<void(CatalogueLoader::OwnFiles)>;
  using OnStored = std::function<void(Result<bool>)>;

  // `changed` receives the result of every reload that a change of the files caused.
  CatalogueService(net::asio::io_context& io, std::shared_ptr<CatalogueLoader> loader,
                   OnRead changed);
  ~CatalogueService();
  CatalogueService(const CatalogueService&) = delete;
  CatalogueService& operator=(const CatalogueService&) = delete;

  // Starts watching and reads the files once, because they may have changed since the setup.
  void start();
  // The functions of CatalogueLoader.
  void change(ModelsChange change, std::vector<NamedFile> files, Missing missing, OnRead done);
  void adopt(Bytes client_changes, Missing missing, OnRead done);
  void files_of(ModelsChange change, OnFiles done);
  void store(ModelPiece piece, OnStored done);
  // Calls `done` after the changes before it were read.
  void after_changes(Done done);
  // Reads the files again, as after a change that the watch reported.
  void reload() override;
  void stop();

 private:
  void watch(const FileWatch::Folders& folders);
  // Runs `how` on thread_, and passes its result on.
  template <typename How>
  void read(How how, OnRead done);
  // The same for a result of any type, which goes to `done` alone.
  template <typename How, typename Then>
  void run(How how, Then done);

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
