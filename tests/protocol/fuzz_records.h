// The input of targets that fuzz sequences of messages: records of control bytes and one message
// each. Lengths are cut to the remaining bytes, so that a mutated byte changes one record only. For
// tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/protocol/frame.h"

namespace gpulet::protocol::testing {

struct FuzzRecord {
  std::uint8_t control = 0;  // actions before the message
  std::uint8_t aim = 0;      // fields of the message to correct
  FrameHeader header;
  std::span<const std::byte> message;
  Bytes payload;
};

// control, aim, type, length of the message (two bytes, little-endian), of the payload, both.
inline constexpr std::size_t kFuzzRecordHead = 6;

// Removes the first record from the bytes; empty at their end.
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

// Encodes a record, for seeds. REQUIRES: a message below 64 KB.
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

}  // namespace gpulet::protocol::testing
