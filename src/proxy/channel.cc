#include "proxy/channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/net/codec/codec.h"
#include "gpulet/net/codec/frame.h"

namespace gpulet::proxy {
namespace {

// Commands carry no payload: tensors are in the shared memory.
constexpr net::FrameLimits kCommandLimits{.max_payload_bytes = 0};

Status channel_failure(const char* what, int error) {
  return {StatusCode::unavailable, std::string("control channel: ") + what +
                                       " failed: " + std::generic_category().message(error)};
}

// Fills the buffer or stops at the end of the stream. Returns the bytes read.
Result<std::size_t> read_fully(int fd, std::span<std::byte> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = ::recv(fd, buffer.data() + done, buffer.size() - done, 0);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) break;  // the peer closed with answers unread: gone all the same
      return channel_failure("reading", errno);
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Status truncated() {
  return {StatusCode::malformed, "control channel: closed in the middle of a frame"};
}

}  // namespace

Result<std::optional<serve::ProxyCommand>> read_command(int fd) {
  std::array<std::byte, net::kFrameHeaderBytes> head{};
  const Result<std::size_t> head_bytes = read_fully(fd, head);
  if (!head_bytes.ok()) return head_bytes.status();
  if (head_bytes.value() == 0) return std::optional<serve::ProxyCommand>();
  if (head_bytes.value() < head.size()) return truncated();

  const Result<net::FrameHeader> header = net::decode_frame_header(head, kCommandLimits);
  if (!header.ok()) return header.status().within("control channel");
  std::vector<std::byte> message(header.value().message_bytes);
  const Result<std::size_t> message_bytes = read_fully(fd, message);
  if (!message_bytes.ok()) return message_bytes.status();
  if (message_bytes.value() < message.size()) return truncated();

  Result<serve::ProxyCommand> command = net::decode_proxy_command(header.value(), message);
  if (!command.ok()) return command.status().within("control channel");
  return std::optional<serve::ProxyCommand>(std::move(command).value());
}

Status write_message(int fd, const serve::ProxyMessage& message) {
  const std::string frame = net::encode(message).head;
  std::size_t done = 0;
  while (done < frame.size()) {
    const ssize_t sent = ::send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return channel_failure("writing", errno);
    }
    done += static_cast<std::size_t>(sent);
  }
  return {};
}

}  // namespace gpulet::proxy
