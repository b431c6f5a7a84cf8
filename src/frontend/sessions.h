// One connection of a client or a backend: frames to values and back. A session tells its owner
// through callbacks; on_closed is the last of them, and the owner destroys the session later,
// outside of any callback of it.
#pragma once

#include <functional>
#include <memory>

#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/tokens.h"
#include "gpulet/serve/messages.h"

namespace gpulet::frontend {

// What every session has: a place among the listener's connections, memory for payloads, the
// connection.
class Session : public net::ConnectionHandler {
 public:
  using OnClosed = std::function<void(const Status&)>;

 protected:
  Session(net::Stream stream, net::ConnectionSlot slot, const net::ConnectionOptions& options,
          net::BufferPool& buffers, OnClosed on_closed);
  [[nodiscard]] net::Connection& connection() { return *connection_; }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) final;
  void on_closed(const Status& reason) final;

  net::ConnectionSlot slot_;
  net::BufferPool& buffers_;
  OnClosed on_closed_;
  std::shared_ptr<net::Connection> connection_;
};

// Answers itself what its client has no right to.
class ClientSession final : public Session {
 public:
  using OnMessage = std::function<void(serve::ClientMessage&&)>;
  ClientSession(net::Stream stream, net::ConnectionSlot slot, const net::ConnectionOptions& options,
                std::shared_ptr<const net::Tokens> tokens, net::BufferPool& buffers,
                OnMessage on_message, OnClosed on_closed);

  void send(const serve::FrontendReply& reply);
  void close_after_sending() { connection().close_after_sending(); }

 private:
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure) override;
  [[nodiscard]] bool refuse(const serve::ClientMessage& message);

  const std::shared_ptr<const net::Tokens> tokens_;
  OnMessage on_message_;
  bool token_shown_ = false;
  net::Right right_ = net::Right::nothing;
};

// Under TLS, a backend whose certificate is not for the node that it says it is loses its
// connection.
class BackendSession final : public Session {
 public:
  using OnMessage = std::function<void(serve::BackendMessage)>;
  BackendSession(net::Stream stream, net::ConnectionSlot slot,
                 const net::ConnectionOptions& options, bool certified, net::BufferPool& buffers,
                 OnMessage on_message, OnClosed on_closed);

  void send(const serve::BackendCommand& command);
  void close(const Status& reason) { connection().close(reason); }
  // It said, and where needed proved, which node it is.
  [[nodiscard]] bool introduced() const { return introduced_; }

 private:
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  [[nodiscard]] Status take_introduction(const serve::BackendMessage& message);

  const bool certified_;
  OnMessage on_message_;
  bool introduced_ = false;
};

}  // namespace gpulet::frontend
