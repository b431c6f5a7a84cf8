// FrameReader: a stream of bytes, cut anywhere, to frames. No sockets: its caller receives into
// space(), says how much came, and asks next() until that is incomplete.
//
//   loop: receive into space(), received(n)
//         until next() is incomplete: payload_wanted -> give_payload(memory); frame -> use it
//
// Frames go through one buffer, so that many small ones cost one receive. Of a payload only what is
// in the buffer by then is copied; the rest is received straight into the memory given. The buffer
// grows, only as bytes arrive, for a message larger than it. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/codec/frame.h"

namespace gpulet::net {

class FrameReader {
 public:
  static constexpr std::size_t kBufferBytes = 64U << 10U;

  struct Event {
    enum class Kind {
      incomplete,      // more bytes must be received
      payload_wanted,  // header and message are here, the payload is to come: give_payload() before
                       // the next call
      frame,           // all three are here
    };
    Kind kind = Kind::incomplete;
    FrameHeader header;
    std::span<const std::byte>
        message;           // valid until the next call of next(), space() or give_payload()
    MutableBytes payload;  // of a frame; empty where it has none
  };

  explicit FrameReader(const FrameLimits& limits);

  // Where to receive: the first span must be full before a byte of the second is used (one
  // scattered receive does so). The second is never empty.
  [[nodiscard]] std::array<std::span<std::byte>, 2> space();
  // REQUIRES: bytes <= size of what space() gave.
  void received(std::size_t bytes);

  // Fails as decode_frame_header does; the stream is lost from then on.
  [[nodiscard]] Result<Event> next();
  // REQUIRES: next() said payload_wanted. Fails (internal) where the memory is not exactly of the
  // payload's size. Empty memory: the payload is discarded as it arrives, and the frame has none.
  [[nodiscard]] Status give_payload(MutableBytes memory);
  // Of the payload whose memory was given, while its frame is unfinished.
  [[nodiscard]] std::size_t payload_received() const { return payload_received_; }

  // What was received of a frame whose header is not complete, or was refused.
  [[nodiscard]] std::span<const std::byte> unread() const {
    return state_ == State::header && !frame_given_
               ? std::span<const std::byte>(buffer_.get() + begin_, buffered())
               : std::span<const std::byte>();
  }
  // Bytes of an unfinished frame were received.
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
  std::size_t end_ =
      0;  // of what was received; while a payload is received, of the current frame's message
  State state_ = State::header;
  bool frame_given_ = false;  // the last event was a frame, whose bytes are still in the buffer
  FrameHeader header_;
  MutableBytes payload_;
  std::size_t payload_received_ = 0;
};

}  // namespace gpulet::net
