// Sends file descriptors as a backend does.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace gpulet::proxy {

// False if sending fails. At most eight descriptors.
inline bool send_descriptors(int socket, const std::vector<int>& descriptors,
                             std::string text = std::string(1, '\0')) {
  constexpr std::size_t kMaxDescriptorsSent = 8;
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxDescriptorsSent * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), descriptors.data(), bytes);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

}  // namespace gpulet::proxy
