// Pieces of model files, as backends ask for them.
//
// A file is read, never mapped: whoever rewrites or truncates it in place while it is sent would
// end the process that has it mapped.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "gpulet/core/ids.h"
#include "gpulet/frontend/model_file.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/serve/messages.h"

namespace gpulet::frontend {

// The piece that begins at `offset`. It has no data where the file cannot be read or ends before;
// `changed` says that the file is no longer the one that was hashed. Blocking file I/O.
[[nodiscard]] serve::ModelPiece read_piece(const std::string& sha256, const ModelFile& file,
                                           std::uint64_t offset, net::BufferPool& buffers);

// Reads pieces on a thread of its own, in the order in which they were asked for. Calls and
// callbacks happen on the io_context's thread; the io_context must not run any more when this goes.
class ModelPieces {
 public:
  using OnPiece = std::function<void(serve::ModelPiece)>;
  // A well-behaved backend asks for 32 at most.
  static constexpr std::size_t kMostWaiting = 64;

  explicit ModelPieces(net::asio::io_context& io);
  ~ModelPieces();
  ModelPieces(const ModelPieces&) = delete;
  ModelPieces& operator=(const ModelPieces&) = delete;

  // Returns false, and does nothing, where kMostWaiting pieces wait for that backend already.
  [[nodiscard]] bool read(BackendId backend, const std::string& sha256, const ModelFile& file,
                          std::uint64_t offset, OnPiece done);

 private:
  net::asio::io_context& io_;
  net::BufferPool buffers_;
  std::map<BackendId, std::size_t> waiting_;
  boost::asio::thread_pool thread_{1};  // last: joined before anything it uses goes
};

}  // namespace gpulet::frontend
