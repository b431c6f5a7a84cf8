#include "frontend/catalogue/model_files.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {
namespace {

constexpr mode_t kReadableByOthers = S_IRGRP | S_IROTH;

bool lies_below(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const auto ends = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return ends.first == folder.end() && ends.second != file.end();
}

// The path without links and ".."; empty on failure.
std::filesystem::path canonical_path(const std::filesystem::path& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return {};
  auto found = std::filesystem::weakly_canonical(absolute, error);
  return error ? std::filesystem::path() : found;
}

// The files that no client may load as a model. `named_files` has every file that the configuration
// names, also those of keys that are added later, but is empty for a configuration that was not
// read from a file. Therefore the known secrets are added.
std::vector<std::filesystem::path> secrets_of(const config::FrontendConfig& config) {
  std::vector<std::filesystem::path> secrets = config.named_files;
  secrets.insert(secrets.end(),
                 {config.tokens.admin, config.tokens.inference, config.tokens.observe});
  if (config.cluster) secrets.push_back(config.cluster->password_file);
  std::vector<const std::optional<config::TlsFiles>*> identities{&config.tls, &config.backend_tls};
  if (config.cluster)
    identities.insert(identities.end(), {&config.cluster->peer_tls, &config.cluster->tls});
  for (const auto* const identity : identities)
    if (*identity) secrets.push_back((*identity)->key);
  return secrets;
}

bool is_same_file(const struct stat& facts, const std::filesystem::path& other) {
  struct stat found {};
  return !other.empty() && ::stat(other.c_str(), &found) == 0 && found.st_dev == facts.st_dev &&
         found.st_ino == facts.st_ino;
}

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

FileStamp stamp_of(const struct stat& facts) {
  return {facts.st_dev, facts.st_ino, facts.st_size,
          facts.st_mtim.tv_sec * kNanosecondsPerSecond + facts.st_mtim.tv_nsec};
}

// A read without progress for this long is abandoned.
constexpr Duration kPatience = std::chrono::seconds(10);

// Memory in use is not limited here: each connection of a backend limits its unsent bytes.
const net::BufferPoolOptions kBuffers{.max_idle_bytes = 16U << 20U,
                                      .max_used_bytes = std::numeric_limits<std::size_t>::max()};

}  // namespace

// ---- FileStamp

std::optional<FileStamp> stamp_of(const std::filesystem::path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return std::nullopt;
  return stamp_of(facts);
}

std::optional<FileStamp> stamp_of(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return std::nullopt;
  return stamp_of(facts);
}

// ---- ModelPathPolicy

ModelPathPolicy::ModelPathPolicy(const config::FrontendConfig& config,
                                 const std::vector<config::ModelConfig>& known)
    : config_(config) {
  if (config.model_root) root_ = canonical_path(*config.model_root);
  for (const config::ModelConfig& model : known)
    if (!model.remote) folders_.insert(canonical_path(model.file).parent_path());
}

Result<std::filesystem::path> ModelPathPolicy::admit(const std::filesystem::path& file,
                                                     config::ModelFormat format) const {
  std::filesystem::path found = canonical_path(file);
  if (Status location = check_location(found); !location.ok())
    return location.within(file.string());
  if (Status contents = check_contents(found, format); !contents.ok())
    return contents.within(file.string());
  return found;
}

Status ModelPathPolicy::check_location(const std::filesystem::path& file) const {
  if (config_.model_root) {
    if (!file.empty() && !root_.empty() && lies_below(file, root_)) return {};
    return {StatusCode::invalid, "the file is outside of model_root, " +
                                     config_.model_root->string() +
                                     "; move it there, or add the model to the models file"};
  }
  if (!file.empty() && folders_.contains(file.parent_path())) return {};
  return {StatusCode::invalid, "the file is outside of the folders of the models in " +
                                   config_.models.string() +
                                   "; move it to one of them, add the model to that file, or set "
                                   "\"model_root\" in the frontend's configuration"};
}

