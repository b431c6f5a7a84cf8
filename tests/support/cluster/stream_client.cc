#include "tests/support/cluster/stream_client.h"

#include <sys/socket.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "gpulet/protocol/codec.h"

namespace gpulet::testing {

namespace asio = net::asio;

StreamClient::StreamClient(std::uint16_t port, const std::string& host, bool speaks) {
  asio::ip::tcp::socket socket(io_);
  socket.connect({asio::ip::make_address(host), port});
  descriptor_ = socket.native_handle();
  connection_ = net::Connection::start(net::StreamSocket(std::move(socket)), {}, *this);
  // A connection that says nothing is closed after a while, and tests may take their time.
  if (speaks) send(Authenticate{});
}

void StreamClient::send(const ClientMessage& message) {
  connection_->send(protocol::encode(message));
}

void StreamClient::send_raw(const std::vector<std::byte>& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = ::send(descriptor_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;  // the frontend hung up on it: what the test is about
    sent += static_cast<std::size_t>(now);
  }
}

bool StreamClient::run_until(const std::function<bool()>& condition, Duration patience) {
  const std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    io_.restart();
    io_.run_one_until(std::min(deadline, now + std::chrono::milliseconds(20)));
  }
  return true;
}

std::uint64_t StreamClient::load(InferRequest request, double rate, Duration length,
                                 std::uint64_t first_tag, std::uint64_t seed, Duration patience) {
  Random random(seed);
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::uint64_t tag = first_tag;
  Duration due = from_seconds(random.exponential(1 / rate));
  while (due < length) {
    run_until([&] { return std::chrono::steady_clock::now() >= start + due; }, length);
    request.tag = tag;
    request.payload = byte_request(request.model, tag, request.payload.size()).payload;
    send(request);
    ++tag;
    due += from_seconds(random.exponential(1 / rate));
  }
  run_until([&] { return replies_.size() >= tag - first_tag; }, patience);
  return tag;
}

std::optional<InferReply> StreamClient::ask(const InferRequest& request, Duration patience) {
  send(request);
  if (!run_until([&] { return replies_.contains(request.tag); }, patience)) return std::nullopt;
  return replies_.at(request.tag).front();
}

Result<MutableBytes> StreamClient::payload_memory(const protocol::FrameHeader& header,
                                                  std::span<const std::byte>) {
  auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
  const std::span<std::byte> view(*memory);
  return MutableBytes(std::move(memory), view);
}

void StreamClient::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                            MutableBytes payload) {
  Result<FrontendReply> decoded =
      protocol::decode<FrontendReply>(header, message, payload.freeze());
  if (!decoded.ok()) throw std::runtime_error(decoded.status().to_string());
  if (auto* reply = std::get_if<InferReply>(&decoded.value())) {
    replies_[reply->tag].push_back(std::move(*reply));
  }
}

void StreamClient::on_closed(const Status&) { closed_ = true; }

InferRequest byte_request(const std::string& model, std::uint64_t tag, std::size_t bytes) {
  InferRequest request;
  request.tag = tag;
  request.model = model;
  request.inputs = {{"", DataType::uint8, {static_cast<std::int64_t>(bytes)}}};
  request.payload = Bytes::own(std::vector<std::byte>(bytes, static_cast<std::byte>(tag & 0xffU)));
  return request;
}

}  // namespace gpulet::testing
