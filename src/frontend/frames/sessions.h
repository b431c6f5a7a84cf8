// The frontend's connections of its own protocol: one session for each client and each backend.
// Sessions decode frames, enforce what a peer may send, and report to their owner. on_closed is the
// last call; the owner then destroys the session, from a handler of its own. Types of one strand,
// as net::Connection: that of the stream.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "frontend/frames/engine_link.h"
#include "frontend/frames/local_door.h"
#include "frontend/frames/peer_log.h"
#include "frontend/frames/shared_batches.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/alive.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/frame.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// A port of gpulet's own protocol, and the numbers of the frontend's other ports (0: off).
struct FramePort {
  enum class Peers : std::uint8_t { clients, backends };
  Peers peers = Peers::clients;
  std::uint16_t clients = 0;
  std::uint16_t backends = 0;
  std::uint16_t http = 0;
  std::uint16_t grpc = 0;
};

struct WrongPort {
  std::string reason;  // names the right port
  protocol::OutgoingFrame goodbye;
};

// The refusal of a message for the other kind of peer; empty: it belongs here. Pure; any thread.
[[nodiscard]] std::optional<WrongPort> check_port(const FramePort& here,
                                                  protocol::MessageType type);

// The last message on a connection that ends with `failure`, in the protocol that the peer speaks:
// a peer that speaks HTTP learns the right port in an HTTP response. Pure; any thread.
[[nodiscard]] protocol::OutgoingFrame goodbye_frame(const FramePort& here, const Status& failure,
                                                    protocol::Dialect spoken);

// Common to both: a slot of the listener, memory for payloads, and the connection.
class Session : public net::ConnectionHandler {
 protected:
  Session(net::Stream stream, net::ConnectionSlotPointer slot,
          const net::ConnectionOptions& options, net::BufferPool& buffers);
  [[nodiscard]] net::Connection& connection() { return *connection_; }
  [[nodiscard]] Result<MutableBytes> pooled_memory(std::size_t bytes);
  // Whether the connection holds one of the reserved slots.
  [[nodiscard]] bool reserved() const { return place_.reserved(); }
  // A busy session is not closed in favour of another connection, even if it receives nothing. At
  // first it is not.
  void set_busy(bool busy) { place_.set_busy(busy); }

 private:
  // The slot, and the connection as the slot sees it. Not a base of the session: other threads may
  // call it, which must not happen while a derived class is constructed or destroyed.
  class Place final : private net::ConnectionSlot::Holder {
   public:
    Place(net::ConnectionSlotPointer slot, net::asio::any_io_executor executor,
          std::shared_ptr<net::Connection> connection);
    ~Place() { slot_.reset(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    [[nodiscard]] bool reserved() const { return slot_->reserved(); }
    void set_busy(bool busy) { busy_.store(busy, std::memory_order_relaxed); }

   private:
    [[nodiscard]] Activity activity() const override;
    void evict() override;

    const net::asio::any_io_executor executor_;
    const std::shared_ptr<net::Connection> connection_;
    std::atomic<bool> busy_ = false;
    net::ConnectionSlotPointer slot_;
  };
  Status payload_received(std::size_t bytes) final { return payload_.filled(bytes); }

  net::BufferPool& buffers_;
  net::IncomingBytes payload_;  // payload of the frame being received
  const net::asio::any_io_executor executor_;
  const std::shared_ptr<net::Connection> connection_;
  Place place_;
};

// Answers requests that its client has no right to make. A payload above kMaxUncheckedPayloadBytes
// gets memory only if the message before it shows that the client may send it and that `accepts`
// agrees. Otherwise the payload is discarded, the request is refused, and the connection continues.
class ClientSession final : public Session, public ReplySink {
 public:
  static constexpr std::size_t kMaxUncheckedPayloadBytes = 64U << 10U;
  static constexpr std::size_t kMaxModelsText = 4U << 20U;

