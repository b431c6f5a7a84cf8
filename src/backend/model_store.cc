#include "gpulet/backend/model_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/file_descriptor.h"
#include "backend/store_space.h"
#include "backend/used_files.h"
#include "gpulet/core/sha256.h"

namespace gpulet::backend {
namespace {

constexpr std::size_t kShaDigits = 64;
constexpr std::string_view kUnfinishedSuffix = ".part";
constexpr std::string_view kSuffix = ".pt";
constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kModeForOthers = 0644;

// A name from the wire becomes a path: only what can be a SHA-256 may.
bool is_sha256(std::string_view text) {
  return text.size() == kShaDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status disk_failure(const std::string& doing, const std::filesystem::path& file) {
  return {StatusCode::unavailable,
          "cannot " + doing + " " + file.string() + ": " + std::strerror(errno)};
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

std::uint64_t free_bytes_of(const std::filesystem::path& directory) {
  struct statvfs disk {};
  // Writing will tell.
  if (::statvfs(directory.c_str(), &disk) != 0) return std::numeric_limits<std::uint64_t>::max();
  return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

// The whole files of the store, and what is known of each.
struct Contents {
  std::vector<std::filesystem::path> names;
  std::vector<StoredFile> files;  // beside names
};

Contents read_contents(const std::filesystem::path& directory, const UsedFiles& used) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  Contents contents;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto& path = entry->path();
    const auto sha256 = path.stem().string();
    struct stat status {};
    if (path.extension() != kSuffix || !is_sha256(sha256) || ::lstat(path.c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    contents.files.push_back({static_cast<std::uint64_t>(status.st_size),
                              status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec,
                              used.contains(sha256)});
    contents.names.push_back(path);
  }
  return contents;
}

}  // namespace

// A file being received. Its destruction removes it, unless it was finished.
class ModelStore::Unfinished {
 public:
  static Result<std::unique_ptr<Unfinished>> create(std::filesystem::path file,
                                                    std::uint64_t total_bytes, mode_t mode) {
    for (;;) {
      FileDescriptor descriptor(
          ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
      // The lock tells other backends that the writer lives; it goes with the descriptor.
      if (!descriptor.valid() || ::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
        return disk_failure("write", file);
      }
      struct stat status {};
      if (::fstat(descriptor.get(), &status) != 0) return disk_failure("write", file);
      if (status.st_nlink == 0) continue;  // cleared away between the two calls
      return std::unique_ptr<Unfinished>(
          new Unfinished(std::move(file), std::move(descriptor), total_bytes, mode));
    }
  }
  ~Unfinished() {
    if (descriptor_.valid()) ::unlink(file_.c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  [[nodiscard]] bool whole() const { return received_ == total_bytes_; }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }
  // Of it that were not written yet.
  [[nodiscard]] std::uint64_t missing_bytes() const { return total_bytes_ - received_ - written_; }

  // `make_room`: called where the disk is full; ok where it is worth trying again.
  [[nodiscard]] Status append(const serve::ModelPiece& piece,
                              const std::function<Status()>& make_room) {
    if (piece.offset != received_ || piece.total_bytes != total_bytes_ ||
        piece.data.size() > total_bytes_ - received_ || piece.data.empty()) {
      return {StatusCode::malformed, "a piece of model file " + piece.sha256 + " at " +
                                         std::to_string(piece.offset) + " came where " +
                                         std::to_string(received_) + " was due"};
    }
    auto rest = piece.data.view();
    while (!rest.empty()) {
      const auto written = ::write(descriptor_.get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && is_full(errno)) {
        if (auto room = make_room(); !room.ok()) return room;
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

  // Gives it its name, and returns it open, under the lock. REQUIRES: whole().
  [[nodiscard]] Result<FileDescriptor> finish(const std::string& sha256,
                                              const std::filesystem::path& name) {
    const auto actual = hash_.finish();
    if (actual != sha256) {
      return Status(StatusCode::invalid,
                    "what came as model file " + sha256 + " has the SHA-256 " + actual);
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
  const mode_t mode_;  // of the whole file
  std::uint64_t received_ = 0;
  std::uint64_t written_ = 0;  // of the piece that is being written
  Sha256 hash_;
};

Result<ModelStore> ModelStore::open(const std::filesystem::path& directory,
                                    ModelStoreOptions options) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(directory, error);
  if (!error) std::filesystem::create_directories(absolute.parent_path(), error);
  if (!error && ::mkdir(absolute.c_str(), kFolderMode) != 0 && errno != EEXIST)
    error.assign(errno, std::generic_category());
  if (error || ::access(absolute.c_str(), W_OK | X_OK) != 0) {
    const auto why = error ? error.message() : std::string(std::strerror(errno));
    return Status(StatusCode::unavailable, "the model store " + directory.string() +
                                               " cannot be written: " + why +
                                               "; correct \"model_store\"");
  }
  struct stat folder {};
  if (::stat(absolute.c_str(), &folder) == 0 && (folder.st_mode & S_IWOTH) != 0) {
    return Status(StatusCode::invalid, "the model store " + directory.string() +
                                           " may be written by everybody, who could put any "
                                           "program there; chmod o-w it");
  }
  ModelStore store(absolute, std::move(options));
  store.remove_abandoned();
  store.settle_modes();
  return store;
}

ModelStore::ModelStore(std::filesystem::path directory, ModelStoreOptions options)
    : directory_(std::move(directory)),
      options_(std::move(options)),
      used_(std::make_unique<UsedFiles>()) {
  if (!options_.free_bytes) options_.free_bytes = free_bytes_of;
}
ModelStore::~ModelStore() = default;
ModelStore::ModelStore(ModelStore&&) noexcept = default;
ModelStore& ModelStore::operator=(ModelStore&&) noexcept = default;

mode_t ModelStore::file_mode() const {
  return options_.read_by_others ? kModeForOthers : kFileMode;
}

// Of files that were received when proxies ran as somebody else. One of another user stays as it
// is.
void ModelStore::settle_modes() const {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_sha256(entry->path().stem().string()) || entry->path().extension() != kSuffix) continue;
    const FileDescriptor descriptor(
        ::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (descriptor.valid()) static_cast<void>(::fchmod(descriptor.get(), file_mode()));
  }
}

void ModelStore::remove_abandoned() const {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != kUnfinishedSuffix) continue;
    const FileDescriptor descriptor(
        ::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    const bool abandoned = descriptor.valid() && ::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0;
    if (abandoned) ::unlink(entry->path().c_str());
  }
}

std::optional<std::filesystem::path> ModelStore::find(std::string_view sha256) const {
  if (!is_sha256(sha256)) return std::nullopt;
  auto file = directory_ / (std::string(sha256) + std::string(kSuffix));
  std::error_code error;
  // What a link leads to was never hashed here.
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

StoreSpace ModelStore::space() const {
  StoreSpace space{.free_bytes = options_.free_bytes(directory_),
                   .most_bytes = options_.most_bytes};
  for (const auto& [sha256, file] : unfinished_) {
    space.promised_bytes += file->missing_bytes();
    space.unfinished_bytes += file->total_bytes();
  }
  return space;
}

Status ModelStore::make_room(std::uint64_t needed_bytes, const StoreSpace& space) const {
  auto [names, files] = read_contents(directory_, *used_);
  StoreSpace now = space;
  for (;;) {
    const auto chosen = choose_evictions(files, now, needed_bytes);
    if (!chosen.ok()) return chosen.status().within("the model store " + directory_.string());
    if (chosen.value().empty()) return {};
    for (const auto number : chosen.value()) {
      auto& file = files[number];
      if (evict_file(names[number])) {
        spdlog::info(
            "model store: deleted {} ({} bytes): no gpulet uses it, and a new file needs "
            "the space",
            names[number].string(), file.bytes);
        now.free_bytes += file.bytes;
        file.bytes = 0;
      }
      file.used = true;  // not to be chosen again: it is gone, or another backend uses it
    }
  }
}

Status ModelStore::begin(const serve::ModelPiece& piece) {
  unfinished_.erase(piece.sha256);
  if (auto room = make_room(piece.total_bytes, space()); !room.ok()) return room;
  auto begun = Unfinished::create(directory_ / (piece.sha256 + "." + std::to_string(::getpid()) +
                                                std::string(kUnfinishedSuffix)),
                                  piece.total_bytes, file_mode());
  if (!begun.ok()) return begun.status();
  unfinished_.emplace(piece.sha256, std::move(begun).value());
  return {};
}

Status ModelStore::append(Unfinished& file, const serve::ModelPiece& piece) const {
  // Blocks, quotas and other writers take space that the free bytes do not show.
  return file.append(piece, [this, &file] {
    auto full = space();
    full.free_bytes = 0;
    full.promised_bytes = 0;
    full.most_bytes.reset();
    return make_room(file.missing_bytes(), full);
  });
}

Result<std::optional<std::filesystem::path>> ModelStore::take(const serve::ModelPiece& piece) {
  using Done = std::optional<std::filesystem::path>;
  if (!is_sha256(piece.sha256)) {
    return Status(StatusCode::malformed,
                  "\"" + piece.sha256 + "\" is no SHA-256 in lower-case hex");
  }
  if (piece.total_bytes == 0) {
    unfinished_.erase(piece.sha256);
    if (piece.changed) {
      return Status(StatusCode::unavailable,
                    "model file " + piece.sha256 +
                        " changed on the frontend while it was sent; it is asked for again later");
    }
    return Status(StatusCode::not_found, "the frontend does not have model file " + piece.sha256);
  }
  if (piece.offset == 0) {
    if (auto begun = begin(piece); !begun.ok()) return begun;
  }
  const auto found = unfinished_.find(piece.sha256);
  if (found == unfinished_.end())
    return Done();  // the rest of a file that failed, or that nobody waits for
  auto& file = *found->second;
  if (auto appended = append(file, piece); !appended.ok()) {
    unfinished_.erase(found);
    return appended;
  }
  if (!file.whole()) return Done();
  const auto name = directory_ / (piece.sha256 + std::string(kSuffix));
  auto finished = file.finish(piece.sha256, name);
  unfinished_.erase(found);
  if (!finished.ok()) return finished.status();
  used_->use(piece.sha256, std::move(finished).value());
  return Done(name);
}

FailureCause ModelStore::cause_of(StatusCode code) {
  if (code == StatusCode::unavailable) return FailureCause::node_disk;
  const bool of_the_file = code == StatusCode::not_found || code == StatusCode::invalid;
  return of_the_file ? FailureCause::model_file : FailureCause::unknown;
}

void ModelStore::forget_unfinished() { unfinished_.clear(); }

}  // namespace gpulet::backend
