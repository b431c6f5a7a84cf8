// RemoteFiles: keeps copies of files in remote stores (http, https, s3) in a local folder, and
// looks for new versions of them. Fetches on threads of its own; no call waits for a store.
//
// A version of a file comes into force once it has arrived whole, has the expected SHA-256 and
// passes the check. It stays in force until a newer version does, also while the store is
// unreachable or has an invalid file, and after a restart. A failed fetch is repeated after a pause
// that doubles.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"

namespace gpulet::store::remote {

struct RemoteFilesOptions {
  config::RemoteStoresConfig stores;  // `cache` is the folder to use; empty: every fetch fails
  // Fails, with the reason, where a complete file, open for reading, must not come into force.
  // Empty: every file passes.
  std::function<Status(int descriptor)> check;
};

struct RemoteState {
  // The version in force. Empty: none has come.
  std::string sha256{};
  std::filesystem::path path{};
  // The last attempt failed; `text` says why.
  bool failed = false;
  // "fetching, 40 %", or an error, which has the URL without its query. Empty: no newer version
  // than the one in force is known.
  std::string text{};
  friend bool operator==(const RemoteState&, const RemoteState&) = default;
};

class RemoteFiles {
 public:
  explicit RemoteFiles(RemoteFilesOptions options);
  // Ends the transfers, within about a second, and waits for the threads.
  ~RemoteFiles();
  RemoteFiles(const RemoteFiles&) = delete;
  RemoteFiles& operator=(const RemoteFiles&) = delete;

  // Fetches from now on. Calls `changed` on one of its threads when the state of a file has
  // changed, at most twice a second for a file that is arriving. `changed` must not call stop().
  // REQUIRES: not called before.
  void start(std::function<void()> changed);
  // Cancels the transfers, and waits for a call of `changed`; none follows.
  void stop();

  // Replaces the files to keep. `used`: SHA-256 of other contents that must stay in the cache. The
  // first call with a file opens the folder; later ones try again where that failed. Blocks on file
  // I/O; one thread at a time.
  void want(const std::vector<config::RemoteFile>& files,
            const std::set<std::string, std::less<>>& used);
  // The state of a file; empty if it is not wanted. Never waits for a store or a disk; any thread.
  [[nodiscard]] RemoteState state(const config::RemoteFile& file) const;
  // Calls `changed` soon, even if nothing has changed. Any thread.
  void report();
  // Looks for a new version of a wanted file without waiting for the end of the pause. Any thread.
  void look_now(const config::RemoteFile& file);

 private:
  struct Entry;
  struct Cache;

  using Entries = std::map<std::string, std::shared_ptr<Entry>>;  // by key

  [[nodiscard]] Result<std::shared_ptr<Cache>> open_cache() const;
  // An entry with the version that the cache has. `cache` may be null.
  [[nodiscard]] std::shared_ptr<Entry> make_entry(const config::RemoteFile& file,
                                                  const std::string& key, Cache* cache) const;
  // The loop of each thread.
  void work();
  // Waits for an entry that is due, and marks it as running. Null: stop() was called. REQUIRES:
  // `lock` holds mutex_.
  [[nodiscard]] std::shared_ptr<Entry> next(std::unique_lock<std::mutex>& lock);
  void fetch(const std::shared_ptr<Entry>& entry);
  // Calls `changed`.
  void tell();

  const RemoteFilesOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Entries entries_;
  std::shared_ptr<Cache> cache_;  // null: it is not open
  bool stopping_ = false;
  bool report_ = false;            // a call of `changed` was asked for
  std::mutex telling_;             // held during a call of `changed`
  std::function<void()> changed_;  // guarded by telling_; empty: not started, or stopped
  std::vector<std::thread> threads_;
};

}  // namespace gpulet::store::remote
