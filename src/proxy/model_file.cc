#include "proxy/model_file.h"

#include <string>

namespace gpulet::proxy {

Result<ModelFile> ModelFile::receive(int socket) {
  // It was sent before the command that tells of it.
  auto received = receive_descriptors(socket, 1, false);
  if (!received.ok()) return received.status().within("no file came with it");
  if (received.value().closed) return Status(StatusCode::malformed, "no file came with it");
  return ModelFile(std::move(received.value().descriptors.front()));
}

std::filesystem::path ModelFile::path() const {
  return "/proc/self/fd/" + std::to_string(file_.number());
}

}  // namespace gpulet::proxy
