#include "gpulet/store/model_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/base/sha256.h"

namespace gpulet::store {

// ---- eviction

namespace {

// Sizes come from a peer: a sum must not overflow.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b
             ? std::numeric_limits<std::uint64_t>::max()
             : a + b;
}

std::uint64_t excess(std::uint64_t requested, std::uint64_t available) {
  return requested > available ? requested - available : 0;
}

Status no_space(const StoreSpace& space, std::uint64_t needed, std::uint64_t evictable) {
  return {
      StatusCode::unavailable,
      fmt::format("no space left on the disk: {} bytes are needed and {} bytes are free, {} bytes "
                  "more after evicting unused model files; free disk space, or serve fewer "
                  "models on this node",
                  needed, excess(space.free_bytes, space.reserved_bytes), evictable)};
}

Status over_limit(std::uint64_t limit, std::uint64_t needed, std::uint64_t used) {
  return {StatusCode::unavailable,
          fmt::format("{} bytes are needed, but files in use take {} bytes of the {} bytes that "
                      "\"model_store_mb\" allows; raise it, or serve fewer models on this node",
                      needed, used, limit)};
}

}  // namespace

Result<std::vector<std::size_t>> choose_evictions(const std::vector<StoredFile>& files,
                                                  const StoreSpace& space,
                                                  std::uint64_t needed_bytes) {
  std::vector<std::size_t> unused;
  std::uint64_t held = space.unfinished_bytes;
  std::uint64_t evictable = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    held = plus(held, files[i].bytes);
    if (files[i].used) continue;
    unused.push_back(i);
    evictable = plus(evictable, files[i].bytes);
  }
  const auto short_of_disk = excess(plus(needed_bytes, space.reserved_bytes), space.free_bytes);
  const auto short_of_limit =
      space.max_bytes ? excess(plus(held, needed_bytes), *space.max_bytes) : 0;
  if (short_of_disk > evictable) return no_space(space, needed_bytes, evictable);
  if (short_of_limit > evictable)
    return over_limit(*space.max_bytes, needed_bytes, excess(held, evictable));

  std::stable_sort(unused.begin(), unused.end(), [&files](std::size_t a, std::size_t b) {
    return files[a].last_used_ns < files[b].last_used_ns;
  });
  const auto needed = std::max(short_of_disk, short_of_limit);
  std::uint64_t freed = 0;
  std::size_t count = 0;
  while (freed < needed) freed = plus(freed, files[unused[count++]].bytes);
  unused.resize(count);
  return unused;
}

// ---- the store

namespace {

constexpr std::string_view kUnfinishedSuffix = ".part";
constexpr std::string_view kSuffix = ".pt";
constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kReadableFileMode = 0644;

Status disk_failure(const std::string& action, const std::filesystem::path& file) {
  return {StatusCode::unavailable,
          fmt::format("cannot {} {}: {}", action, file.string(), std::strerror(errno))};
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

std::uint64_t free_bytes_of(const std::filesystem::path& directory) {
  struct statvfs disk {};
  // If the free space is not known, writing detects a full disk.
  if (::statvfs(directory.c_str(), &disk) != 0) return std::numeric_limits<std::uint64_t>::max();
  return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

// Empty if the directory cannot be read.
std::vector<std::filesystem::path> files_with(const std::filesystem::path& directory,
                                              std::string_view suffix) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == suffix) files.push_back(entry->path());
  }
  return files;
}

FileDescriptor open_file(const std::filesystem::path& file) {
  return FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Uses the exact time: the kernel's default is milliseconds old, and would make files equally old.
// Fails for files of another user, which keep their time.
void touch(const FileDescriptor& file) {
  std::array<timespec, 2> times{};
  times[0].tv_nsec = UTIME_OMIT;
  if (::clock_gettime(CLOCK_REALTIME, &times[1]) == 0) ::futimens(file.get(), times.data());
}

bool is_linked(const FileDescriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 0;
}

// Deletes a file unless it is in use. Returns whether it is gone.
bool evict_file(const std::filesystem::path& file) {
  const auto opened = open_file(file);
  if (!opened.valid() || ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0) return false;
  // Another backend may have evicted it and stored it again; the new file is not locked.
  struct stat locked {};
  struct stat named {};
  const bool same = ::fstat(opened.get(), &locked) == 0 && ::lstat(file.c_str(), &named) == 0 &&
                    locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  return same && ::unlink(file.c_str()) == 0;
}

}  // namespace

