// The frame: a fixed header, a small protobuf message, raw payload bytes. Format and limits:
// proto/README.md. Pure functions over bytes; any thread. Nothing is allocated from a length that
// was not checked against the limits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"

namespace gpulet::net {

inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::uint32_t kFrameMagic = 0x544c5047;  // "GPLT" in little-endian order
inline constexpr std::uint8_t kFrameVersion = 1;

enum class MessageType : std::uint8_t {
  infer_request = 1,
  infer_reply = 2,
  models_request = 3,
  models_reply = 4,
  status_request = 5,
  status_reply = 6,
  models_change = 7,
  models_changed = 8,
  authenticate = 9,
  hello = 16,
  gpulet_report = 17,
  batch_result = 18,
  model_wanted = 19,
  heartbeat = 20,
  leaving = 21,
  device_report = 22,
  welcome = 32,
  create_gpulet = 33,
  retire_gpulet = 34,
  batch = 35,
  model_piece = 36,
  assign_gpulet = 37,
  set_cores = 38,
  refused = 39,
  load_models = 48,
  run_batch = 49,
  stop_proxy = 50,
  proxy_ready = 51,
  batch_ran = 52,
  proxy_idle = 53,
};

// The name as written above: "infer_request", ...
[[nodiscard]] std::string_view to_string(MessageType type);

struct FrameHeader {
  MessageType type{};
  std::uint32_t message_bytes = 0;
  std::uint32_t payload_bytes = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

struct FrameLimits {
  std::uint32_t max_message_bytes = 1U << 20U;
  std::uint32_t max_payload_bytes = 256U << 20U;
};

[[nodiscard]] std::array<std::byte, kFrameHeaderBytes> encode_frame_header(
    const FrameHeader& header);

// What a peer speaks, as far as its first bytes tell.
enum class Dialect : std::uint8_t { unknown, frames, http, http2, tls };

// `first_bytes`: the beginning of what the peer sent, of any length.
[[nodiscard]] Dialect dialect_of(std::span<const std::byte> first_bytes);
// Why bytes that begin so are no frame, and what to do about it (malformed).
[[nodiscard]] Status not_frames(std::span<const std::byte> first_bytes);

// Fails with malformed (magic, version, reserved bits, unknown type) or invalid (over a limit);
// names the value.
[[nodiscard]] Result<FrameHeader> decode_frame_header(
    std::span<const std::byte, kFrameHeaderBytes> bytes, const FrameLimits& limits);

// A frame ready to be written: header and message in one string, payload as a scatter list that is
// never copied.
struct OutgoingFrame {
  std::string head;  // frame header and message
  std::vector<Bytes> payload;

  [[nodiscard]] std::size_t byte_size() const;
};

}  // namespace gpulet::net
