// A model's file as its backend gives it: opened already, so that a proxy needs neither to find it
// nor to be allowed where it lies.
#pragma once

#include <filesystem>
#include <utility>

#include "gpulet/core/status.h"

namespace gpulet::proxy {

class ModelFile {
 public:
  // The next one sent over the socket. Fails with malformed where none was sent, with unavailable
  // where the socket failed.
  [[nodiscard]] static Result<ModelFile> receive(int socket);

  // Names the open file for as long as this lives.
  [[nodiscard]] std::filesystem::path path() const;

  ~ModelFile();
  ModelFile(ModelFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ModelFile& operator=(ModelFile&&) = delete;

 private:
  explicit ModelFile(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace gpulet::proxy
