#include "proxy/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/frame.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::proxy {
namespace {

// Commands carry no payload: tensors are in the shared memory.
constexpr protocol::FrameLimits kCommandLimits{.max_payload_bytes = 0};

constexpr const char* kTruncated = "control channel: closed in the middle of a frame";

Status channel_failure(const char* what, int error) {
  return {StatusCode::unavailable, fmt::format("control channel: {} failed: {}", what,
                                               std::generic_category().message(error))};
}

// Fills the buffer. False if the stream ends before its first byte.
Result<bool> read_fully(int fd, std::span<std::byte> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = ::recv(fd, buffer.data() + done, buffer.size() - done, 0);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) break;  // the peer closed with unread answers
      return channel_failure("reading", errno);
    }
    done += static_cast<std::size_t>(got);
  }
  if (done > 0 && done < buffer.size()) return Status(StatusCode::malformed, kTruncated);
  return done == buffer.size();
}

}  // namespace

Result<std::optional<ProxyCommand>> read_command(int fd) {
  std::array<std::byte, protocol::kFrameHeaderBytes> head{};
  GPULET_TRY(const bool has_head, read_fully(fd, head));
  if (!has_head) return std::optional<ProxyCommand>();

  const Result<protocol::FrameHeader> header = protocol::decode_frame_header(head, kCommandLimits);
  if (!header.ok()) return header.status().within("control channel");
  std::vector<std::byte> message(header.value().message_bytes);
  GPULET_TRY(const bool has_message, read_fully(fd, message));
  if (!has_message) return Status(StatusCode::malformed, kTruncated);

  Result<ProxyCommand> command = protocol::decode<ProxyCommand>(header.value(), message);
  if (!command.ok()) return command.status().within("control channel");
  return std::optional<ProxyCommand>(std::move(command).value());
}

Status write_message(int fd, const ProxyMessage& message) {
  const std::string frame = protocol::encode(message).head;
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

// ---- descriptors

namespace {

using Control = std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))>;

// Takes all descriptors of a message, so that none stays open if the message is rejected.
std::vector<FileDescriptor> take_all(msghdr& message) {
  std::vector<FileDescriptor> taken;
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
  std::array<char, 2> text{};  // one byte more than allowed
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
    return Status(StatusCode::malformed,
                  fmt::format("the message has {} bytes and {}{} descriptors; must have 1 and {}",
                              bytes, descriptors.size(), cut ? " or more" : "", count));
  }
  return ReceivedDescriptors{.closed = false, .descriptors = std::move(descriptors)};
}

}  // namespace gpulet::proxy
