// Converts messages (protocol/messages.h) to frames and back. Protobuf stays inside the .cc files.
//
// decode takes a frame's header, its protobuf message and its payload. The payload becomes part of
// the value without a copy. It fails with malformed (not protobuf, a field out of range, an
// unexpected payload) and never throws. The ranges: src/protocol/limits.h. Tensors are not compared
// with a model, and the dimensions of an InferRequest are not checked: admission does both. The
// same holds for the InferRequest in a Forward.
//
// encode REQUIRES a payload below 4 GiB and throws std::length_error otherwise. Durations travel as
// microseconds, rounded up; negative ones become zero. Text is cut to the length that the receiver
// accepts. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/protocol/frame.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::protocol {

[[nodiscard]] OutgoingFrame encode(const ClientMessage& message);
[[nodiscard]] OutgoingFrame encode(const FrontendReply& message);
[[nodiscard]] OutgoingFrame encode(const BackendMessage& message);
[[nodiscard]] OutgoingFrame encode(const BackendCommand& message);
[[nodiscard]] OutgoingFrame encode(const PeerRequest& message);
[[nodiscard]] OutgoingFrame encode(const PeerReply& message);
[[nodiscard]] OutgoingFrame encode(const ProxyCommand& message);
[[nodiscard]] OutgoingFrame encode(const ProxyMessage& message);

// For these eight types of messages. The device keys of a decoded Hello hold its node. A decoded
// Batch has its whole payload as its only input slice.
template <typename Message>
[[nodiscard]] Result<Message> decode(const FrameHeader& header, std::span<const std::byte> message,
                                     Bytes payload = {});

// Gives a message that was decoded without its payload the payload. Fails as decode().
template <typename Message>
[[nodiscard]] Status add_payload(Message& message, Bytes payload);

// Decodes a frame whose message may be needed before its payload has arrived: once, either way. For
// the frames of one connection, one after the other.
template <typename Message>
class FrameDecoder {
 public:
  // The message of a frame whose payload is still to come. Valid until the next call.
  [[nodiscard]] Result<const Message*> announce(const FrameHeader& header,
                                                std::span<const std::byte> message) {
    Result<Message> decoded = decode<Message>(header, message);
    if (!decoded.ok()) return decoded.status();
    announced_ = std::move(decoded).value();
    return &*announced_;
  }

  // The frame as a whole, whether or not it was announced.
  [[nodiscard]] Result<Message> finish(const FrameHeader& header,
                                       std::span<const std::byte> message, Bytes payload) {
    if (!announced_) return decode<Message>(header, message, std::move(payload));
    Message whole = *std::exchange(announced_, std::nullopt);
    if (Status added = add_payload(whole, std::move(payload)); !added.ok()) return added;
    return whole;
  }

 private:
  std::optional<Message> announced_;
};

// Stops protobuf in this process from logging a line for every message with invalid UTF-8, so that
// no peer can fill a log. Such messages are still rejected. Called once, by a daemon's main.
void silence_protobuf();

}  // namespace gpulet::protocol
