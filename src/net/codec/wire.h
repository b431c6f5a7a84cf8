// Parts that the encoders and decoders of all peers share. Private to net/codec; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpulet.pb.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/numerics.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/net/codec/frame.h"
#include "gpulet/serve/messages.h"
#include "net/codec/field_reader.h"

namespace gpulet::net {

// Rounded up, so that a short time does not become none; within what the other side accepts.
[[nodiscard]] std::uint64_t to_microseconds(Duration duration);
void to_wire(const Status& status, wire::Status* to);
void to_wire(const partition::FoundShare& found, wire::FoundShare* to);
void to_wire(const partition::MigInstance& instance, wire::MigInstance* to);
void to_wire(const Numerics& numerics, wire::Numerics* to);
void to_wire(const std::vector<TensorSpec>& specs,
             google::protobuf::RepeatedPtrField<wire::Tensor>* to);

// Protobuf accepts nothing but UTF-8 as text: anything else in it becomes '?', and a text longer
// than max_bytes is cut between two characters. For text that comes from elsewhere: error messages.
[[nodiscard]] std::string to_valid_text(const std::string& text, std::size_t max_bytes);

// Messages of the hot path keep their memory from one to the next. Large ones do not, as they would
// keep theirs for good.
inline constexpr std::size_t kReusedMessageBytes = 4096;

template <typename Message>
[[nodiscard]] Message& reused() {
  thread_local Message message;
  message.Clear();
  return message;
}

[[nodiscard]] OutgoingFrame make_frame(MessageType type,
                                       const google::protobuf::MessageLite& message,
                                       std::vector<Bytes> payload);

void to_wire(const serve::PlanPart& part, wire::PlanPart* to);
[[nodiscard]] serve::PlanPart read_part(const wire::PlanPart& message, FieldReader& fields);

[[nodiscard]] Status not_expected(MessageType type, std::string_view from);
[[nodiscard]] Status parse(MessageType type, std::span<const std::byte> bytes,
                           google::protobuf::MessageLite& message);

// Parses a Wire message and hands it, with a FieldReader, to `read`, which returns the value. The
// value, or the first failure.
template <typename Value, typename Wire, typename Read>
[[nodiscard]] Result<Value> decode_from(Wire& message, MessageType type,
                                        std::span<const std::byte> bytes, const Read& read) {
  if (Status status = parse(type, bytes, message); !status.ok()) return status;
  FieldReader fields(type);
  Result<Value> value(read(message, fields));
  if (!fields.ok()) return fields.failure();
  return value;
}

template <typename Value, typename Wire, typename Read>
[[nodiscard]] Result<Value> decode_as(MessageType type, std::span<const std::byte> bytes,
                                      const Read& read) {
  Wire message;
  return decode_from<Value>(message, type, bytes, read);
}

// The same for messages of the hot path.
template <typename Value, typename Wire, typename Read>
[[nodiscard]] Result<Value> decode_often(MessageType type, std::span<const std::byte> bytes,
                                         const Read& read) {
  if (bytes.size() > kReusedMessageBytes) return decode_as<Value, Wire>(type, bytes, read);
  return decode_from<Value>(reused<Wire>(), type, bytes, read);
}

}  // namespace gpulet::net
