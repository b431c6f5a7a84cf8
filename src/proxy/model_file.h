// A model's file as its backend gives it: opened already, so that a proxy needs neither to find it
// nor to be allowed where it lies.
#pragma once

#include <filesystem>
#include <utility>

#include "gpulet/core/status.h"
#include "proxy/descriptor.h"

namespace gpulet::proxy {

class ModelFile {
 public:
  // The next one sent over the socket. Fails with malformed where none was sent, with unavailable
  // where the socket failed.
  [[nodiscard]] static Result<ModelFile> receive(int socket);

  // Names the open file for as long as this lives.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  explicit ModelFile(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace gpulet::proxy
