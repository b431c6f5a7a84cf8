// Connection: frames over one stream (TCP or Unix, plain or under TLS), in both directions.
// Connector: makes TCP connections.
//
// Both are single-strand types: all calls and callbacks happen on the executor of the socket, which
// must not run them concurrently, and no callback is made from within a call.
//
// A connection reads through one buffer, so that one system call fetches many small frames; a large
// payload is received straight into the handler's memory. Writes are gathered and made in one
// system call at the end of the event loop turn. A turn handles a bounded number of frames for a
// bounded time, so that other connections get their share. Destroying the Connection closes it
// without a callback; a handler that owns its connection may therefore be destroyed at any time
// outside a callback. A peer that shuts down its sending direction has disconnected: peers keep it
// open until they have all replies.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/stream.h"
#include "gpulet/protocol/frame.h"

namespace gpulet::net {

class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // The header and message of a frame with a payload have arrived. Returns memory of exactly
  // header.payload_bytes to receive it into, or empty memory to discard it; on_frame then gets no
  // payload. A failure is the peer's fault and closes the connection.
  [[nodiscard]] virtual Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                                            std::span<const std::byte> message) = 0;
  // The first `bytes` of the payload have arrived in that memory. A failure closes the connection.
  [[nodiscard]] virtual Status payload_received(std::size_t /*bytes*/) { return {}; }
  // A whole frame has arrived. `message` is valid during the call. May call send() and close().
  virtual void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                        MutableBytes payload) = 0;
  // The peer violated the protocol, or payload_memory failed. Returns a last message to send before
  // the connection closes; none by default. `spoken` is the protocol of the peer, which may have
  // connected to the wrong port: the message may be in that protocol.
  [[nodiscard]] virtual std::optional<protocol::OutgoingFrame> goodbye(
      const Status& /*failure*/, protocol::Dialect /*spoken*/) {
    return std::nullopt;
  }
  // The connection is closed. Called once, as the last callback. The reason: the peer closed
  // (cancelled), violated the protocol (malformed, invalid), does not read (overloaded, timeout) or
  // send (timeout), the network failed (unavailable), or the argument of close(); cancelled after
  // close_after_sending().
  virtual void on_closed(const Status& reason) = 0;
};

struct ConnectionOptions {
  protocol::FrameLimits limits;
  // Bytes sent but not yet taken by the peer; beyond it the connection closes.
  std::size_t max_queued_bytes = 64U << 20U;
  // Above so many of them nothing more is read until all are taken. For peers that get answers to
  // what they send, and so hold themselves up alone. Zero: reads whatever the peer does.
  std::size_t pause_above_bytes = 0;
  Duration write_timeout = std::chrono::seconds(10);  // without progress of a write
  // Without a received byte. Zero: no limit, clients may idle.
  Duration read_timeout{};
  // The same within a frame; also limits the TLS handshake. Zero: no limit.
  Duration frame_timeout = std::chrono::seconds(30);
  // For the first byte, after the TLS handshake. Zero: no limit.
  Duration first_timeout{};
  // For a frame that has begun. A slower peer gets a goodbye (timeout), then the connection closes.
  PaceLimits pace{};
};

class Connection {
 public:
  // Takes over the stream and starts reading. Callbacks start after this returns.
  [[nodiscard]] static std::shared_ptr<Connection> start(Stream stream,
                                                         const ConnectionOptions& options,
                                                         ConnectionHandler& handler);

  // Queues a frame. Dropped once the connection is closing.
  void send(protocol::OutgoingFrame frame);
  // Sends the queued frames within the write timeout, then closes. The peer gets up to a second to
  // read them and close its side. Arriving frames are discarded.
  void close_after_sending();
  // Closes at once; on_closed follows unless it was called before. REQUIRES: a failed status.
  void close(const Status& reason);

  // Goes on over another stream between the same two processes, without losing a frame or changing
  // their order. Frames sent from now on go over `next`; the last one over the present stream is
  // `moved`. The peer does the same when it reads that frame, and each side calls follow() then:
  // frames are read from `next` from then on, and the former stream closes once it has sent
  // everything. Until then, a failure of either stream closes the connection. REQUIRES: every
  // earlier move was followed.
  void move_to(Stream next);
  // The handler received a frame `moved`. False: there was no move_to(), so the peer is at fault.
  [[nodiscard]] bool follow();

  // Limits the messages of frames whose header has not arrived yet.
  void limit_messages(std::uint32_t max_bytes);

  // The size of the frames not yet taken by the kernel, including the cost of storing them.
  [[nodiscard]] std::size_t queued_bytes() const;
  // True until the first whole frame arrives. Any thread.
  [[nodiscard]] bool silent() const;
  // When the last whole frame arrived, or the connection started. Any thread.
  [[nodiscard]] std::chrono::steady_clock::time_point last_frame() const;
  // As in Stream; of the present one.
  [[nodiscard]] bool peer_certifies(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> peer_names() const;
  [[nodiscard]] std::string peer_address() const;

  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  class Impl;
  Connection(std::shared_ptr<Impl> impl, ConnectionHandler& handler);
  ConnectionHandler* const handler_;
  std::shared_ptr<Impl> impl_;    // shared with the operations in flight
  std::shared_ptr<Impl> former_;  // after move_to(), until follow()
};

struct ConnectorOptions {
  Duration timeout = std::chrono::seconds(5);  // for one attempt, including name resolution
  Duration first_pause = std::chrono::milliseconds(100);  // backoff; doubles up to longest_pause
  Duration longest_pause = std::chrono::seconds(5);
  TlsContextPointer tls{};  // a client's; null: plain
};

// Makes a TCP connection, plain or under TLS, with or without retries. One attempt at a time.
// Destroying or closing it ends the attempt without a callback; a callback may do so.
class Connector {
 public:
  // Fails with timeout or unavailable (unknown host, refused, unreachable); names host and port.
  using OnDone = std::function<void(Result<Stream>)>;
  using OnConnected = std::function<void(Stream)>;
  // An attempt failed; the next one follows after `pause`.
  using OnAttemptFailed = std::function<void(const Status&, Duration pause)>;

  // `host` is an address or a name.
  Connector(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
            const ConnectorOptions& options);

  // Makes one attempt. REQUIRES: no attempt is in progress.
  void connect(OnDone on_done);
  // Retries until an attempt succeeds. The first attempt starts after `at_least` or later: after
  // short-lived connections it waits for the backoff, so that a peer that closes at once is not
  // called in a tight loop.
  void connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed,
                          Duration at_least = {});
  // For the next connections.
  void use_tls(TlsContextPointer tls);
  void close();

  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the operation in flight
};

}  // namespace gpulet::net
