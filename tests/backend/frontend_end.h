// The frontend's end of a connection of a backend under test. Records the backend's messages.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"
#include "tests/net/loop.h"

namespace gpulet::backend {

class FrontendEnd : public net::ConnectionHandler {
 public:
  explicit FrontendEnd(net::StreamSocket socket)
      : connection_(net::Connection::start(std::move(socket), net::ConnectionOptions(), *this)) {}

  void say(const BackendCommand& command) { connection_->send(protocol::encode(command)); }
  void send_rubbish() {
    protocol::OutgoingFrame frame;
    frame.head = "this is not a frame, whatever it may look like";
    connection_->send(std::move(frame));
  }
  [[nodiscard]] bool closed() const { return closed_; }
  template <typename Message>
  [[nodiscard]] std::vector<Message> heard() const {
    std::vector<Message> found;
    for (const auto& message : messages_) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    auto decoded = protocol::decode<BackendMessage>(header, message, payload.freeze());
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    messages_.push_back(std::move(decoded).value());
  }
  void on_closed(const Status&) override { closed_ = true; }

  std::deque<BackendMessage> messages_;
  bool closed_ = false;
  std::shared_ptr<net::Connection> connection_;
};

// The loopback port of a scripted frontend.
class FrontendPort {
 public:
  explicit FrontendPort(net::asio::io_context& io)
      : io_(io), acceptor_(io, {net::asio::ip::address_v4::loopback(), 0}) {}

  [[nodiscard]] config::Endpoint address() const {
    return {"127.0.0.1", acceptor_.local_endpoint().port()};
  }
  // Accepts and welcomes the backend's next connection. Fails the test if there is none.
  [[nodiscard]] std::unique_ptr<FrontendEnd> accept(std::chrono::steady_clock::duration within) {
    // Shared with the handler, which may run after the timeout.
    const auto accepted = std::make_shared<std::unique_ptr<FrontendEnd>>();
    acceptor_.async_accept(
        [accepted](const boost::system::error_code& error, net::asio::ip::tcp::socket socket) {
          ASSERT_FALSE(error) << error.message();
          *accepted = std::make_unique<FrontendEnd>(net::StreamSocket(std::move(socket)));
        });
    EXPECT_TRUE(net::testing::run_until(
        io_, [&] { return *accepted != nullptr; }, within));
    if (*accepted != nullptr) (*accepted)->say(Welcome{std::chrono::seconds(60)});
    return std::move(*accepted);
  }
  void close() { acceptor_.close(); }

 private:
  net::asio::io_context& io_;
  net::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace gpulet::backend
