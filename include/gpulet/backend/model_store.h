// ModelStore: a directory of model files named by what is in them, <sha256>.pt.
//
// A file that comes from the frontend is written to a temporary one piece by piece, and gets its
// name only once it is whole and its SHA-256 is right: what has a name can be trusted. Several
// backends may share a directory: each writes temporary files of its own, holds a lock on them
// while it does, and clears away those that nobody holds (their writer died). Blocking file I/O;
// one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/core/failure.h"
#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

class ModelStore {
 public:
  // Makes the directory where it does not exist, for its user alone. Fails with unavailable, or
  // invalid where everybody may write it, naming it.
  [[nodiscard]] static Result<ModelStore> open(const std::filesystem::path& directory);
  ~ModelStore();
  ModelStore(ModelStore&&) noexcept;
  ModelStore& operator=(ModelStore&&) noexcept;

  // The absolute path of the file; empty where the store does not have it, as a file of its own
  // (no link), or where that is no SHA-256: no name leads out of the store. On any thread.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view sha256) const;

  // Takes the next piece of a file. Returns the finished file's path with the last piece, and no
  // path before it. Fails with not_found (the frontend does not have it), malformed (not a SHA-256,
  // a piece out of order), invalid (the bytes have another SHA-256) or unavailable (disk); nothing
  // of that file is kept then.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> take(const serve::ModelPiece& piece);

  // What it counts against where take() failed with that code.
  [[nodiscard]] static FailureCause cause_of(StatusCode code);

  // Drops every file that is not whole: its pieces will not come any more.
  void forget_unfinished();

 private:
  class Unfinished;
  explicit ModelStore(std::filesystem::path directory);
  void remove_abandoned() const;

  std::filesystem::path directory_;                                             // absolute
  std::map<std::string, std::unique_ptr<Unfinished>, std::less<>> unfinished_;  // by SHA-256
};

}  // namespace gpulet::backend
