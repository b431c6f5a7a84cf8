#include "bench/net/exchanges.h"

#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "gpulet/protocol/codec.h"

namespace gpulet::bench {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kSlotBytes = 4;

std::string post_head(const std::string& target, const std::string& more, std::size_t body_bytes) {
  return "POST " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more +
         "Content-Length: " + std::to_string(body_bytes) + "\r\n\r\n";
}

}  // namespace

EchoExchange::EchoExchange(std::size_t message_bytes)
    : message_bytes_(message_bytes),
      payload_(Bytes::own(std::vector<std::byte>(message_bytes - kSlotBytes))) {}

Exchange::Request EchoExchange::request(std::uint32_t slot) const {
  const auto length = static_cast<std::uint32_t>(message_bytes_);
  std::string head(kLengthBytes + kSlotBytes, '\0');
  std::memcpy(head.data(), &length, kLengthBytes);
  std::memcpy(head.data() + kLengthBytes, &slot, kSlotBytes);
  return {std::move(head), payload_};
}

Result<std::optional<Exchange::Reply>> EchoExchange::reply(std::span<const std::byte> bytes) const {
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

Exchange::Request InferExchange::request(std::uint32_t slot) const {
  protocol::OutgoingFrame frame =
      protocol::encode(ClientMessage(InferRequest{slot, model_, timeout_, inputs_, payload_}));
  return {std::move(frame.head), payload_};
}

Result<std::optional<Exchange::Reply>> InferExchange::reply(
    std::span<const std::byte> bytes) const {
  if (bytes.size() < protocol::kFrameHeaderBytes) return std::optional<Reply>();
  const Result<protocol::FrameHeader> header =
      protocol::decode_frame_header(bytes.first<protocol::kFrameHeaderBytes>(), {});
  if (!header.ok()) return header.status();
  const std::size_t message_bytes = header.value().message_bytes;
  const std::size_t payload_bytes = header.value().payload_bytes;
  const std::size_t total = protocol::kFrameHeaderBytes + message_bytes + payload_bytes;
  if (bytes.size() < total) return std::optional<Reply>();
  // The decoded value is destroyed here, so it may point into bytes that it does not own.
  const Bytes payload(nullptr,
                      bytes.subspan(protocol::kFrameHeaderBytes + message_bytes, payload_bytes));
  const Result<FrontendReply> decoded = protocol::decode<FrontendReply>(
      header.value(), bytes.subspan(protocol::kFrameHeaderBytes, message_bytes), payload);
  if (!decoded.ok()) return decoded.status();
  const auto* const reply = std::get_if<InferReply>(&decoded.value());
  if (reply == nullptr)
    return Status(StatusCode::malformed, "a reply to something that was not asked");
  return std::optional(Reply{static_cast<std::uint32_t>(reply->tag), total, reply->status.ok()});
}

HttpExchange::HttpExchange(std::string head, std::size_t payload_bytes)
    : head_(std::move(head)), payload_(Bytes::own(std::vector<std::byte>(payload_bytes))) {}

HttpExchange HttpExchange::echo(std::size_t body_bytes) {
  return {post_head("/", "", body_bytes), body_bytes};
}

HttpExchange HttpExchange::infer(const std::string& model, const TensorSpec& input,
                                 Duration timeout) {
  const std::size_t bytes = byte_size(input).value();
  std::string shape = "1";
  for (const std::int64_t length : input.shape) shape += "," + std::to_string(length);
  const auto timeout_us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  const std::string json = R"({"inputs":[{"name":")" + input.name + R"(","datatype":")" +
                           std::string(to_string(input.type)) + R"(","shape":[)" + shape +
                           R"(],"parameters":{"binary_data_size":)" + std::to_string(bytes) +
                           R"(}}],"parameters":{"binary_data_output":true,"timeout":)" +
                           std::to_string(timeout_us) + "}}";
  const std::string more =
      "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n";
  return {post_head("/v2/models/" + model + "/infer", more, json.size() + bytes) + json, bytes};
}

Exchange::Request HttpExchange::request(std::uint32_t /*slot*/) const { return {head_, payload_}; }

Result<std::optional<Exchange::Reply>> HttpExchange::reply(std::span<const std::byte> bytes) const {
  constexpr std::string_view kStatusLine = "HTTP/1.1 ";
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  constexpr std::string_view kHeadEnd = "\r\n\r\n";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = text.find(kHeadEnd);
  if (end == std::string_view::npos) return std::optional<Reply>();
  const std::size_t length = text.substr(0, end).find(kLength);
  std::size_t body_bytes = 0;
  const char* const digits = text.data() + length + kLength.size();
  if (!text.starts_with(kStatusLine) || length == std::string_view::npos ||
      std::from_chars(digits, text.data() + end, body_bytes).ec != std::errc{})
    return Status(StatusCode::malformed, "not an answer: " + std::string(text.substr(0, end)));
  const bool ok = text.substr(kStatusLine.size()).starts_with("200 ");
  return std::optional(Reply{0, end + kHeadEnd.size() + body_bytes, ok});
}

}  // namespace gpulet::bench