  struct Options {
    ClientId id;
    net::ConnectionOptions connection;
    FramePort port;
  };
  class Owner {
   public:
    virtual void on_message(ClientId from, ClientMessage&& message) = 0;
    virtual void on_closed(ClientId client, const Status& reason) = 0;
    // PayloadCheck::accepts()
    [[nodiscard]] virtual Status accepts(const InferRequest& request,
                                         std::size_t payload_bytes) const = 0;

   protected:
    ~Owner() = default;
  };
  // `owner` must outlive it.
  ClientSession(net::Stream stream, net::ConnectionSlotPointer slot, const Options& options,
                std::shared_ptr<access::Gate> gate, net::BufferPool& buffers, Owner& owner);

  void reply(InferReply reply) override;
  void send(const protocol::OutgoingFrame& answer) override { connection().send(answer); }
  void close_after_sending() { connection().close_after_sending(); }
  // From now on, replies ask the client to use another connection (InferReply::leaving).
  void start_leaving() { leaving_ = true; }
  [[nodiscard]] const access::PeerIdentity& peer() const { return peer_; }
  // The gate's tokens were replaced: closes the connection if its token was revoked.
  void tokens_changed();

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<protocol::OutgoingFrame> goodbye(const Status& failure,
                                                 protocol::Dialect spoken) override;
  void on_closed(const Status& reason) override;
  // Sends `why`, then closes the connection.
  void close(const Status& why);
  [[nodiscard]] bool take_token(const ClientMessage& message);
  // Whether a payload above kMaxUncheckedPayloadBytes may follow the message.
  [[nodiscard]] access::Access may_send(const ClientMessage& message, std::size_t payload_bytes);
  // Refuses inferences on reserved slots. `announced`: the result of may_send(), if it was called.
  [[nodiscard]] access::Access admit(const InferRequest& request,
                                     const std::optional<access::Access>& announced);
  // For messages other than inference requests.
  [[nodiscard]] Status permission(const ClientMessage& message);
  void refuse(std::uint64_t tag, access::Access why);
  void refuse(const ClientMessage& message, Status why);
  void answer(const FrontendReply& reply);

  const std::shared_ptr<access::Gate> gate_;
  const ClientId id_;
  const FramePort port_;
  Owner& owner_;
  access::PeerIdentity peer_;
  protocol::FrameDecoder<ClientMessage> decoder_;
  std::optional<access::Access> access_;  // for the payload being received or discarded
  std::size_t in_flight_ = 0;             // requests without a reply
  bool leaving_ = false;
  // By the tag of the request in flight. A client may use a tag twice.
  std::unordered_multimap<std::uint64_t, access::Permit> permits_;
};

// The right that a change of models requires.
[[nodiscard]] access::CallNeeds needs_of(const ModelsChange& change);

// Detects the violations that precede the meaning of messages: a backend sends Hello first and in
// time, as the node that its certificate names, and only batch results have a payload. A payload
// that is not allowed gets no memory.
class BackendSession final : public Session {
 public:
  struct Options {
    net::ConnectionOptions connection;
    bool certified = false;  // TLS: the certificate must name the node
    Duration hello_within = std::chrono::seconds(10);
    FramePort port{.peers = FramePort::Peers::backends};
    BackendId id{};
  };
  class Owner {
   public:
    virtual void on_message(BackendId from, BackendMessage message) = 0;
    // PayloadCheck::breach_of_result(); called before the result gets memory.
    [[nodiscard]] virtual std::optional<serve::PeerBreach> breach_of_result(
        BackendId from, BatchId batch) const = 0;
    // The backend broke a rule: the owner must call refuse(). Only on_closed follows.
    virtual void on_breach(BackendId backend, const serve::PeerBreach& breach) = 0;
    virtual void on_closed(BackendId backend, const Status& reason) = 0;

