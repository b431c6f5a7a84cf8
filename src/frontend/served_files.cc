#include "served_files.h"

#include <spdlog/spdlog.h>

#include <unordered_set>
#include <utility>

namespace gpulet::frontend {

ServedFiles::ServedFiles(net::asio::io_context& io, ModelFiles files, Daemon daemon)
    : files_(std::move(files)), daemon_(std::move(daemon)), pieces_(io) {}

void ServedFiles::replace(ModelFiles files,
                          const std::function<bool(const std::string&)>& still_served) {
  std::unordered_set<std::string> overwritten;
  for (const auto& [sha256, file] : files) overwritten.insert(file.path.native());
  for (const auto& [sha256, file] : files_) {
    if (!overwritten.contains(file.path.native()) && still_served(sha256))
      files.emplace(sha256, file);
  }
  files_ = std::move(files);
}

bool ServedFiles::send(BackendId backend, const std::string& sha256, std::uint64_t offset) {
  const auto file = files_.find(sha256);
  if (file == files_.end()) {
    daemon_.send(backend, serve::ModelPiece{sha256, 0, 0, {}});
    return true;
  }
  if (offset == 0) spdlog::info("sending {} to a backend", file->second.path.filename().string());
  return pieces_.read(
      backend, sha256, file->second, offset,
      [this, backend](serve::ModelPiece piece) { send_piece(backend, std::move(piece)); });
}

void ServedFiles::send_piece(BackendId backend, serve::ModelPiece piece) {
  if (piece.changed) {
    const auto file = files_.find(piece.sha256);
    spdlog::warn("{} changed after it was hashed: it is read again",
                 file == files_.end() ? piece.sha256 : file->second.path.string());
    daemon_.look_again();
  }
  daemon_.send(backend, std::move(piece));
}

}  // namespace gpulet::frontend
