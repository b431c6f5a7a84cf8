// ModelSender: streams model files to one backend, piece by piece, between its batches.
//
// Files are mapped, not read: a piece is a view of the page cache that the socket takes from. So
// much is queued at a time as keeps the connection busy and no more, so that a batch never waits
// behind a whole model.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/connection.h"

namespace gpulet::frontend {

// The whole file as bytes, mapped read-only. Fails (not_found) naming the file.
[[nodiscard]] Result<Bytes> map_file(const std::filesystem::path& file);

class ModelSender {
 public:
  // Sends the file under that hash; a file that cannot be mapped is answered with "do not have it".
  void add(const std::string& sha256, const std::filesystem::path& file);
  void add_missing(const std::string& sha256);

  // Queues as many pieces as the connection should have. Call it after add() and while busy().
  void pump(net::Connection& connection);
  [[nodiscard]] bool busy() const { return !transfers_.empty(); }

 private:
  struct Transfer {
    std::string sha256;
    Bytes file;  // empty: the frontend does not have it
    std::uint64_t offset = 0;
  };
  std::deque<Transfer> transfers_;
};

}  // namespace gpulet::frontend
