// UsedFiles: the files of a model store that gpulets of this backend use. Each is held open under a
// shared lock, so that whoever evicts, in this process or in another that has the same store, sees
// that it is used: eviction takes an exclusive lock. When a file is used first and last is kept as
// the time of its last change, which survives a restart.
//
// Any thread.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "backend/file_descriptor.h"

namespace gpulet::backend {

class UsedFiles {
 public:
  // False where there is no such file, or it is just being evicted.
  [[nodiscard]] bool use(const std::string& sha256, const std::filesystem::path& file);
  // The same for a file that is open here; takes over the lock that the descriptor has.
  void use(const std::string& sha256, FileDescriptor file);
  // Lets go of every file that is not among these.
  void keep_only(const std::set<std::string, std::less<>>& sha256);
  [[nodiscard]] bool contains(std::string_view sha256) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, FileDescriptor, std::less<>> files_;  // guarded by mutex_
};

// Deletes the file unless somebody uses it. True: it is gone.
[[nodiscard]] bool evict_file(const std::filesystem::path& file);

}  // namespace gpulet::backend
