// One connection of a client or a backend: frames to values and back. A session tells its owner
// through callbacks; on_closed is the last of them, and the owner destroys the session later,
// outside of any callback of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/listener.h"
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
                std::shared_ptr<net::Gate> gate, net::BufferPool& buffers, OnMessage on_message,
                OnClosed on_closed);

  void send(const serve::FrontendReply& reply);
  void close_after_sending() { connection().close_after_sending(); }
  [[nodiscard]] const net::PeerIdentity& peer() const { return peer_; }
  // The tokens are others now: a connection whose token was revoked ends.
  void tokens_changed();

 private:
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure) override;
  // Whether there is nothing more to do for the message.
  [[nodiscard]] bool refuse(const serve::ClientMessage& message);
  [[nodiscard]] bool refuse(const serve::InferRequest& request);
  void answer(const serve::FrontendReply& reply);

  const std::shared_ptr<net::Gate> gate_;
  OnMessage on_message_;
  net::PeerIdentity peer_;
  // Of the inferences under way, by tag: clients may use one twice.
  std::unordered_multimap<std::uint64_t, net::Permit> permits_;
};

// What a change of models needs.
[[nodiscard]] net::CallNeeds needs_of(const serve::ModelsChange& change);

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
