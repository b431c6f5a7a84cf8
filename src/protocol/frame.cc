#include "gpulet/protocol/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace gpulet::protocol {
namespace {

// Offsets of the header's fields, all little-endian; the magic is at 0.
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

template <typename... Names>
constexpr std::array<std::string_view, sizeof...(Names)> array_of(Names... names) {
  return {names...};
}

// By number; empty for numbers that are not in use.
constexpr auto kTypeNames = array_of(
    "", "infer_request", "infer_reply", "models_request", "models_reply", "status_request",
    "status_reply", "models_change", "models_changed", "authenticate", "", "", "", "", "", "",
    "hello", "gpulet_report", "batch_result", "model_piece_request", "heartbeat", "draining",
    "device_report", "backend_state", "superseded", "moved", "", "", "", "", "", "", "welcome",
    "create_gpulet", "retire_gpulet", "batch", "model_piece", "assign_gpulet", "set_cores",
    "refused", "take_leadership", "set_owner", "rows", "", "", "", "", "", "load_models",
    "run_batch", "stop_proxy", "proxy_ready", "batch_ran", "proxy_idle", "", "", "", "", "", "", "",
    "", "", "", "peer_hello", "peer_welcome", "forward", "forward_reply", "cancel_forward",
    "served_models", "change_models", "change_result", "catalogue_state", "catalogue_adopted",
    "set_routes", "owner_report", "statistics_request", "statistics_reply", "rows_wanted");
static_assert(kTypeNames[static_cast<std::size_t>(MessageType::proxy_idle)] == "proxy_idle");
static_assert(kTypeNames[static_cast<std::size_t>(MessageType::rows_wanted)] == "rows_wanted");

Status over_limit(std::string_view what, std::uint32_t bytes, std::uint32_t limit) {
  return {StatusCode::invalid,
          fmt::format("frame: a {} of {} bytes exceeds the limit of {}", what, bytes, limit)};
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
  // A TLS record starts with its type (20 to 24) and version 3.x.
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(first_bytes[at]); };
  if (first_bytes.size() >= 3 && byte(0) >= 20 && byte(0) <= 24 && byte(1) == 3 && byte(2) <= 4)
    return Dialect::tls;
  // An HTTP/2 server starts with a SETTINGS frame: length, type 4, no flags, stream 0.
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
        "the peer uses TLS and this side does not; configure TLS on both sides or on neither "
        "(docs/security.md)");
  }
  if (spoken == Dialect::http || spoken == Dialect::http2) {
    return malformed(fmt::format(
        "the peer speaks {} on a port for gpulet's stream protocol; check the port (defaults: "
        "clients 7000, backends 7001, HTTP 8000, gRPC 8001)",
        spoken == Dialect::http ? "HTTP" : "gRPC or HTTP/2"));
  }
  return malformed("the peer does not speak gpulet's stream protocol; check address and port");
}

std::string_view to_string(MessageType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kTypeNames.size() ? kTypeNames[number] : std::string_view();
}

std::uint32_t most_message_bytes(MessageType type) {
  constexpr std::uint32_t kSmall = 4U << 10U;     // some names and numbers
  constexpr std::uint32_t kNames = 64U << 10U;    // a token, a path, or the tensors of a request
  constexpr std::uint32_t kGpulet = 1U << 20U;    // the models of a gpulet
  constexpr std::uint32_t kCluster = 64U << 20U;  // all models, gpulets or nodes
  switch (type) {
    case MessageType::heartbeat:
    case MessageType::batch_result:
    case MessageType::device_report:
    case MessageType::infer_request:
    case MessageType::infer_reply:
    case MessageType::forward:
    case MessageType::forward_reply:
    case MessageType::rows:
    case MessageType::rows_wanted:
    case MessageType::authenticate:
    case MessageType::refused:
      return kNames;
    case MessageType::models_request:
    case MessageType::status_request:
    case MessageType::model_piece_request:
    case MessageType::model_piece:
    case MessageType::draining:
    case MessageType::superseded:
    case MessageType::moved:
    case MessageType::take_leadership:
    case MessageType::set_owner:
    case MessageType::retire_gpulet:
    case MessageType::set_cores:
    case MessageType::welcome:
    case MessageType::peer_hello:
    case MessageType::peer_welcome:
    case MessageType::cancel_forward:
    case MessageType::catalogue_state:
    case MessageType::catalogue_adopted:
    case MessageType::statistics_request:
      return kSmall;
    case MessageType::create_gpulet:
    case MessageType::assign_gpulet:
    case MessageType::gpulet_report:
    case MessageType::batch:
    case MessageType::load_models:
    case MessageType::run_batch:
    case MessageType::stop_proxy:
    case MessageType::proxy_ready:
    case MessageType::batch_ran:
    case MessageType::proxy_idle:
      return kGpulet;
    case MessageType::status_reply:
    case MessageType::models_reply:
      return std::numeric_limits<std::uint32_t>::max();  // the limit of the connection counts
    default:
      return kCluster;
  }
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
    return malformed(fmt::format(
        "the peer speaks protocol version {}, this side version {}; install the same release of "
        "gpulet on both sides",
        version, kFrameVersion));
  }
  const auto type = static_cast<MessageType>(bytes[kTypeAt]);
  if (to_string(type).empty()) {
    return malformed(fmt::format("unknown message type {}", static_cast<unsigned>(type)));
  }
  if (bytes[kReservedAt] != std::byte{0} || bytes[kReservedAt + 1] != std::byte{0}) {
    return malformed("the reserved bytes 6 and 7 must be zero");
  }
  const FrameHeader header{type, get_uint32(bytes, kMessageBytesAt),
                           get_uint32(bytes, kPayloadBytesAt)};
  const std::uint32_t most = std::min(limits.max_message_bytes, most_message_bytes(type));
  if (header.message_bytes > most) return over_limit("message", header.message_bytes, most);
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

