// Values of serve/messages.h to frames and back. Protobuf stays inside the .cc files.
//
// decode_* take the frame's header, its protobuf message and its payload, already in memory of its
// own; the payload becomes part of the value without a copy. They fail with malformed (not
// protobuf, an enumeration out of range, a field out of range, a payload where none belongs) and
// never throw. What is out of range: limits.h. Names and numbers of tensors are not compared with
// any model; that is admission's part, and so are the dimensions of an InferRequest.
//
// encode REQUIRES a payload of less than 4 GiB and throws std::length_error otherwise (a bug of the
// caller). Durations travel in microseconds, rounded up; negative ones become zero, and text is cut
// to what the other side accepts. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/codec/frame.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net {

[[nodiscard]] OutgoingFrame encode(const serve::ClientMessage& message);
[[nodiscard]] OutgoingFrame encode(const serve::FrontendReply& message);
[[nodiscard]] OutgoingFrame encode(const serve::BackendMessage& message);
[[nodiscard]] OutgoingFrame encode(const serve::BackendCommand& message);
[[nodiscard]] OutgoingFrame encode(const serve::ProxyCommand& message);
[[nodiscard]] OutgoingFrame encode(const serve::ProxyMessage& message);

[[nodiscard]] Result<serve::ClientMessage> decode_client_message(const FrameHeader& header,
                                                                 std::span<const std::byte> message,
                                                                 Bytes payload);
[[nodiscard]] Result<serve::FrontendReply> decode_frontend_reply(const FrameHeader& header,
                                                                 std::span<const std::byte> message,
                                                                 Bytes payload);
// The devices of a decoded Hello bear its node in their keys.
[[nodiscard]] Result<serve::BackendMessage> decode_backend_message(
    const FrameHeader& header, std::span<const std::byte> message, Bytes payload);
// A decoded Batch has its whole payload as its only input slice.
[[nodiscard]] Result<serve::BackendCommand> decode_backend_command(
    const FrameHeader& header, std::span<const std::byte> message, Bytes payload);
[[nodiscard]] Result<serve::ProxyCommand> decode_proxy_command(const FrameHeader& header,
                                                               std::span<const std::byte> message);
[[nodiscard]] Result<serve::ProxyMessage> decode_proxy_message(const FrameHeader& header,
                                                               std::span<const std::byte> message);

// For a daemon's main. Protobuf writes a line to standard error for every message whose text is not
// UTF-8; from now on it does not in this process, so that no peer can fill a log. Such messages are
// refused as before.
void silence_protobuf();

}  // namespace gpulet::net
