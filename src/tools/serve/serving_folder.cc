#include "tools/serve/serving_folder.h"

#include <fcntl.h>
#include <stdlib.h>  // mkdtemp
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "gpulet-serve-";
constexpr const char* kLock = "lock";
// A folder without a lock may be one that is being made.
constexpr std::time_t kUnlockedFor_s = 60;

FileDescriptor take_lock(const fs::path& folder, int flags) {
  FileDescriptor lock(
      ::open((folder / kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return FileDescriptor();
}

// Whether the folder is one of this user whose program has ended. Nothing of others is touched.
bool is_abandoned(const fs::path& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) ||
      facts.st_uid != ::geteuid()) {
    return false;
  }
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder / kLock, error))) return take_lock(folder, 0).valid();
  return std::time(nullptr) - facts.st_mtime > kUnlockedFor_s;
}

void remove_abandoned(const fs::path& temporary) {
  std::vector<fs::path> abandoned;
  std::error_code error;
  for (fs::directory_iterator at(temporary, error), end; !error && at != end; at.increment(error)) {
    const bool ours = at->path().filename().string().starts_with(kPrefix);
    if (ours && is_abandoned(at->path())) abandoned.push_back(at->path());
  }
  for (const fs::path& folder : abandoned) fs::remove_all(folder, error);
}

}  // namespace

Result<ServingFolder> ServingFolder::make() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (!error) remove_abandoned(temporary);
  std::string path = (temporary / (std::string(kPrefix) + "XXXXXX")).string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    return Status(StatusCode::unavailable, "cannot create the temporary folder " + path +
                                               "; set TMPDIR to a writable folder");
  }
  FileDescriptor lock = take_lock(path, O_CREAT);
  ServingFolder folder(path, std::move(lock));
  if (!folder.lock_.valid())
    return Status(StatusCode::unavailable, "cannot create a file in " + path);
  return folder;
}

ServingFolder::ServingFolder(ServingFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

ServingFolder::~ServingFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace gpulet::tools