// The files that this backend's gpulets use. Each is held open under a shared lock; evicting a
// file, in this process or another with the same store, takes an exclusive lock. The modification
// time of a file is the time of its first or last use, which survives a restart. Any thread.
class ModelStore::UsedFiles {
 public:
  // False if there is no such file or it is being evicted.
  [[nodiscard]] bool use(const std::string& sha256, const std::filesystem::path& file);
  // The same for an open file; keeps the lock of the descriptor.
  void use(const std::string& sha256, FileDescriptor file);
  // Ends the use of all other files.
  void keep_only(const std::set<std::string, std::less<>>& sha256);
  [[nodiscard]] bool contains(std::string_view sha256) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, FileDescriptor, std::less<>> files_;  // guarded by mutex_
};

bool ModelStore::UsedFiles::use(const std::string& sha256, const std::filesystem::path& file) {
  if (contains(sha256)) return true;
  auto opened = open_file(file);
  if (!opened.valid() || ::flock(opened.get(), LOCK_SH | LOCK_NB) != 0) return false;
  // Not if it was evicted between the two calls.
  if (!is_linked(opened)) return false;
  use(sha256, std::move(opened));
  return true;
}

void ModelStore::UsedFiles::use(const std::string& sha256, FileDescriptor file) {
  static_cast<void>(::flock(file.get(), LOCK_SH | LOCK_NB));
  touch(file);
  const std::lock_guard lock(mutex_);
  files_.insert_or_assign(sha256, std::move(file));
}

void ModelStore::UsedFiles::keep_only(const std::set<std::string, std::less<>>& sha256) {
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [&sha256](const auto& entry) {
    if (sha256.contains(entry.first)) return false;
    touch(entry.second);
    return true;
  });
}

bool ModelStore::UsedFiles::contains(std::string_view sha256) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(sha256);
}

