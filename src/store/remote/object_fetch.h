// fetch_object(): one attempt to bring the newest version of a remote file into the cache. It goes
// on with an unfinished part, follows redirects, and verifies what came. Blocks on the network and
// the disk. Any thread, one at a time for each file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/store/model_store.h"
#include "store/remote/aws_settings.h"
#include "store/remote/cache_folder.h"
#include "store/remote/http_get.h"

namespace gpulet::store::remote {

// A ModelStore for several threads.
class SharedStore {
 public:
  explicit SharedStore(ModelStore store) : store_(std::move(store)) {}
  [[nodiscard]] std::optional<std::filesystem::path> use(std::string_view sha256) {
    return store_.use(sha256);
  }
  void keep_only(const std::set<std::string, std::less<>>& sha256) { store_.keep_only(sha256); }
  // Makes room for a part that has `bytes` of `total` bytes. What is missing of the other parts
  // keeps its room. Fails as ModelStore::make_room and changes nothing then.
  [[nodiscard]] Status grow_part(const std::string& key, std::uint64_t bytes, std::uint64_t total);
  // A part that lies in the folder, whether somebody fetches the rest of it now or not. 0: none.
  void keep_part(const std::string& key, std::uint64_t bytes);
  [[nodiscard]] Result<std::filesystem::path> adopt(const std::string& sha256,
                                                    const std::filesystem::path& file) {
    const std::lock_guard lock(mutex_);
    return store_.adopt(sha256, file);
  }

 private:
  std::mutex mutex_;
  ModelStore store_;
  std::map<std::string, std::uint64_t> parts_;  // bytes for which there is room, by key
};

struct FetchLimits {
  GetLimits get;
  std::uint64_t largest_file = 0;  // bytes
  std::uint32_t redirects = 0;
};

struct FetchContext {
  SharedStore& store;
  const CacheFolder& folder;
  FetchLimits limits;
  Environment environment;
  std::function<std::chrono::system_clock::time_point()> wall_clock;
  // Of a complete file that is open for reading: why it is no model file. Empty: any will do.
  std::function<Status(int descriptor)> check;
  // Called as the file arrives. `total` is empty where the store does not tell.
  std::function<void(std::uint64_t bytes, std::optional<std::uint64_t> total)> progress;
  std::function<bool()> cancelled;
};

struct FetchOutcome {
  // Fails with forbidden, not_found, unavailable, timeout, invalid (what came must not be used, or
  // the configuration is wrong), malformed or cancelled. The message says what to do; it does not
  // contain the URL.
  Status status;
  bool progressed = false;  // bytes of the file came
  std::string sha256;       // of the newest version, if ok
  bool polls = false;       // the store tells cheaply whether there is another version
};

[[nodiscard]] FetchOutcome fetch_object(const config::RemoteFile& file,
                                        const FetchContext& context);

}  // namespace gpulet::store::remote
