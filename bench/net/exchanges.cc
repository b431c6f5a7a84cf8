#include "bench/net/exchanges.h"

#include <cstring>
#include <utility>

#include "gpulet/net/codec/codec.h"

namespace gpulet::bench {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kSlotBytes = 4;

}  // namespace

EchoExchange::EchoExchange(std::size_t message_bytes)
    : message_bytes_(message_bytes),
      payload_(Bytes::own(std::vector<std::byte>(message_bytes - kSlotBytes))) {}

Exchange::Request EchoExchange::request(std::uint32_t slot) {
  const auto length = static_cast<std::uint32_t>(message_bytes_);
  std::string head(kLengthBytes + kSlotBytes, '\0');
  std::memcpy(head.data(), &length, kLengthBytes);
  std::memcpy(head.data() + kLengthBytes, &slot, kSlotBytes);
  return {std::move(head), payload_};
}

Result<std::optional<Exchange::Reply>> EchoExchange::reply(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes + kSlotBytes) return std::optional<Reply>();
  std::uint32_t length = 0;
  Reply reply;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  std::memcpy(&reply.slot, bytes.data() + kLengthBytes, kSlotBytes);
  if (length != message_bytes_) {
    return Status(StatusCode::malformed, "the echo has " + std::to_string(length) + " bytes; " +
                                             std::to_string(message_bytes_) + " were sent");
  }
  reply.bytes = kLengthBytes + length;
  return std::optional(reply);
}

InferExchange::InferExchange(std::string model, std::vector<TensorSpec> inputs, Duration timeout)
    : model_(std::move(model)),
      inputs_(std::move(inputs)),
      timeout_(timeout),
      payload_(Bytes::own(std::vector<std::byte>(byte_size(inputs_).value()))) {}

Exchange::Request InferExchange::request(std::uint32_t slot) {
  net::OutgoingFrame frame = net::encode(
      serve::ClientMessage(serve::InferRequest{slot, model_, timeout_, inputs_, payload_}));
  return {std::move(frame.head), payload_};
}

Result<std::optional<Exchange::Reply>> InferExchange::reply(std::span<const std::byte> bytes) {
  if (bytes.size() < net::kFrameHeaderBytes) return std::optional<Reply>();
  const Result<net::FrameHeader> header =
      net::decode_frame_header(bytes.first<net::kFrameHeaderBytes>(), {});
  if (!header.ok()) return header.status();
  const std::size_t message_bytes = header.value().message_bytes;
  const std::size_t payload_bytes = header.value().payload_bytes;
  const std::size_t total = net::kFrameHeaderBytes + message_bytes + payload_bytes;
  if (bytes.size() < total) return std::optional<Reply>();
  // The decoded value dies here, so that it may point into bytes which nobody owns.
  const Bytes payload(nullptr,
                      bytes.subspan(net::kFrameHeaderBytes + message_bytes, payload_bytes));
  const Result<serve::FrontendReply> decoded = net::decode_frontend_reply(
      header.value(), bytes.subspan(net::kFrameHeaderBytes, message_bytes), payload);
  if (!decoded.ok()) return decoded.status();
  const auto* const reply = std::get_if<serve::InferReply>(&decoded.value());
  if (reply == nullptr)
    return Status(StatusCode::malformed, "a reply to something that was not asked");
  return std::optional(Reply{static_cast<std::uint32_t>(reply->tag), total, reply->status.ok()});
}

}  // namespace gpulet::bench
