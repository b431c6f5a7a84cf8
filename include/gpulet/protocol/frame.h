// Frames: a fixed header, a small protobuf message and raw payload bytes (proto/README.md). No
// length allocates memory before it is checked against the limits. Functions are pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"

namespace gpulet::protocol {

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
  model_piece_request = 19,
  heartbeat = 20,
  draining = 21,
  device_report = 22,
  backend_state = 23,
  superseded = 24,
  moved = 25,
  welcome = 32,
  create_gpulet = 33,
  retire_gpulet = 34,
  batch = 35,
  model_piece = 36,
  assign_gpulet = 37,
  set_cores = 38,
  refused = 39,
  take_leadership = 40,
  set_owner = 41,
  rows = 42,
  load_models = 48,
  run_batch = 49,
  stop_proxy = 50,
  proxy_ready = 51,
  batch_ran = 52,
  proxy_idle = 53,
  peer_hello = 64,
  peer_welcome = 65,
  forward = 66,
  forward_reply = 67,
  cancel_forward = 68,
  served_models = 69,
  change_models = 70,
  change_result = 71,
  catalogue_state = 72,
  catalogue_adopted = 73,
  set_routes = 74,
  owner_report = 75,
  statistics_request = 76,
  statistics_reply = 77,
  rows_wanted = 78,
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

// The protocol of a peer, as its first bytes show it.
enum class Dialect : std::uint8_t { unknown, frames, http, http2, tls };

// `first_bytes`: the first bytes that the peer sent, any number of them.
[[nodiscard]] Dialect dialect_of(std::span<const std::byte> first_bytes);
// The failure (malformed) of a stream without frames: names the peer's protocol and the fix.
[[nodiscard]] Status not_frames(std::span<const std::byte> first_bytes);

// The longest message of that type, which no limit of a connection exceeds: a message is held and
// decoded before its content can be checked.
[[nodiscard]] std::uint32_t most_message_bytes(MessageType type);

// Fails with malformed (magic, version, reserved bits, type) or invalid (over a limit).
[[nodiscard]] Result<FrameHeader> decode_frame_header(
    std::span<const std::byte, kFrameHeaderBytes> bytes, const FrameLimits& limits);

// A frame to be written. The payload is a scatter list and is never copied.
struct OutgoingFrame {
  std::string head;  // frame header and message
  std::vector<Bytes> payload;

  [[nodiscard]] std::size_t byte_size() const;
};

// A frame of that type without message and payload.
[[nodiscard]] OutgoingFrame bare_frame(MessageType type);

// FrameReader: splits a byte stream into frames. It has no socket: the caller receives into
// space(), reports the number of bytes, and calls next() until it returns incomplete.
//
//   loop: receive into space(), received(n)
//         until next() is incomplete: payload_wanted -> give_payload(memory); frame -> use it
//
// Frames pass through one buffer, so that one receive fetches many small ones. Only the part of a
// payload that is already buffered is copied; the rest is received straight into its own memory.
// The buffer grows for a larger message, and only as bytes arrive. One thread at a time.
class FrameReader {
 public:
  static constexpr std::size_t kBufferBytes = 64U << 10U;

  struct Event {
    enum class Kind {
      incomplete,      // receive more bytes
      payload_wanted,  // header and message are complete: call give_payload() before next()
      frame,           // the whole frame is complete
    };
    Kind kind = Kind::incomplete;
    FrameHeader header;
    // Valid until the next call of next(), space() or give_payload().
    std::span<const std::byte> message;
    MutableBytes payload;  // set with `frame`; empty where the frame has none
  };

  explicit FrameReader(const FrameLimits& limits);
  // Replaces FrameLimits::max_message_bytes for frames whose header has not been read yet.
  void limit_messages(std::uint32_t max_bytes) { limits_.max_message_bytes = max_bytes; }

  // The memory to receive into. The first span must be full before the second is used, as one
  // scattered receive does. The second is never empty.
  [[nodiscard]] std::array<std::span<std::byte>, 2> space();
  // REQUIRES: bytes <= the size of both spans.
  void received(std::size_t bytes);

  // Fails as decode_frame_header; the stream is unusable afterwards.
  [[nodiscard]] Result<Event> next();
  // Empty memory: the payload is discarded as it arrives and the frame has none. Fails (internal)
  // if the memory has another size than the payload. REQUIRES: next() returned payload_wanted.
  [[nodiscard]] Status give_payload(MutableBytes memory);
  // Bytes of the payload received so far. Valid between give_payload() and the end of the frame.
  [[nodiscard]] std::size_t payload_received() const { return payload_received_; }

  // The received bytes of a frame whose header is incomplete or was rejected.
  [[nodiscard]] std::span<const std::byte> unread() const {
    return state_ == State::header && !frame_given_
               ? std::span<const std::byte>(buffer_.get() + begin_, buffered())
               : std::span<const std::byte>();
  }
  // True while a frame is partly received.
  [[nodiscard]] bool inside_frame() const;

 private:
  enum class State { header, message, payload_memory, payload };

  [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }
  [[nodiscard]] std::size_t head_bytes() const { return kFrameHeaderBytes + header_.message_bytes; }
  [[nodiscard]] std::span<const std::byte> message() const;
  [[nodiscard]] Event finish_frame();
  void discard(std::size_t bytes);
  void drop_frame();
  void make_room();
  void move_to(std::size_t capacity);

  FrameLimits limits_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t capacity_ = kBufferBytes;
  std::size_t begin_ = 0;  // of the current frame
  // End of the received bytes; while a payload is received, end of the current frame's message.
  std::size_t end_ = 0;
  State state_ = State::header;
  bool frame_given_ = false;  // the last event was a frame; its bytes are still in the buffer
  FrameHeader header_;
  MutableBytes payload_;
  std::size_t payload_received_ = 0;
};

}  // namespace gpulet::protocol
