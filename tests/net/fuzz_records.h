// What the targets that fuzz sequences of messages read: records of a few bytes of control and one
// message each. Lengths are cut to what is there, so that a changed byte changes one record and not
// the meaning of all that follow. For tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/net/codec/frame.h"

namespace gpulet::net::testing {

struct FuzzRecord {
  std::uint8_t control = 0;  // what happens before
  std::uint8_t aim = 0;      // what in the message is put right
  FrameHeader header;
  std::span<const std::byte> message;
  Bytes payload;
};

// control, aim, type, length of the message (two bytes, little-endian), of the payload, both.
inline constexpr std::size_t kFuzzRecordHead = 6;

// Takes the first record off the bytes; nothing once they are used up.
inline std::optional<FuzzRecord> next_record(std::span<const std::byte>& bytes) {
  if (bytes.size() < kFuzzRecordHead) return std::nullopt;
  const auto at = [&bytes](std::size_t index) {
    return std::to_integer<std::uint8_t>(bytes[index]);
  };
  FuzzRecord record;
  record.control = at(0);
  record.aim = at(1);
  record.header.type = static_cast<MessageType>(at(2));
  const std::size_t message = at(3) + 256U * at(4);
  const std::size_t payload = at(5);
  bytes = bytes.subspan(kFuzzRecordHead);
  record.message = bytes.first(std::min(message, bytes.size()));
  bytes = bytes.subspan(record.message.size());
  const auto rest = bytes.first(std::min(payload, bytes.size()));
  bytes = bytes.subspan(rest.size());
  record.payload = Bytes::own(std::vector<std::byte>(rest.begin(), rest.end()));
  record.header.message_bytes = static_cast<std::uint32_t>(record.message.size());
  record.header.payload_bytes = static_cast<std::uint32_t>(rest.size());
  return record;
}

// The other way, for seeds. REQUIRES: the frame's message is shorter than 64 KB.
inline std::vector<std::byte> record_of(std::uint8_t control, std::uint8_t aim,
                                        const OutgoingFrame& frame) {
  const std::span<const std::byte> head = std::as_bytes(std::span(frame.head));
  const FrameHeader header =
      decode_frame_header(head.first<kFrameHeaderBytes>(), FrameLimits()).value();
  std::vector<std::byte> payload;
  for (const Bytes& piece : frame.payload)
    payload.insert(payload.end(), piece.view().begin(), piece.view().end());
  payload.resize(std::min<std::size_t>(payload.size(), 255));
  std::vector<std::byte> bytes{
      std::byte{control},
      std::byte{aim},
      static_cast<std::byte>(header.type),
      static_cast<std::byte>(header.message_bytes & 255U),
      static_cast<std::byte>(header.message_bytes >> 8U),
      static_cast<std::byte>(payload.size()),
  };
  const auto message = head.subspan(kFrameHeaderBytes);
  bytes.insert(bytes.end(), message.begin(), message.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace gpulet::net::testing
