// ModelStore: a directory of model files that are named by their contents, <sha256>.pt.
//
// A file is received piece by piece into a temporary file, and gets its name only once it is
// complete and its SHA-256 is right: a named file can be trusted. adopt() takes a whole one.
// Several backends may share a directory: each writes its own temporary files, holds a lock on them
// meanwhile, and removes those without a lock (their writer died).
//
// Files that no gpulet uses are a cache. Before a file is received, least recently used ones are
// evicted until the disk and the store's own limit have space for it. A file in use (from use()
// until keep_only() without it) is never evicted, whichever backend uses it.
#pragma once

#include <sys/types.h>

#include <cstddef>
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

#include "gpulet/base/status.h"
#include "gpulet/core/failure.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::store {

// ---- eviction; pure

struct StoredFile {
  std::uint64_t bytes = 0;
  std::int64_t last_used_ns = 0;  // since any fixed moment
  bool used = false;              // a gpulet serves or loads it
};

struct StoreSpace {
  std::uint64_t free_bytes = 0;                 // on the disk
  std::uint64_t reserved_bytes = 0;             // of free_bytes, for files that are being received
  std::uint64_t unfinished_bytes = 0;           // full size of the files that are being received
  std::optional<std::uint64_t> max_bytes = {};  // of the store; empty: no limit
};

// The indices of the files to delete before `needed_bytes` are written, in the order of deletion:
// unused files, the least recently used first, and no more than necessary. Fails with unavailable
// if deleting all of them is not enough; then none should be deleted.
[[nodiscard]] Result<std::vector<std::size_t>> choose_evictions(
    const std::vector<StoredFile>& files, const StoreSpace& space, std::uint64_t needed_bytes);

// ---- the store

struct ModelStoreOptions {
  std::optional<std::uint64_t> max_bytes = {};  // of complete and unfinished files; empty: no limit
  // The free bytes on the directory's disk for this user. Empty: ask the system.
  std::function<std::uint64_t(const std::filesystem::path& directory)> free_bytes = {};
  // Proxies run as another user and reopen the files through their descriptors. The files then have
  // mode 0644 instead of 0600, in a directory that only this user may enter.
  bool readable_by_others = false;
};

// Blocking file I/O; one thread at a time, except where noted.
class ModelStore {
 public:
  // Creates the directory, for its user only, if it does not exist. Fails with unavailable, or with
  // invalid if everybody may write to the directory.
  [[nodiscard]] static Result<ModelStore> open(const std::filesystem::path& directory,
                                               ModelStoreOptions options = {});
  ModelStore(ModelStore&&) = default;
  ModelStore& operator=(ModelStore&&) = default;

  // The absolute path of the file. Empty if the store does not have it as a regular file (not a
  // link) or if the text is not a SHA-256: no name leads out of the store. Any thread.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view sha256) const;

  // As find(); the file is in use until keep_only() is called without it. Any thread.
  [[nodiscard]] std::optional<std::filesystem::path> use(std::string_view sha256);
  // Ends the use of all other files. Any thread.
  void keep_only(const std::set<std::string, std::less<>>& sha256);

  // Adds the next piece of a file. With the last piece it returns the path of the complete file,
  // which is then in use; before, an empty path. Fails with not_found (the frontend does not have
  // the file), malformed (not a SHA-256, or a piece out of order), invalid (another SHA-256) or
  // unavailable (disk error, disk full, or the limit is reached), and then keeps nothing of the
  // file.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> add(const ModelPiece& piece);

  // Evicts unused files until that many bytes more fit. Fails with unavailable if they cannot.
  [[nodiscard]] Status make_room(std::uint64_t bytes) const;
  // Renames a complete file of the store's disk, whose content has this SHA-256, into the store. It
  // is then in use. Returns its new path. The caller has computed the hash and removes the file if
  // this fails (malformed, unavailable).
  [[nodiscard]] Result<std::filesystem::path> adopt(const std::string& sha256,
                                                    const std::filesystem::path& file);

  // The cause of a failure of add() with that code.
  [[nodiscard]] static FailureCause cause_of(StatusCode code);

  // Removes the unfinished files, because their remaining pieces will not come.
  void forget_unfinished();

 private:
  class Unfinished;
  class UsedFiles;
  struct Contents;
  ModelStore(std::filesystem::path directory, ModelStoreOptions options);
  void remove_abandoned() const;
  void set_modes() const;
  [[nodiscard]] mode_t file_mode() const;
  [[nodiscard]] StoreSpace space() const;
  [[nodiscard]] Contents contents() const;
  // Evicts files until `needed_bytes` can be written, starting from `space`.
  [[nodiscard]] Status evict_for(std::uint64_t needed_bytes, const StoreSpace& space) const;
  [[nodiscard]] Status begin(const ModelPiece& piece);
  [[nodiscard]] Status append(Unfinished& file, const ModelPiece& piece) const;

  std::filesystem::path directory_;  // absolute
  ModelStoreOptions options_;
  std::shared_ptr<UsedFiles> used_;
  std::map<std::string, std::shared_ptr<Unfinished>, std::less<>> unfinished_;  // by SHA-256
};

}  // namespace gpulet::store
