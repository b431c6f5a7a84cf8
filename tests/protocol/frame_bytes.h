// Converts frames to bytes and back. For tests only.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/protocol/frame.h"

namespace gpulet::protocol::testing {

[[nodiscard]] inline std::vector<std::byte> bytes_of(const OutgoingFrame& frame) {
  const std::span<const std::byte> head = std::as_bytes(std::span(frame.head));
  std::vector<std::byte> bytes(head.begin(), head.end());
  for (const Bytes& piece : frame.payload)
    bytes.insert(bytes.end(), piece.view().begin(), piece.view().end());
  return bytes;
}

// The parts of a frame that a decode function takes.
struct WholeFrame {
  FrameHeader header;
  std::vector<std::byte> message;
  Bytes payload;
};

// REQUIRES: a well-formed frame.
[[nodiscard]] inline WholeFrame take_apart(const OutgoingFrame& frame) {
  const std::vector<std::byte> bytes = bytes_of(frame);
  WholeFrame whole;
  whole.header = decode_frame_header(std::span(bytes).first<kFrameHeaderBytes>(), {}).value();
  const auto message = bytes.begin() + kFrameHeaderBytes;
  whole.message.assign(message, message + whole.header.message_bytes);
  whole.payload = Bytes::own({message + whole.header.message_bytes, bytes.end()});
  return whole;
}

[[nodiscard]] inline MutableBytes memory_for(std::size_t bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(bytes);
  const std::span<std::byte> view(*owner);
  return {std::move(owner), view};
}

}  // namespace gpulet::protocol::testing