   protected:
    ~Owner() = default;
  };
  // `executor`: the executor of the stream. `owner` must outlive it.
  BackendSession(const net::asio::any_io_executor& executor, net::Stream stream,
                 net::ConnectionSlotPointer slot, const Options& options, net::BufferPool& buffers,
                 Owner& owner);

  void send(const BackendCommand& command);
  // Sends `why`, then closes. Further messages of the backend are discarded.
  void refuse(const Status& why);
  void close(const Status& reason) { connection().close(reason); }
  // The backend can be reached over this Unix socket, too: everything goes on there, and TCP ends.
  // It reads inputs from `memory`; null: they are sent.
  void go_on_over(net::StreamSocket socket, std::shared_ptr<net::SharedMemory> memory);
  // Whether the backend has named its node and, with TLS, proved it.
  [[nodiscard]] bool introduced() const { return introduced_; }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<protocol::OutgoingFrame> goodbye(const Status& failure,
                                                 protocol::Dialect spoken) override;
  void on_closed(const Status& reason) override { owner_.on_closed(id_, reason); }
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_introduction(
      const BackendMessage& message);
  // Reports a message, or its payload, that came before Hello.
  Status report_early(protocol::MessageType type);
  // Returns the reason of the breach.
  Status report(const serve::PeerBreach& breach);
  const BackendId id_;
  const std::string address_;
  const bool certified_;
  const FramePort port_;
  Owner& owner_;
  protocol::FrameDecoder<BackendMessage> decoder_;
  std::optional<protocol::OutgoingFrame> goodbye_;  // replaces Refused: the peer is a client
  bool introduced_ = false;
  bool broken_ = false;                    // a breach was reported, or the session was refused
  std::unique_ptr<SharedBatches> shared_;  // null: inputs are sent
  Time result_began_{};                    // first byte of the result being received
  net::asio::steady_timer hello_deadline_;
  AliveToken alive_;
};

// The sessions of all backends. Their messages and ends become events of the core. A refused
// backend keeps its connection until the reason is sent; its messages are ignored meanwhile.
class BackendSessions final : private BackendSession::Owner, private LocalDoor::Owner {
 public:
  // `options`: those of every session, without its id and port. The references, those of `engine`
  // among them, must outlive this object.
  BackendSessions(net::asio::io_context& io, BackendSession::Options options,
                  net::BufferPool& buffers, const EngineLink& engine, PeerLog& log);

  // The port that backends connect to; call before the first accept().
  void open(const FramePort& port) { options_.port = port; }
  // From now on, backends of this machine are offered a Unix socket. Where there can be none, they
  // stay with TCP. They read inputs from the memory of `requests`, which must outlive this object.
  void open_local_door(net::BufferPool& requests);
  void accept(net::Stream stream, net::ConnectionSlotPointer slot);
  // Does nothing if the backend has disconnected or was refused.
  void send(BackendId id, const BackendCommand& command);
  void refuse(BackendId id, const Status& why);
  void close_all(const Status& reason);
  [[nodiscard]] bool contains(BackendId id) const { return sessions_.contains(id); }

 private:
  using Sessions = std::map<BackendId, std::unique_ptr<BackendSession>>;
  void on_message(BackendId from, BackendMessage message) override;
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(BackendId from,
                                                                  BatchId batch) const override;
  void on_breach(BackendId backend, const serve::PeerBreach& breach) override;
  void on_closed(BackendId backend, const Status& reason) override;
  void on_local(BackendId backend, net::StreamSocket socket) override;
  void forget(Sessions& sessions, BackendId id);

  net::asio::io_context& io_;
  BackendSession::Options options_;
  net::BufferPool& buffers_;
  const EngineLink engine_;
  PeerLog& log_;
  Sessions sessions_;
  Sessions refused_;
  std::unique_ptr<LocalDoor> door_;      // null: TCP only
  net::BufferPool* requests_ = nullptr;  // set with door_
};

}  // namespace gpulet::frontend
