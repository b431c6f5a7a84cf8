// Shared by the frame fuzz targets: reads a stream twice, cut in two ways, and decodes each frame.
// For tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/frame.h"
#include "tests/protocol/frame_bytes.h"

namespace gpulet::protocol::testing {

inline void require(bool condition) {
  if (!condition) std::abort();
}

inline constexpr FrameLimits kFuzzLimits{1U << 16U, 1U << 16U};

// Reads the stream in steps of at most `step` bytes and passes every frame to `take`. True if it is
// well-formed to its end.
template <typename Take>
bool read_stream(std::span<const std::byte> stream, std::size_t step, const Take& take) {
  FrameReader reader(kFuzzLimits);
  for (;;) {
    Result<FrameReader::Event> next = reader.next();
    if (!next.ok()) return false;
    FrameReader::Event& event = next.value();
    if (event.kind == FrameReader::Event::Kind::frame) {
      take(event.header, event.message, event.payload.freeze());
    } else if (event.kind == FrameReader::Event::Kind::payload_wanted) {
      require(event.header.payload_bytes <= kFuzzLimits.max_payload_bytes);
      // Discards some payloads, as receivers do.
      const bool discards = event.header.payload_bytes % 16 == 15;
      require(
          reader.give_payload(discards ? MutableBytes() : memory_for(event.header.payload_bytes))
              .ok());
    } else {
      if (stream.empty()) return !reader.inside_frame();
      std::size_t received = 0;
      for (const std::span<std::byte> space : reader.space()) {
        const std::size_t bytes = std::min({space.size(), step - received, stream.size()});
        if (bytes > 0) std::memcpy(space.data(), stream.data(), bytes);
        stream = stream.subspan(bytes);
        received += bytes;
      }
      reader.received(received);
    }
  }
}

// The first byte selects how the stream is cut.
template <typename Take>
void read_in_two_ways(std::span<const std::byte> data, const Take& take) {
  if (data.empty()) return;
  const std::size_t step = 1 + std::to_integer<std::size_t>(data[0]);
  const std::span<const std::byte> stream = data.subspan(1);
  std::vector<std::byte> seen;
  const bool whole = read_stream(
      stream, stream.size() + 1, [&](const FrameHeader& header, auto message, Bytes payload) {
        seen.insert(seen.end(), message.begin(), message.end());
        seen.insert(seen.end(), payload.view().begin(), payload.view().end());
        take(header, message, std::move(payload));
      });
  std::vector<std::byte> seen_again;
  const bool cut =
      read_stream(stream, step, [&](const FrameHeader&, auto message, const Bytes& payload) {
        seen_again.insert(seen_again.end(), message.begin(), message.end());
        seen_again.insert(seen_again.end(), payload.view().begin(), payload.view().end());
      });
  require(whole == cut && seen == seen_again);
}

// A decoded value encodes and decodes to the same bytes.
template <typename Value, typename Decode>
void require_stable(const Result<Value>& value, const Decode& decode) {
  if (!value.ok()) return;
  const OutgoingFrame first = encode(value.value());
  const WholeFrame whole = take_apart(first);
  const Result<Value> again =
      decode(whole.header, std::span<const std::byte>(whole.message), whole.payload);
  require(again.ok());
  require(bytes_of(first) == bytes_of(encode(again.value())));
}

}  // namespace gpulet::protocol::testing
