#include "backend/used_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace gpulet::backend {
namespace {

FileDescriptor open_file(const std::filesystem::path& file) {
  return FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// The kernel's own idea of "now" is milliseconds old, and would make files equally old. Fails for
// files of another user: those keep the time that they have.
void touch(const FileDescriptor& file) {
  std::array<timespec, 2> times{};
  times[0].tv_nsec = UTIME_OMIT;
  if (::clock_gettime(CLOCK_REALTIME, &times[1]) == 0) ::futimens(file.get(), times.data());
}

bool has_a_name(const FileDescriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 0;
}

}  // namespace

bool UsedFiles::use(const std::string& sha256, const std::filesystem::path& file) {
  if (contains(sha256)) return true;
  auto opened = open_file(file);
  if (!opened.valid() || ::flock(opened.get(), LOCK_SH | LOCK_NB) != 0) return false;
  // Evicted between the two calls.
  if (!has_a_name(opened)) return false;
  use(sha256, std::move(opened));
  return true;
}

void UsedFiles::use(const std::string& sha256, FileDescriptor file) {
  static_cast<void>(::flock(file.get(), LOCK_SH | LOCK_NB));
  touch(file);
  const std::lock_guard lock(mutex_);
  files_.insert_or_assign(sha256, std::move(file));
}

void UsedFiles::keep_only(const std::set<std::string, std::less<>>& sha256) {
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [&sha256](const auto& entry) {
    if (sha256.contains(entry.first)) return false;
    touch(entry.second);
    return true;
  });
}

bool UsedFiles::contains(std::string_view sha256) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(sha256);
}

bool evict_file(const std::filesystem::path& file) {
  const auto opened = open_file(file);
  if (!opened.valid() || ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0) return false;
  // Another backend may have evicted it and stored it anew: that one is not locked.
  struct stat locked {};
  struct stat named {};
  const bool same = ::fstat(opened.get(), &locked) == 0 && ::lstat(file.c_str(), &named) == 0 &&
                    locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  return same && ::unlink(file.c_str()) == 0;
}

}  // namespace gpulet::backend
