#include "model_piece.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "file_look.h"

namespace gpulet::frontend {
namespace {

// What backends have not taken yet is bounded by their connections.
constexpr net::BufferPoolOptions kBuffers{
    .max_idle_bytes = 16U << 20U, .max_used_bytes = std::numeric_limits<std::size_t>::max()};

class FileToSend {
 public:
  // Opening a pipe or a device does not wait.
  explicit FileToSend(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileToSend() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileToSend(const FileToSend&) = delete;
  FileToSend& operator=(const FileToSend&) = delete;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] bool looks_like(const FileLook& look) const {
    return look_at(descriptor_) == std::optional(look);
  }
  // False where it ends too early, or cannot be read.
  [[nodiscard]] bool read(std::span<std::byte> into, std::uint64_t offset) const {
    while (!into.empty()) {
      const ssize_t got =
          ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return true;
  }

 private:
  int descriptor_;
};

}  // namespace

serve::ModelPiece read_piece(const std::string& sha256, const ModelFile& file, std::uint64_t offset,
                             net::BufferPool& buffers) {
  serve::ModelPiece piece;
  piece.sha256 = sha256;
  const FileToSend open(file.path);
  if (!open.is_open()) return piece;
  const auto total = static_cast<std::uint64_t>(std::max<std::int64_t>(0, file.look.size));
  piece.changed = !open.looks_like(file.look);
  if (piece.changed || offset >= total) return piece;
  Result<MutableBytes> memory =
      buffers.take(static_cast<std::size_t>(std::min(serve::kModelPieceBytes, total - offset)));
  if (!memory.ok()) return piece;
  const bool whole = open.read(memory.value().view(), offset);
  piece.changed = !whole || !open.looks_like(file.look);
  if (piece.changed) return piece;
  piece.data = memory.value().freeze();
  piece.offset = offset;
  piece.total_bytes = total;
  return piece;
}

ModelPieces::ModelPieces(net::asio::io_context& io) : io_(io), buffers_(kBuffers) {}

ModelPieces::~ModelPieces() {
  thread_.stop();
  thread_.join();
}

bool ModelPieces::read(BackendId backend, const std::string& sha256, const ModelFile& file,
                       std::uint64_t offset, OnPiece done) {
  std::size_t& waiting = waiting_[backend];
  if (waiting >= kMostWaiting) return false;
  ++waiting;
  net::asio::post(thread_, [this, backend, sha256, file, offset, done = std::move(done)]() mutable {
    serve::ModelPiece piece = read_piece(sha256, file, offset, buffers_);
    net::asio::post(io_,
                    [this, backend, piece = std::move(piece), done = std::move(done)]() mutable {
                      if (const auto found = waiting_.find(backend); --found->second == 0)
                        waiting_.erase(found);
                      done(std::move(piece));
                    });
  });
  return true;
}

}  // namespace gpulet::frontend
