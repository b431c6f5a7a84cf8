#include "proxy/model_file.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <system_error>

namespace gpulet::proxy {

Result<ModelFile> ModelFile::receive(int socket) {
  int descriptor = -1;
  char text = 0;
  iovec space{&text, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof descriptor)> control{};
  msghdr message{};
  message.msg_iov = &space;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  // It was sent before the command that tells of it.
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) {
    return Status(errno == EAGAIN ? StatusCode::malformed : StatusCode::unavailable,
                  "no file came with it: " + std::generic_category().message(errno));
  }
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS ||
      rights->cmsg_len != CMSG_LEN(sizeof descriptor)) {
    return Status(StatusCode::malformed, "no file came with it");
  }
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  return ModelFile(descriptor);
}

std::filesystem::path ModelFile::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

ModelFile::~ModelFile() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace gpulet::proxy