OutgoingFrame bare_frame(MessageType type) {
  const std::array<std::byte, kFrameHeaderBytes> header = encode_frame_header({type, 0, 0});
  OutgoingFrame frame;
  frame.head.assign(reinterpret_cast<const char*>(header.data()), header.size());
  return frame;
}

// ---- FrameReader

FrameReader::FrameReader(const FrameLimits& limits)
    : limits_(limits), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

std::array<std::span<std::byte>, 2> FrameReader::space() {
  drop_frame();
  make_room();
  std::span<std::byte> rest;
  if (state_ == State::payload && payload_.size() > 0)
    rest = payload_.view().subspan(payload_received_);
  return {rest, std::span(buffer_.get() + end_, capacity_ - end_)};
}

void FrameReader::received(std::size_t bytes) {
  if (state_ == State::payload && payload_.size() == 0) return discard(bytes);
  if (state_ == State::payload) {
    const std::size_t taken = std::min(bytes, payload_.size() - payload_received_);
    payload_received_ += taken;
    bytes -= taken;
  }
  end_ += bytes;
}

// The bytes behind the message are the rest of the payload and possibly the next frame.
void FrameReader::discard(std::size_t bytes) {
  const std::size_t dropped = std::min(bytes, header_.payload_bytes - payload_received_);
  payload_received_ += dropped;
  std::byte* const first = buffer_.get() + end_;
  std::memmove(first, first + dropped, bytes - dropped);
  end_ += bytes - dropped;
}

Result<FrameReader::Event> FrameReader::next() {
  drop_frame();
  if (state_ == State::header) {
    if (buffered() < kFrameHeaderBytes) return Event{};
    const std::span<const std::byte, kFrameHeaderBytes> bytes(buffer_.get() + begin_,
                                                              kFrameHeaderBytes);
    GPULET_TRY(FrameHeader header, decode_frame_header(bytes, limits_));
    header_ = header;
    state_ = State::message;
  }
  if (state_ == State::message) {
    if (buffered() < head_bytes()) return Event{};
    if (header_.payload_bytes == 0) return finish_frame();
    state_ = State::payload_memory;
    return Event{Event::Kind::payload_wanted, header_, message(), {}};
  }
  if (state_ == State::payload && payload_received_ == header_.payload_bytes) return finish_frame();
  return Event{};
}

Status FrameReader::give_payload(MutableBytes memory) {
  if (memory.size() != 0 && memory.size() != header_.payload_bytes) {
    return {StatusCode::internal, fmt::format("memory of {} bytes for a payload of {}",
                                              memory.size(), header_.payload_bytes)};
  }
  payload_ = std::move(memory);
  const std::size_t here = std::min<std::size_t>(buffered() - head_bytes(), header_.payload_bytes);
  std::byte* const first = buffer_.get() + begin_ + head_bytes();
  if (payload_.size() > 0) std::memcpy(payload_.view().data(), first, here);
  payload_received_ = here;
  state_ = State::payload;
  if (here < header_.payload_bytes) {
    end_ = begin_ + head_bytes();
  } else {
    // Moves the head next to the bytes behind the payload, so that both stay contiguous.
    std::memmove(buffer_.get() + begin_ + here, buffer_.get() + begin_, head_bytes());
    begin_ += here;
  }
  return {};
}

bool FrameReader::inside_frame() const {
  if (frame_given_) return buffered() > head_bytes();
  return buffered() > 0;
}

std::span<const std::byte> FrameReader::message() const {
  return {buffer_.get() + begin_ + kFrameHeaderBytes, header_.message_bytes};
}

FrameReader::Event FrameReader::finish_frame() {
  frame_given_ = true;
  return {Event::Kind::frame, header_, message(), std::exchange(payload_, {})};
}

void FrameReader::drop_frame() {
  if (!frame_given_) return;
  frame_given_ = false;
  begin_ += head_bytes();
  state_ = State::header;
}

void FrameReader::make_room() {
  if (buffered() == 0) {
    begin_ = end_ = 0;
    if (capacity_ > kBufferBytes) move_to(kBufferBytes);
    return;
  }
  // Cheap while little is buffered, and the end of the buffer does not limit a receive.
  if (capacity_ - end_ < capacity_ / 2 && begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= std::exchange(begin_, 0);
  }
  if (end_ == capacity_) move_to(2 * capacity_);
}

void FrameReader::move_to(std::size_t capacity) {
  auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity);
  std::memcpy(larger.get(), buffer_.get() + begin_, buffered());
  end_ -= std::exchange(begin_, 0);
  buffer_ = std::move(larger);
  capacity_ = capacity;
}

}  // namespace gpulet::protocol
