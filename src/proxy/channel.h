// Blocking I/O on the sockets of a proxy: frames on the control channel, and messages that carry
// open files.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::proxy {

// Reads the next command; empty if the peer has closed the channel between two frames. Fails with
// malformed (not a proxy command, or closed within a frame) or unavailable (the channel failed).
// One reading thread at a time.
[[nodiscard]] Result<std::optional<ProxyCommand>> read_command(int fd);

// Fails with unavailable if the peer is gone. One writing thread at a time.
[[nodiscard]] Status write_message(int fd, const ProxyMessage& message);

inline constexpr std::size_t kMaxDescriptors = 3;  // of one message

struct ReceivedDescriptors {
  bool closed = false;  // the peer closed its end or sent an empty message
  std::vector<FileDescriptor> descriptors{};
};

// Receives the next message of a Unix socket. It must have one byte and `count` descriptors, at
// most kMaxDescriptors. Waits for a message only if `waits`. Fails with malformed (there is no
// message, or it has other contents; its descriptors are closed) or unavailable (the socket
// failed).
[[nodiscard]] Result<ReceivedDescriptors> receive_descriptors(int socket, std::size_t count,
                                                              bool waits);

}  // namespace gpulet::proxy
