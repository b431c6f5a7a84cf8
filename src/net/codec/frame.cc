#include "gpulet/net/codec/frame.h"

#include <array>
#include <string>

namespace gpulet::net {
namespace {

// Offsets of the header's fields, all little-endian: magic 0, version 4, type 5, reserved 6,
// lengths 8 and 12.
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kTypeAt = 5;
constexpr std::size_t kReservedAt = 6;
constexpr std::size_t kMessageBytesAt = 8;
constexpr std::size_t kPayloadBytesAt = 12;

void put_uint32(std::span<std::byte, kFrameHeaderBytes> bytes, std::size_t at,
                std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t get_uint32(std::span<const std::byte, kFrameHeaderBytes> bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::to_integer<std::uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

Status malformed(std::string message) {
  return {StatusCode::malformed, "frame: " + std::move(message)};
}

Status over_limit(std::string_view what, std::uint32_t bytes, std::uint32_t limit) {
  return {StatusCode::invalid, "frame: a " + std::string(what) + " of " + std::to_string(bytes) +
                                   " bytes; at most " + std::to_string(limit) +
                                   " are accepted here"};
}

}  // namespace

std::string_view to_string(MessageType type) {
  switch (type) {
    case MessageType::infer_request:
      return "infer_request";
    case MessageType::infer_reply:
      return "infer_reply";
    case MessageType::models_request:
      return "models_request";
    case MessageType::models_reply:
      return "models_reply";
    case MessageType::status_request:
      return "status_request";
    case MessageType::status_reply:
      return "status_reply";
    case MessageType::models_change:
      return "models_change";
    case MessageType::models_changed:
      return "models_changed";
    case MessageType::authenticate:
      return "authenticate";
    case MessageType::hello:
      return "hello";
    case MessageType::gpulet_report:
      return "gpulet_report";
    case MessageType::batch_result:
      return "batch_result";
    case MessageType::model_wanted:
      return "model_wanted";
    case MessageType::heartbeat:
      return "heartbeat";
    case MessageType::leaving:
      return "leaving";
    case MessageType::device_report:
      return "device_report";
    case MessageType::welcome:
      return "welcome";
    case MessageType::create_gpulet:
      return "create_gpulet";
    case MessageType::retire_gpulet:
      return "retire_gpulet";
    case MessageType::batch:
      return "batch";
    case MessageType::model_piece:
      return "model_piece";
    case MessageType::assign_gpulet:
      return "assign_gpulet";
    case MessageType::set_cores:
      return "set_cores";
    case MessageType::refused:
      return "refused";
    case MessageType::load_models:
      return "load_models";
    case MessageType::run_batch:
      return "run_batch";
    case MessageType::stop_proxy:
      return "stop_proxy";
    case MessageType::proxy_ready:
      return "proxy_ready";
    case MessageType::batch_ran:
      return "batch_ran";
    case MessageType::proxy_idle:
      return "proxy_idle";
  }
  return "";
}

std::array<std::byte, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  put_uint32(bytes, 0, kFrameMagic);
  bytes[kVersionAt] = static_cast<std::byte>(kFrameVersion);
  bytes[kTypeAt] = static_cast<std::byte>(header.type);
  put_uint32(bytes, kMessageBytesAt, header.message_bytes);
  put_uint32(bytes, kPayloadBytesAt, header.payload_bytes);
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                        const FrameLimits& limits) {
  if (const std::uint32_t magic = get_uint32(bytes, 0); magic != kFrameMagic) {
    return malformed("it must start with GPLT, the number " + std::to_string(kFrameMagic) +
                     " in little-endian order; was " + std::to_string(magic));
  }
  if (const auto version = std::to_integer<unsigned>(bytes[kVersionAt]); version != kFrameVersion) {
    return malformed("version " + std::to_string(version) + " is not spoken here; only version " +
                     std::to_string(kFrameVersion) + " is");
  }
  const auto type = static_cast<MessageType>(bytes[kTypeAt]);
  if (to_string(type).empty()) {
    return malformed("no message has type " + std::to_string(static_cast<unsigned>(type)));
  }
  if (bytes[kReservedAt] != std::byte{0} || bytes[kReservedAt + 1] != std::byte{0}) {
    return malformed("the reserved bytes 6 and 7 must be zero");
  }
  const FrameHeader header{type, get_uint32(bytes, kMessageBytesAt),
                           get_uint32(bytes, kPayloadBytesAt)};
  if (header.message_bytes > limits.max_message_bytes) {
    return over_limit("message", header.message_bytes, limits.max_message_bytes);
  }
  if (header.payload_bytes > limits.max_payload_bytes) {
    return over_limit("payload", header.payload_bytes, limits.max_payload_bytes);
  }
  return header;
}

std::size_t OutgoingFrame::byte_size() const {
  std::size_t bytes = head.size();
  for (const Bytes& piece : payload) bytes += piece.size();
  return bytes;
}

}  // namespace gpulet::net
