// RemoteFiles: keeps copies of files in remote stores (http, https, s3) in a local folder, and
// looks for new versions of them. Threads of its own fetch; no call waits for a store.
//
// A file is in force from the time when its newest version has come whole, has the SHA-256 that is
// expected, and passes the check. It stays so while its store is away or has something worse, and
// over a restart. A failed attempt is repeated after a pause that doubles.
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
  // Why a complete file, open for reading, is none of those wanted. Empty: any will do.
  std::function<Status(int descriptor)> check;
};

struct RemoteState {
  // The version in force. Empty: none has come.
  std::string sha256{};
  std::filesystem::path path{};
  // The last attempt failed; `text` says why.
  bool failed = false;
  // "fetching, 40 %", or an error with the URL, but without its query. Empty: the version in force
  // is the newest, as far as is known.
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

  // Fetches from now on, and calls `changed` on a thread of its own when the state of a file has
  // changed; at most twice a second while a file arrives.
  void start(std::function<void()> changed);
  // No call of `changed` begins after that.
  void stop();

  // Replaces the files to keep. `used`: SHA-256 of other contents that must stay in the cache. The
  // first call with a file opens the folder. Blocks on file I/O; one thread at a time.
  void want(const std::vector<config::RemoteFile>& files,
            const std::set<std::string, std::less<>>& used);
  // Of a wanted file. Never waits for a store or a disk; any thread.
  [[nodiscard]] RemoteState state(const config::RemoteFile& file) const;
  // Calls `changed` soon, whether anything has changed or not. Any thread.
  void report();
  // Looks for a new version now, whatever the pause. Any thread.
  void look_now(const config::RemoteFile& file);

 private:
  struct Entry;
  struct Cache;

  using Entries = std::map<std::string, std::shared_ptr<Entry>>;  // by key

  [[nodiscard]] Result<std::shared_ptr<Cache>> open_cache() const;
  // With what the cache has of the file. `cache` may be null.
  [[nodiscard]] std::shared_ptr<Entry> make_entry(const config::RemoteFile& file,
                                                  const std::string& key, Cache* cache) const;
  void work();
  // The next entry to fetch, marked as running. Null: stop.
  [[nodiscard]] std::shared_ptr<Entry> next(std::unique_lock<std::mutex>& lock);
  void fetch(const std::shared_ptr<Entry>& entry);
  void tell();

  const RemoteFilesOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Entries entries_;
  std::shared_ptr<Cache> cache_;  // null: it is not open
  bool stopping_ = false;
  bool report_ = false;
  std::mutex telling_;
  std::function<void()> changed_;  // guarded by telling_; empty: not started, or stopped
  std::vector<std::thread> threads_;
};

}  // namespace gpulet::store::remote
