// ServedFiles: the files of the models that are served, and how backends get them, piece by piece.
// Single-strand type, on the io_context's thread, which must not run any more when this goes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gpulet/core/ids.h"
#include "gpulet/frontend/model_file.h"
#include "gpulet/net/asio.h"
#include "model_piece.h"

namespace gpulet::frontend {

class ServedFiles {
 public:
  struct Daemon {
    std::function<void(BackendId, serve::ModelPiece)> send;
    std::function<void()> look_again;  // a file is not the one that was hashed
  };

  ServedFiles(net::asio::io_context& io, ModelFiles files, Daemon daemon);

  // Those that are served from now on. Files of other versions stay at hand while they are not
  // overwritten and `still_served` says so of their SHA-256.
  void replace(ModelFiles files, const std::function<bool(const std::string&)>& still_served);

  // Sends the piece that begins there, later, or one without data where there is no such file.
  // Returns false, and does nothing, where too many pieces wait for the backend already.
  [[nodiscard]] bool send(BackendId backend, const std::string& sha256, std::uint64_t offset);

 private:
  void send_piece(BackendId backend, serve::ModelPiece piece);

  ModelFiles files_;
  Daemon daemon_;
  ModelPieces pieces_;
};

}  // namespace gpulet::frontend
