// CacheFolder: what a cache of remote files has besides the files themselves, which a ModelStore
// keeps in the same folder: for each file that is wanted, a record of the version that was fetched,
// and a part of one that was not finished. Both survive a restart. They are named by a hash,
// because a URL may hold a secret. Blocks on file I/O; any thread, one at a time for each key.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "store/remote/response_head.h"

namespace gpulet::store::remote {

struct FetchRecord {
  std::string sha256;     // of the version that was fetched last; empty: none
  Validators version;     // of that one
  Validators unfinished;  // of the part
  Validators refused;     // of a version that must not be used
  std::string why;        // it must not
  friend bool operator==(const FetchRecord&, const FetchRecord&) = default;
};

// The text of a record, and what it says. Anything else than such a text is an empty record.
[[nodiscard]] std::string to_text(const FetchRecord& record);
[[nodiscard]] FetchRecord parse_record(std::string_view text);

class CacheFolder {
 public:
  // `folder` exists.
  explicit CacheFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  [[nodiscard]] static std::string key_of(const config::RemoteFile& file);

  [[nodiscard]] FetchRecord read(const std::string& key) const;
  // Fails with unavailable.
  [[nodiscard]] Status write(const std::string& key, const FetchRecord& record) const;

  struct Part {
    std::filesystem::path path;
    FileDescriptor file;  // for reading and writing, under an exclusive lock
    std::uint64_t bytes = 0;
    bool resumable = true;  // false: no later call gives this part again
  };
  // The part of the file, or a new one: empty where another process is fetching the same file.
  // Fails with unavailable.
  [[nodiscard]] Result<Part> open_part(const std::string& key) const;

  // Removes records and parts of other keys that nothing has written for `age`.
  void sweep(const std::set<std::string>& keys, std::chrono::seconds age) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace gpulet::store::remote
