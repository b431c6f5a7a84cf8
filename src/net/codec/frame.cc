#include "gpulet/net/codec/frame.h"

#include <algorithm>
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

constexpr std::array<std::string_view, 10> kHttpBegins = {
    "GET ",   "HEAD ",    "POST ",    "PUT ",   "DELETE ",
    "PATCH ", "OPTIONS ", "CONNECT ", "TRACE ", "HTTP/"};

Status over_limit(std::string_view what, std::uint32_t bytes, std::uint32_t limit) {
  return {StatusCode::invalid, "frame: a " + std::string(what) + " of " + std::to_string(bytes) +
                                   " bytes; at most " + std::to_string(limit) +
                                   " are accepted here"};
}

}  // namespace

Dialect dialect_of(std::span<const std::byte> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()),
                              first_bytes.size());
  if (text.starts_with("GPLT")) return Dialect::frames;
  if (text.starts_with("PRI * HTTP/2")) return Dialect::http2;
  for (const std::string_view begins : kHttpBegins) {
    if (text.starts_with(begins)) return Dialect::http;
  }
  // A record of TLS begins with its kind (20 to 24) and the version 3.x.
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(first_bytes[at]); };
  if (first_bytes.size() >= 3 && byte(0) >= 20 && byte(0) <= 24 && byte(1) == 3 && byte(2) <= 4)
    return Dialect::tls;
  // A server of HTTP/2 begins with its settings: length, kind 4, no flags, stream 0.
  constexpr std::size_t kHttp2Head = 9;
  const bool settings = first_bytes.size() >= kHttp2Head && byte(0) == 0 && byte(3) == 4 &&
                        byte(4) == 0 &&
                        std::all_of(first_bytes.begin() + 5, first_bytes.begin() + kHttp2Head,
                                    [](std::byte one) { return one == std::byte{0}; });
  return settings ? Dialect::http2 : Dialect::unknown;
}

Status not_frames(std::span<const std::byte> first_bytes) {
  const Dialect spoken = dialect_of(first_bytes);
  if (spoken == Dialect::tls) {
    return malformed(
        "the peer speaks TLS, and this side does not; set it up on both sides, or on "
        "neither (docs/security.md)");
  }
  if (spoken == Dialect::http || spoken == Dialect::http2) {
    return malformed(std::string("the peer speaks ") +
                     (spoken == Dialect::http ? "HTTP" : "gRPC or HTTP/2") +
                     " where gpulet's frames are expected; check the port: unless the frontend's "
                     "file has others, clients of frames use 7000, backends 7001, HTTP is on 8000 "
                     "and gRPC on 8001");
  }
  return malformed("the peer sends something else than gpulet's frames; check address and port");
}

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
  if (get_uint32(bytes, 0) != kFrameMagic) return not_frames(bytes);
  if (const auto version = std::to_integer<unsigned>(bytes[kVersionAt]); version != kFrameVersion) {
    return malformed("the peer speaks version " + std::to_string(version) +
                     " of the protocol, this side version " + std::to_string(kFrameVersion) +
                     "; install the same release of gpulet on both sides");
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
