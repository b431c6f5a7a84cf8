// Blocking frames on the proxy's control channel.
#pragma once

#include <optional>

#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::proxy {

// The next command; nothing once the peer has closed the channel between two frames. Fails with
// malformed (not a proxy command, closed within a frame) or unavailable (the channel failed). One
// reading thread at a time.
[[nodiscard]] Result<std::optional<serve::ProxyCommand>> read_command(int fd);

// Fails with unavailable where the peer is gone. One writing thread at a time.
[[nodiscard]] Status write_message(int fd, const serve::ProxyMessage& message);

}  // namespace gpulet::proxy
