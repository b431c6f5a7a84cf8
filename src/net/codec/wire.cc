#include "net/codec/wire.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstring>

#include "gpulet/net/codec/codec.h"
#include "gpulet/net/codec/limits.h"

namespace gpulet::net {
namespace {

// Length of the well-formed UTF-8 character at the front of `text`, or 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte_at = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte_at(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned char least_second =
      0x80;  // some second bytes would make overlong forms, surrogates or numbers too large
  unsigned char largest_second = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (first == 0xe0) least_second = 0xa0;
  if (first == 0xed) largest_second = 0x9f;
  if (first == 0xf0) least_second = 0x90;
  if (first == 0xf4) largest_second = 0x8f;
  if (length == 0 || text.size() < length) return 0;
  if (byte_at(1) < least_second || byte_at(1) > largest_second) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte_at(i) < 0x80 || byte_at(i) > 0xbf) return 0;
  }
  return length;
}

std::uint32_t checked_length(std::size_t bytes, std::string_view what) {
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw std::length_error("a frame's " + std::string(what) + " of " + std::to_string(bytes) +
                            " bytes does not fit its length field");
  }
  return static_cast<std::uint32_t>(bytes);
}

}  // namespace

std::uint64_t to_microseconds(Duration duration) {
  const Duration bounded = std::clamp(duration, Duration::zero(), kMaxDuration);
  return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::microseconds>(bounded).count());
}

std::string to_valid_text(const std::string& text, std::size_t max_bytes) {
  std::string valid;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t length = character_bytes(rest);
    const std::string_view character = length > 0 ? rest.substr(0, length) : std::string_view("?");
    if (valid.size() + character.size() > max_bytes) break;
    valid += character;
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

void to_wire(const Numerics& numerics, wire::Numerics* to) {
  to->set_precision(static_cast<std::uint32_t>(numerics.precision));
  to->set_channels_last(numerics.channels_last);
  to->set_largest_error(numerics.largest_error);
}

void to_wire(const partition::MigInstance& instance, wire::MigInstance* to) {
  to->set_slices(instance.slices);
  to->set_start(instance.start);
}

void to_wire(const partition::FoundShare& found, wire::FoundShare* to) {
  to->set_held(found.held);
  to->set_sms(found.sms);
  to->set_device_sms(found.device_sms);
}

void to_wire(const Status& status, wire::Status* to) {
  if (status.ok()) return;
  to->set_code(static_cast<std::uint32_t>(status.code()));
  to->set_message(to_valid_text(status.message(), kMaxStatusMessageBytes));
}

void to_wire(const std::vector<TensorSpec>& specs,
             google::protobuf::RepeatedPtrField<wire::Tensor>* to) {
  for (const TensorSpec& spec : specs) {
    wire::Tensor* const tensor = to->Add();
    tensor->set_name(spec.name);
    tensor->set_type(static_cast<std::uint32_t>(spec.type));
    tensor->mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  }
}

OutgoingFrame make_frame(MessageType type, const google::protobuf::MessageLite& message,
                         std::vector<Bytes> payload) {
  std::size_t payload_bytes = 0;
  for (const Bytes& piece : payload) payload_bytes += piece.size();
  const std::size_t message_bytes = message.ByteSizeLong();
  const std::array<std::byte, kFrameHeaderBytes> header = encode_frame_header(
      {type, checked_length(message_bytes, "message"), checked_length(payload_bytes, "payload")});

  OutgoingFrame frame;
  frame.head.resize(kFrameHeaderBytes + message_bytes);
  std::memcpy(frame.head.data(), header.data(), header.size());
  message.SerializeWithCachedSizesToArray(
      reinterpret_cast<std::uint8_t*>(frame.head.data() + kFrameHeaderBytes));
  frame.payload = std::move(payload);
  return frame;
}

Status not_expected(MessageType type, std::string_view from) {
  return {StatusCode::malformed,
          "a " + std::string(to_string(type)) + " is nothing that " + std::string(from) + " sends"};
}

Status parse(MessageType type, std::span<const std::byte> bytes,
             google::protobuf::MessageLite& message) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return {StatusCode::malformed, std::string(to_string(type)) + ": its " +
                                       std::to_string(bytes.size()) +
                                       " bytes are not that protobuf message (proto/gpulet.proto)"};
  }
  return {};
}

void silence_protobuf() { google::protobuf::SetLogHandler(nullptr); }

}  // namespace gpulet::net
