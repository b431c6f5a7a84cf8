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
class Session : public net::ConnectionHandler, private net::Place::Holder {
 public:
  using OnClosed = std::function<void(const Status&)>;

 protected:
  Session(net::Stream stream, net::ConnectionSlot slot, const net::ConnectionOptions& options,
          net::BufferPool& buffers, OnClosed on_closed);
  [[nodiscard]] net::Connection& connection() { return *connection_; }
  [[nodiscard]] Result<MutableBytes> pooled_memory(std::size_t bytes);
  // Whether it is one of the places that are kept back.
  [[nodiscard]] bool reserved() const { return slot_->reserved(); }

 private:
  // Whether it must not be closed for another's sake although nothing comes in.
  [[nodiscard]] virtual bool busy() const = 0;
  [[nodiscard]] Standing standing() const final;
  void give_way() final;
  Status payload_received(std::size_t bytes) final { return payload_.filled(bytes); }
  void on_closed(const Status& reason) final;

  net::ConnectionSlot slot_;
  net::BufferPool& buffers_;
  net::IncomingBytes payload_;  // of the frame under way, until all of it counts
  OnClosed on_closed_;
  std::shared_ptr<net::Connection> connection_;
};

// Answers itself what its client has no right to. A payload above kUnaskedPayloadBytes gets memory
// only once the message before it has shown that the client may send it and that `takes` accepts
// it; otherwise it is discarded, the request is answered, and the connection goes on.
class ClientSession final : public Session {
 public:
  static constexpr std::size_t kUnaskedPayloadBytes = 64U << 10U;
  static constexpr std::size_t kMaxModelsText = 4U << 20U;

  using OnMessage = std::function<void(serve::ClientMessage&&)>;
  // Whether there is a model for that request whose inputs have so many bytes.
  using Takes = std::function<Status(const serve::InferRequest&, std::size_t payload_bytes)>;
  ClientSession(net::Stream stream, net::ConnectionSlot slot, const net::ConnectionOptions& options,
                std::shared_ptr<const net::Tokens> tokens, net::BufferPool& buffers, Takes takes,
                OnMessage on_message, OnClosed on_closed);

  void send(const serve::FrontendReply& reply);
  void close_after_sending() { connection().close_after_sending(); }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure) override;
  [[nodiscard]] Status permission(const serve::ClientMessage& message) const;
  // Connections beyond the general places ask for no inferences.
  [[nodiscard]] Status may_be_here(const serve::ClientMessage& message) const;
  [[nodiscard]] Status may_send(const serve::ClientMessage& message,
                                std::size_t payload_bytes) const;
  [[nodiscard]] bool take_token(const serve::ClientMessage& message);
  void refuse(const serve::ClientMessage& message, Status why);

  [[nodiscard]] bool busy() const override { return under_way_ > 0; }

  const std::shared_ptr<const net::Tokens> tokens_;
  std::size_t under_way_ = 0;  // requests that have no answer yet
  Takes takes_;
  OnMessage on_message_;
  Status refusal_;  // of the payload that is being discarded
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
  // Only outputs of batches have a payload, and only of a node that has said which one it is.
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  [[nodiscard]] Status take_introduction(const serve::BackendMessage& message);
  [[nodiscard]] bool busy() const override { return introduced_; }

  const bool certified_;
  OnMessage on_message_;
  bool introduced_ = false;
};

}  // namespace gpulet::frontend
