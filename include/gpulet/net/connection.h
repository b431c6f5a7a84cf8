// Connection: frames over one stream (TCP or Unix, plain or under TLS), in both directions.
//
// Single-strand type: every call and every callback happens on the executor of the socket, which
// must not run them concurrently. Reading goes through one buffer, so that many small frames cost
// one system call; a large payload is received straight into the memory that the handler gives.
// Writing gathers what is queued into one system call, once at the end of the turn in which it was
// sent. A turn handles frames for a bounded time and a bounded number of them, then others get
// theirs.
//
// A connection lives by its shared_ptr: dropping the last one closes it at once and no callback
// follows, so a handler that owns its connection may die at any time outside of a callback. No
// callback is made from within a call. A peer that shuts down its sending side has left: it keeps
// it open until it has its answers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/codec/frame.h"
#include "gpulet/net/pace.h"
#include "gpulet/net/stream.h"

namespace gpulet::net {

class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // A frame's header and message are here, its payload (not empty) is to come: where shall it go?
  // Memory of exactly header.payload_bytes; or empty memory: the payload is discarded as it comes,
  // and on_frame gets none. An error is the peer's fault: the connection closes with it.
  [[nodiscard]] virtual Result<MutableBytes> payload_memory(const FrameHeader& header,
                                                            std::span<const std::byte> message) = 0;
  // So many bytes of the payload are in that memory now. An error closes the connection, as above.
  [[nodiscard]] virtual Status payload_received(std::size_t bytes);
  // A whole frame is here. `message` is valid during the call only. The handler may send() and
  // close() inside.
  virtual void on_frame(const FrameHeader& header, std::span<const std::byte> message,
                        MutableBytes payload) = 0;
  // The peer broke the protocol, or payload_memory failed: what to tell it before the connection
  // closes. `spoken` is what the peer speaks: something else than frames where it has connected to
  // the wrong port; it may be answered in that. Nothing by default.
  [[nodiscard]] virtual std::optional<OutgoingFrame> goodbye(const Status& failure, Dialect spoken);
  // Called once, as the last call: the peer closed (cancelled), broke the protocol (malformed,
  // invalid), stopped reading (overloaded, timeout), fell silent (timeout), the network failed
  // (unavailable), or what close() was given; cancelled after close_after_sending().
  virtual void on_closed(const Status& reason) = 0;
};

struct ConnectionOptions {
  FrameLimits limits;
  std::size_t max_queued_bytes =
      64U << 20U;  // written but not yet taken by the peer; beyond it: closed
  Duration write_timeout = std::chrono::seconds(10);  // without any progress of a write
  // Without a byte received within this time the peer is gone. Zero: no limit (clients may idle).
  Duration read_timeout{};
  // The same, but only once a frame has begun, and for the TLS handshake as a whole. Zero: no
  // limit.
  Duration frame_timeout = std::chrono::seconds(30);
  // Within which a first byte must come, after the TLS handshake where there is one. Zero: no
  // limit.
  Duration first_timeout{};
  // How fast a frame that has begun must come. Who is slower is told (timeout), then closed.
  PaceLimits pace{};
};

class Connection {
 public:
  // Takes the socket over and starts reading. The first callback comes after this returns.
  [[nodiscard]] static std::shared_ptr<Connection> start(Stream stream,
                                                         const ConnectionOptions& options,
                                                         ConnectionHandler& handler);

  // Queues a frame. After closing it is dropped.
  void send(OutgoingFrame frame);
  // Sends what is queued, then closes: for goodbye errors. Bounded by the write timeout; the peer
  // gets up to a second to read its last bytes and to close its side. Frames that still arrive are
  // discarded.
  void close_after_sending();
  // Closes now; on_closed follows unless it was already called. REQUIRES: a failed status.
  void close(const Status& reason);

  // Of frames that were sent and not yet taken by the kernel, with what keeping them costs.
  [[nodiscard]] std::size_t queued_bytes() const;
  // No whole frame has come so far.
  [[nodiscard]] bool silent() const;
  // When the last whole frame came, or the connection began.
  [[nodiscard]] std::chrono::steady_clock::time_point last_frame() const;
  // As Stream's.
  [[nodiscard]] bool peer_certifies(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> peer_names() const;
  [[nodiscard]] std::string peer_address() const;

  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  class Impl;
  explicit Connection(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the operations in flight
};

}  // namespace gpulet::net