// A file that is being received. The destructor deletes it unless it was finished.
class ModelStore::Unfinished {
 public:
  static Result<std::unique_ptr<Unfinished>> create(std::filesystem::path file,
                                                    std::uint64_t total_bytes, mode_t mode) {
    for (;;) {
      FileDescriptor descriptor(
          ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
      // The lock shows other backends that the writer lives; it is released with the descriptor.
      if (!descriptor.valid() || ::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
        return disk_failure("write", file);
      }
      struct stat status {};
      if (::fstat(descriptor.get(), &status) != 0) return disk_failure("write", file);
      if (status.st_nlink == 0) continue;  // removed between the two calls
      return std::unique_ptr<Unfinished>(
          new Unfinished(std::move(file), std::move(descriptor), total_bytes, mode));
    }
  }
  ~Unfinished() {
    if (descriptor_.valid()) ::unlink(file_.c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  [[nodiscard]] bool complete() const { return received_ == total_bytes_; }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }
  // The bytes that are not written yet.
  [[nodiscard]] std::uint64_t missing_bytes() const { return total_bytes_ - received_ - written_; }

  // `free_space` is called if the disk is full; ok: try again.
  [[nodiscard]] Status append(const ModelPiece& piece, const std::function<Status()>& free_space) {
    if (piece.offset != received_ || piece.total_bytes != total_bytes_ ||
        piece.data.size() > total_bytes_ - received_ || piece.data.empty()) {
      return {StatusCode::malformed,
              fmt::format("model file {}: got the piece at offset {}, expected offset {}",
                          piece.sha256, piece.offset, received_)};
    }
    auto rest = piece.data.view();
    while (!rest.empty()) {
      const auto written = ::write(descriptor_.get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && is_full(errno)) {
        if (auto freed = free_space(); !freed.ok()) return freed;
        continue;
      }
      if (written < 0) return disk_failure("write", file_);
      rest = rest.subspan(static_cast<std::size_t>(written));
      written_ += static_cast<std::uint64_t>(written);
    }
    hash_.update(piece.data.view());
    received_ += piece.data.size();
    written_ = 0;
    return {};
  }

  // Gives the file its name and returns it open, under the lock. REQUIRES: complete().
  [[nodiscard]] Result<FileDescriptor> finish(const std::string& sha256,
                                              const std::filesystem::path& name) {
    const auto actual = hash_.finish();
    if (actual != sha256) {
      return Status(StatusCode::invalid,
                    fmt::format("model file {} was received with the SHA-256 {}", sha256, actual));
    }
    // A crash of the machine must not leave the name without the bytes.
    if (::fchmod(descriptor_.get(), mode_) != 0 || ::fsync(descriptor_.get()) != 0)
      return disk_failure("write", file_);
    if (::rename(file_.c_str(), name.c_str()) != 0) return disk_failure("rename to", name);
    return std::move(descriptor_);
  }

 private:
  Unfinished(std::filesystem::path file, FileDescriptor descriptor, std::uint64_t total_bytes,
             mode_t mode)
      : file_(std::move(file)),
        descriptor_(std::move(descriptor)),
        total_bytes_(total_bytes),
        mode_(mode) {}

  const std::filesystem::path file_;
  FileDescriptor descriptor_;
  const std::uint64_t total_bytes_;
  const mode_t mode_;  // of the complete file
  std::uint64_t received_ = 0;
  std::uint64_t written_ = 0;  // of the current piece
  Sha256 hash_;
};

Result<ModelStore> ModelStore::open(const std::filesystem::path& directory,
                                    ModelStoreOptions options) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(directory, error);
  if (!error) std::filesystem::create_directories(absolute.parent_path(), error);
  if (!error && ::mkdir(absolute.c_str(), kDirectoryMode) != 0 && errno != EEXIST)
    error.assign(errno, std::generic_category());
  if (error || ::access(absolute.c_str(), W_OK | X_OK) != 0) {
    const auto why = error ? error.message() : std::string(std::strerror(errno));
    return Status(StatusCode::unavailable,
                  fmt::format("the model store {} is not writable: {}; correct \"model_store\"",
                              directory.string(), why));
  }
  struct stat status {};
  if (::stat(absolute.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0) {
    return Status(
        StatusCode::invalid,
        fmt::format(
            "the model store {} is writable for all users, so that any of them could replace "
            "models; chmod o-w it",
            directory.string()));
  }
  ModelStore store(absolute, std::move(options));
  store.remove_abandoned();
  store.set_modes();
  return store;
}

ModelStore::ModelStore(std::filesystem::path directory, ModelStoreOptions options)
    : directory_(std::move(directory)),
      options_(std::move(options)),
      used_(std::make_shared<UsedFiles>()) {
  if (!options_.free_bytes) options_.free_bytes = free_bytes_of;
}

mode_t ModelStore::file_mode() const {
  return options_.readable_by_others ? kReadableFileMode : kFileMode;
}

// Sets the mode of files that were received when proxies ran as another user. Files of another user
// keep theirs.
void ModelStore::set_modes() const {
  for (const auto& file : files_with(directory_, kSuffix)) {
    if (!is_sha256(file.stem().string())) continue;
    const FileDescriptor descriptor = open_file(file);
    if (descriptor.valid()) static_cast<void>(::fchmod(descriptor.get(), file_mode()));
  }
}

void ModelStore::remove_abandoned() const {
  for (const auto& file : files_with(directory_, kUnfinishedSuffix)) {
    const FileDescriptor descriptor = open_file(file);
    const bool abandoned = descriptor.valid() && ::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0;
    if (abandoned) ::unlink(file.c_str());
  }
}

std::optional<std::filesystem::path> ModelStore::find(std::string_view sha256) const {
  if (!is_sha256(sha256)) return std::nullopt;
  auto file = directory_ / (std::string(sha256) + std::string(kSuffix));
  std::error_code error;
  // The target of a link was not hashed by the store.
  const auto status = std::filesystem::symlink_status(file, error);
  if (!std::filesystem::is_regular_file(status)) return std::nullopt;
  return file;
}

std::optional<std::filesystem::path> ModelStore::use(std::string_view sha256) {
  auto file = find(sha256);
  if (!file || !used_->use(std::string(sha256), *file)) return std::nullopt;
  return file;
}

void ModelStore::keep_only(const std::set<std::string, std::less<>>& sha256) {
  used_->keep_only(sha256);
}

// The complete files of the store.
struct ModelStore::Contents {
  std::vector<std::filesystem::path> names;
  std::vector<StoredFile> files;  // index-aligned with names
};

ModelStore::Contents ModelStore::contents() const {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  Contents contents;
  for (const auto& path : files_with(directory_, kSuffix)) {
    const auto sha256 = path.stem().string();
    struct stat status {};
    if (!is_sha256(sha256) || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      continue;
    contents.files.push_back({static_cast<std::uint64_t>(status.st_size),
                              status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec,
                              used_->contains(sha256)});
    contents.names.push_back(path);
  }
  return contents;
}

StoreSpace ModelStore::space() const {
  StoreSpace space{.free_bytes = options_.free_bytes(directory_), .max_bytes = options_.max_bytes};
  for (const auto& [sha256, file] : unfinished_) {
    space.reserved_bytes += file->missing_bytes();
    space.unfinished_bytes += file->total_bytes();
  }
  return space;
}

Status ModelStore::evict_for(std::uint64_t needed_bytes, const StoreSpace& space) const {
  auto [names, files] = contents();
  StoreSpace current = space;
  for (;;) {
    const auto chosen = choose_evictions(files, current, needed_bytes);
    if (!chosen.ok()) return chosen.status().within("the model store " + directory_.string());
    if (chosen.value().empty()) return {};
    for (const auto number : chosen.value()) {
      auto& file = files[number];
      if (evict_file(names[number])) {
        spdlog::info(
            "model store: evicted {} ({} bytes): no gpulet uses it, and a new file needs the space",
            names[number].string(), file.bytes);
        current.free_bytes += file.bytes;
        file.bytes = 0;
      }
      file.used = true;  // not to be chosen again: it is deleted, or another backend uses it
    }
  }
}

Status ModelStore::begin(const ModelPiece& piece) {
  unfinished_.erase(piece.sha256);
  if (auto freed = evict_for(piece.total_bytes, space()); !freed.ok()) return freed;
  const auto name = fmt::format("{}.{}{}", piece.sha256, ::getpid(), kUnfinishedSuffix);
  GPULET_TRY(auto begun, Unfinished::create(directory_ / name, piece.total_bytes, file_mode()));
  unfinished_.emplace(piece.sha256, std::move(begun));
  return {};
}

Status ModelStore::append(Unfinished& file, const ModelPiece& piece) const {
  // The disk may be full earlier than its free bytes say: because of blocks, quotas, other writers.
  return file.append(piece, [this, &file] {
    auto full = space();
    full.free_bytes = 0;
    full.reserved_bytes = 0;
    full.max_bytes.reset();
    return evict_for(file.missing_bytes(), full);
  });
}

Result<std::optional<std::filesystem::path>> ModelStore::add(const ModelPiece& piece) {
  using Done = std::optional<std::filesystem::path>;
  if (!is_sha256(piece.sha256)) {
    return Status(StatusCode::malformed,
                  fmt::format("\"{}\" is not a SHA-256 in lower-case hex", piece.sha256));
  }
  if (piece.total_bytes == 0) {
    unfinished_.erase(piece.sha256);
    if (piece.changed) {
      return Status(
          StatusCode::unavailable,
          fmt::format("model file {} changed on the frontend while it was sent; it will be "
                      "requested again",
                      piece.sha256));
    }
    // Nothing can be told from a missing file by its bytes, but by its name.
    if (piece.sha256 == sha256_of(""))
      return Status(StatusCode::not_found, "the model's file is empty; write it again");
    return Status(StatusCode::not_found, "the frontend does not have model file " + piece.sha256);
  }
  if (piece.offset == 0) {
    if (auto begun = begin(piece); !begun.ok()) return begun;
  }
  const auto found = unfinished_.find(piece.sha256);
  if (found == unfinished_.end())
    return Done();  // a piece of a file that failed or is not expected
  auto& file = *found->second;
  if (auto appended = append(file, piece); !appended.ok()) {
    unfinished_.erase(found);
    return appended;
  }
  if (!file.complete()) return Done();
  const auto name = directory_ / (piece.sha256 + std::string(kSuffix));
  auto finished = file.finish(piece.sha256, name);
  unfinished_.erase(found);
  if (!finished.ok()) return finished.status();
  used_->use(piece.sha256, std::move(finished).value());
  return Done(name);
}

Status ModelStore::make_room(std::uint64_t bytes) const { return evict_for(bytes, space()); }

Result<std::filesystem::path> ModelStore::adopt(const std::string& sha256,
                                                const std::filesystem::path& file) {
  if (!is_sha256(sha256)) return Status(StatusCode::malformed, "not a SHA-256 in lower-case hex");
  FileDescriptor opened = open_file(file);
  auto name = directory_ / (sha256 + std::string(kSuffix));
  // A crash of the machine must not leave the name without the bytes.
  if (!opened.valid() || ::fchmod(opened.get(), file_mode()) != 0 || ::fsync(opened.get()) != 0)
    return disk_failure("read", file);
  if (::rename(file.c_str(), name.c_str()) != 0) return disk_failure("rename to", name);
  used_->use(sha256, std::move(opened));
  return name;
}

FailureCause ModelStore::cause_of(StatusCode code) {
  if (code == StatusCode::unavailable) return FailureCause::node_disk;
  const bool file_at_fault = code == StatusCode::not_found || code == StatusCode::invalid;
  return file_at_fault ? FailureCause::model_file : FailureCause::unknown;
}

void ModelStore::forget_unfinished() { unfinished_.clear(); }

}  // namespace gpulet::store
