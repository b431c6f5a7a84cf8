// One connection of a client or a backend: frames to values and back. A session tells its owner
// through callbacks; on_closed is the last of them, and the owner destroys the session later,
// outside of any callback of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/listener.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/peer_rules.h"
#include "wrong_port.h"

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
                std::shared_ptr<net::Gate> gate, net::BufferPool& buffers, const FramePort& port,
                Takes takes, OnMessage on_message, OnClosed on_closed);

  void send(const serve::FrontendReply& reply);
  // One that is encoded already.
  void send(net::OutgoingFrame frame) { connection().send(std::move(frame)); }
  void close_after_sending() { connection().close_after_sending(); }
  [[nodiscard]] const net::PeerIdentity& peer() const { return peer_; }
  // The tokens are others now: a connection whose token was revoked ends.
  void tokens_changed();

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure, net::Dialect spoken) override;
  // Ends the connection, and says why before.
  void end(const Status& why);
  [[nodiscard]] bool take_token(const serve::ClientMessage& message);
  // Whether the payload of the message may come.
  [[nodiscard]] net::Admission may_send(const serve::ClientMessage& message,
                                        std::size_t payload_bytes);
  [[nodiscard]] net::Admission announce(const serve::InferRequest& request);
  // Connections beyond the general places ask for no inferences. `announced`: what may_send() said,
  // where it was asked.
  [[nodiscard]] net::Admission admit(const serve::InferRequest& request,
                                     const std::optional<net::Admission>& announced);
  // Of messages that are no inferences.
  [[nodiscard]] Status permission(const serve::ClientMessage& message);
  void refuse(std::uint64_t tag, net::Admission why);
  void refuse(const serve::ClientMessage& message, Status why);
  void answer(const serve::FrontendReply& reply);

  [[nodiscard]] bool busy() const override { return under_way_ > 0; }

  const std::shared_ptr<net::Gate> gate_;
  const FramePort port_;
  Takes takes_;
  OnMessage on_message_;
  net::PeerIdentity peer_;
  std::optional<net::Admission> admission_;  // of the payload that is being received or discarded
  std::size_t under_way_ = 0;                // requests that have no answer yet
  // Of the inferences under way, by tag: clients may use one twice.
  std::unordered_multimap<std::uint64_t, net::Permit> permits_;
};

// What a change of models needs.
[[nodiscard]] net::CallNeeds needs_of(const serve::ModelsChange& change);

// A backend's connection. What a backend breaks before its messages have a meaning is seen here: it
// says Hello first and within a time, as the node that its certificate is for, and only results of
// batches have a payload. No memory is given to a payload that may not come.
class BackendSession final : public Session {
 public:
  struct Options {
    bool certified = false;  // under TLS: its certificate names the node
    Duration hello_within = std::chrono::seconds(10);
    FramePort port{.peers = FramePort::For::backends};
  };
  struct Owner {
    std::function<void(serve::BackendMessage)> on_message;
    // Asked before memory is given to a result: what its sender breaks with it.
    std::function<std::optional<serve::PeerBreach>(BatchId)> breach_of_result;
    // The backend broke a rule: the owner is to refuse() it. Nothing but on_closed follows.
    std::function<void(const serve::PeerBreach&)> on_breach;
    OnClosed on_closed;
  };
  // `executor`: the stream's.
  BackendSession(const net::asio::any_io_executor& executor, net::Stream stream,
                 net::ConnectionSlot slot, const net::ConnectionOptions& connection_options,
                 const Options& options, net::BufferPool& buffers, Owner owner);

  void send(const serve::BackendCommand& command);
  // Tells it why, then closes. What it says from now on is discarded.
  void refuse(const Status& why);
  void close(const Status& reason) { connection().close(reason); }
  // It said, and where needed proved, which node it is.
  [[nodiscard]] bool introduced() const { return introduced_; }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure, net::Dialect spoken) override;
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_introduction(
      const serve::BackendMessage& message);
  // A message of this type, or its payload, came before the Hello.
  Status report_early(net::MessageType type);
  // Returns what is wrong.
  Status report(const serve::PeerBreach& breach);
  [[nodiscard]] bool busy() const override { return introduced_; }

  const bool certified_;
  const FramePort port_;
  Owner owner_;
  std::optional<net::OutgoingFrame> farewell_;  // in place of Refused: the peer is a client
  bool introduced_ = false;
  bool broken_ = false;  // reported, or refused
  Time result_began_{};  // the first byte of the result that is being received
  net::asio::steady_timer hello_deadline_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // gone: the timer has nobody to tell
};

}  // namespace gpulet::frontend