Status ModelPathPolicy::check_contents(const std::filesystem::path& file,
                                       config::ModelFormat format) const {
  const FileDescriptor open(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!open.valid()) {
    return {errno == ENOENT ? StatusCode::not_found : StatusCode::invalid,
            "the file cannot be opened: " + std::string(std::strerror(errno))};
  }
  struct stat facts {};
  if (::fstat(open.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return {StatusCode::invalid, "not a regular file"};
  for (const std::filesystem::path& secret : secrets_of(config_)) {
    if (is_same_file(facts, secret))
      return {StatusCode::invalid,
              "the configuration of the frontend names the file, so it is no model's"};
  }
  if (!config_.model_root && (facts.st_mode & kReadableByOthers) == 0) {
    return {StatusCode::invalid,
            "only the owner may read the file, so it may be a secret; run chmod o+r on it, or set "
            "\"model_root\" in the frontend's configuration"};
  }
  return config::check_file_of(format, open.get());
}

// ---- ModelFileReader and ServedFiles

ModelPiece read_piece(const std::string& sha256, const ModelFile& file, std::uint64_t offset,
                      net::BufferPool& buffers) {
  ModelPiece piece;
  piece.sha256 = sha256;
  // O_NONBLOCK: opening a pipe or a device must not block.
  const FileDescriptor open(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!open.valid()) return piece;
  const auto total = static_cast<std::uint64_t>(std::max<std::int64_t>(0, file.stamp.size));
  piece.changed = stamp_of(open.get()) != file.stamp;
  if (piece.changed || offset >= total) return piece;
  Result<MutableBytes> memory =
      buffers.take(static_cast<std::size_t>(std::min(kModelPieceBytes, total - offset)));
  if (!memory.ok()) return piece;
  const ssize_t read = read_at(open.get(), memory.value().view(), offset);
  const bool complete = read == static_cast<ssize_t>(memory.value().size());
  piece.changed = !complete || stamp_of(open.get()) != file.stamp;
  if (piece.changed) return piece;
  piece.data = memory.value().freeze();
  piece.offset = offset;
  piece.total_bytes = total;
  return piece;
}

ModelFileReader::ModelFileReader(net::asio::io_context& io)
    : io_(io), buffers_(std::make_shared<net::BufferPool>(kBuffers)), guard_(kPatience) {
  net::asio::post(thread_, [] { net::name_thread("model-files"); });
}

ModelFileReader::~ModelFileReader() {
  guard_.stop();
  thread_.stop();
  thread_.join();
}

bool ModelFileReader::read(Requester requester, const std::string& sha256, const ModelFile& file,
                           std::uint64_t offset, OnPiece done) {
  std::size_t& pending = pending_[requester];
  if (pending >= kMaxPending) return false;
  ++pending;
  net::asio::post(
      thread_, [this, requester, sha256, file, offset, done = std::move(done)]() mutable {
        Result<ModelPiece> read = guard_.run<ModelPiece>(
            file.path, [sha256, file, offset, buffers = buffers_](ReadProgress&) {
              return Result<ModelPiece>(read_piece(sha256, file, offset, *buffers));
            });
        ModelPiece piece = read.ok() ? std::move(read).value() : ModelPiece{sha256, 0, 0, {}};
        net::asio::post(
            io_, [this, requester, piece = std::move(piece), done = std::move(done)]() mutable {
              if (const auto found = pending_.find(requester); --found->second == 0)
                pending_.erase(found);
              done(std::move(piece));
            });
      });
  return true;
}

ServedFiles::ServedFiles(net::asio::io_context& io, ModelFiles files, Reloadable& catalogue)
    : files_(std::move(files)), catalogue_(catalogue), reader_(io) {}

std::uint64_t ServedFiles::offer(ModelFiles files) {
  offered_.emplace(++last_offer_, std::move(files));
  return last_offer_;
}

void ServedFiles::replace(ModelFiles files) {
  std::unordered_set<std::string_view> overwritten;
  for (const auto& [sha256, file] : files) overwritten.insert(file.path.native());
  earlier_.merge(files_);
  std::erase_if(earlier_, [&](const auto& one) {
    return files.contains(one.first) || overwritten.contains(one.second.path.native());
  });
  files_ = std::move(files);
}

void ServedFiles::forget_unknown(const std::unordered_set<std::string_view>& known) {
  std::erase_if(earlier_, [&known](const auto& one) { return !known.contains(one.first); });
}

const ModelFile* ServedFiles::find(const std::string& sha256) const {
  const auto in = [&sha256](const ModelFiles& files) {
    const auto found = files.find(sha256);
    return found == files.end() ? nullptr : &found->second;
  };
  if (const ModelFile* const file = in(files_)) return file;
  if (const ModelFile* const file = in(earlier_)) return file;
  for (const auto& [offer, files] : offered_) {
    if (const ModelFile* const file = in(files)) return file;
  }
  return nullptr;
}

bool ServedFiles::read(Requester requester, const std::string& sha256, std::uint64_t offset,
                       ModelFileReader::OnPiece done) {
  const ModelFile* const file = find(sha256);
  if (file == nullptr) {
    done(ModelPiece{sha256, 0, 0, {}});
    return true;
  }
  if (offset == 0) spdlog::info("sending {}", file->path.filename().string());
  return reader_.read(requester, sha256, *file, offset,
                      [this, done = std::move(done)](ModelPiece piece) {
                        check(piece);
                        done(std::move(piece));
                      });
}

void ServedFiles::check(const ModelPiece& piece) {
  if (!piece.changed) return;
  const ModelFile* const file = find(piece.sha256);
  spdlog::warn("{} changed after it was hashed; reading it again",
               file == nullptr ? piece.sha256 : file->path.string());
  catalogue_.reload();
}

}  // namespace gpulet::frontend
