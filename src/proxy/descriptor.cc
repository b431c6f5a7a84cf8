#include "proxy/descriptor.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace gpulet::proxy {
namespace {

using Control = std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))>;

// Each of them, so that none stays open whatever becomes of the message.
std::vector<Descriptor> take_all(msghdr& message) {
  std::vector<Descriptor> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + at, sizeof number);
      taken.emplace_back(number);
    }
  }
  return taken;
}

}  // namespace

Result<ReceivedDescriptors> receive_descriptors(int socket, std::size_t count, bool waits) {
  std::array<char, 2> text{};  // a byte more than there may be
  iovec space{text.data(), text.size()};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &space;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t bytes = -1;
  do {
    bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno == ECONNRESET) return ReceivedDescriptors{.closed = true};
  if (bytes < 0) {
    return Status(errno == EAGAIN ? StatusCode::malformed : StatusCode::unavailable,
                  std::generic_category().message(errno));
  }
  auto descriptors = take_all(message);
  if (bytes == 0 && descriptors.empty()) return ReceivedDescriptors{.closed = true};
  const bool cut = (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
  if (bytes != 1 || cut || descriptors.size() != count) {
    return Status(StatusCode::malformed, "a message of " + std::to_string(bytes) + " bytes and " +
                                             std::to_string(descriptors.size()) +
                                             (cut ? " or more" : "") +
                                             " descriptors; needs 1 and " + std::to_string(count));
  }
  return ReceivedDescriptors{.closed = false, .descriptors = std::move(descriptors)};
}

}  // namespace gpulet::proxy
