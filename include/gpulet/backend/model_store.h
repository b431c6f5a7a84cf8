// ModelStore: a directory of model files named by what is in them, <sha256>.pt.
//
// A file that comes from the frontend is written to a temporary one piece by piece, and gets its
// name only once it is whole and its SHA-256 is right: what has a name can be trusted. Several
// backends may share a directory: each writes temporary files of its own, holds a lock on them
// while it does, and clears away those that nobody holds (their writer died).
//
// Files that no gpulet uses are a cache. Before a file is received, the least recently used of them
// are deleted as far as the new one needs the space: on the disk, and within the store's own limit.
// A file in use (use() until keep_only() without it) is never deleted, whichever backend uses it.
// Blocking file I/O; one thread at a time, but for what says otherwise.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gpulet/core/failure.h"
#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

struct ModelStoreOptions {
  std::optional<std::uint64_t> most_bytes = {};  // of whole and unfinished files; nothing: no limit
  // Of the disk that holds the directory, for this user. Empty: what the system says.
  std::function<std::uint64_t(const std::filesystem::path& directory)> free_bytes = {};
  // Proxies run as another user: they open the files anew, by descriptors that they are given. The
  // files then have the mode 0644 instead of 0600, in a folder that only this user may enter.
  bool read_by_others = false;
};

class UsedFiles;
struct StoreSpace;

class ModelStore {
 public:
  // Makes the directory where it does not exist, for its user alone. Fails with unavailable, or
  // invalid where everybody may write it, naming it.
  [[nodiscard]] static Result<ModelStore> open(const std::filesystem::path& directory,
                                               ModelStoreOptions options = {});
  ~ModelStore();
  ModelStore(ModelStore&&) noexcept;
  ModelStore& operator=(ModelStore&&) noexcept;

  // The absolute path of the file; empty where the store does not have it, as a file of its own
  // (no link), or where that is no SHA-256: no name leads out of the store. On any thread.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view sha256) const;

  // As find; the file is in use from now on, and stays until keep_only() is called without it. On
  // any thread.
  [[nodiscard]] std::optional<std::filesystem::path> use(std::string_view sha256);
  // Other files are no longer in use here. On any thread.
  void keep_only(const std::set<std::string, std::less<>>& sha256);

  // Takes the next piece of a file. Returns the finished file's path with the last piece, and no
  // path before it; the file is in use then. Fails with not_found (the frontend does not have it),
  // malformed (not a SHA-256, a piece out of order), invalid (the bytes have another SHA-256) or
  // unavailable (the disk failed or is full, or files in use leave no room within the limit);
  // nothing of that file is kept then.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> take(const serve::ModelPiece& piece);

  // What it counts against where take() failed with that code.
  [[nodiscard]] static FailureCause cause_of(StatusCode code);

  // Drops every file that is not whole: its pieces will not come any more.
  void forget_unfinished();

 private:
  class Unfinished;
  ModelStore(std::filesystem::path directory, ModelStoreOptions options);
  void remove_abandoned() const;
  void settle_modes() const;
  [[nodiscard]] mode_t file_mode() const;
  [[nodiscard]] StoreSpace space() const;
  // Evicts files until so many bytes more may be written, starting from this space.
  [[nodiscard]] Status make_room(std::uint64_t needed_bytes, const StoreSpace& space) const;
  [[nodiscard]] Status begin(const serve::ModelPiece& piece);
  [[nodiscard]] Status append(Unfinished& file, const serve::ModelPiece& piece) const;

  std::filesystem::path directory_;  // absolute
  ModelStoreOptions options_;
  std::unique_ptr<UsedFiles> used_;
  std::map<std::string, std::unique_ptr<Unfinished>, std::less<>> unfinished_;  // by SHA-256
};

}  // namespace gpulet::backend
