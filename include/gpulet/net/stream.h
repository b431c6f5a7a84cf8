// Stream: the bytes of one stream socket, plain or under TLS. Pace: the minimum rate at which a
// peer must send.
//
// A plain stream costs a branch per call. Under TLS the handshake happens inside the first reads
// and writes; the owner limits its duration by polling handshaking(). Single-strand type, as
// Connection. Must not be moved while an operation is in flight. Handlers keep the stream alive and
// are never called from within a call.
//
// A peer may end a TLS connection without a close_notify: every message carries its own length.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/tls.h"

namespace gpulet::net {

// The minimum rate of a frame or body that has begun, because it holds memory and a slot.
struct PaceLimits {
  std::size_t bytes_per_second = 0;            // averaged over a window; 0: no limit
  Duration window = std::chrono::seconds(10);  // also the grace period at the start
  Duration longest{};                          // from first to last byte; zero: no limit
};

// Pure: the time is an argument. One thread at a time.
class Pace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Pace(const PaceLimits& limits);

  // The first byte arrived.
  void begin(TimePoint now);
  // The last byte arrived.
  void end() { active_ = false; }
  [[nodiscard]] bool active() const { return active_; }
  void received(std::size_t bytes, TimePoint now);
  // When the peer is too slow unless more bytes arrive before; max: never.
  [[nodiscard]] TimePoint deadline() const { return active_ ? deadline_ : TimePoint::max(); }
  // The required rate in words, for an error message.
  [[nodiscard]] std::string demand() const;

 private:
  void begin_window(TimePoint now);

  PaceLimits limits_;
  std::size_t bytes_of_window_;
  bool active_ = false;
  std::size_t missing_ = 0;  // bytes still to come in this window
  TimePoint end_;            // latest time of the last byte
  TimePoint deadline_;
};

using StreamSocket = asio::generic::stream_protocol::socket;

class TlsChannel;

class Stream {
 public:
  using Error = boost::system::error_code;

  Stream(StreamSocket socket);  // NOLINT(google-explicit-constructor): a plain socket is a stream
  // Under TLS; plain without a context. A client passes the host that the certificate must name.
  Stream(StreamSocket socket, const TlsContextPointer& tls, const std::string& host = {});
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  [[nodiscard]] auto get_executor() { return socket_.get_executor(); }
  // Sets the socket to non-blocking and TCP_NODELAY. Called once, before the first operation.
  void prepare();

  // One buffer, or an array of two.
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_ == nullptr) return socket_.async_read_some(buffers, std::forward<Handler>(handler));
    read_securely(two(buffers), std::forward<Handler>(handler));
  }
  // Completes when there may be something to read.
  template <typename Handler>
  void async_wait_readable(Handler&& handler) {
    if (tls_ == nullptr)
      return socket_.async_wait(StreamSocket::wait_read, std::forward<Handler>(handler));
    wait_readable_securely(std::forward<Handler>(handler));
  }
  // Reads what has arrived, or sets an error: would_block, eof, or the failure of the connection.
  std::size_t read_some(const asio::mutable_buffer& buffer, Error& error);
  // Writes as much as the socket takes now. After a partial write or would_block, call
  // async_wait_writable(), then write the remaining bytes again.
  template <typename Pieces>
  std::size_t write_some(const Pieces& pieces, Error& error) {
    if (tls_ == nullptr) return socket_.write_some(pieces, error);
    return write_securely({pieces.begin(), pieces.end()}, error);
  }
  template <typename Handler>
  void async_wait_writable(Handler&& handler) {
    if (tls_ == nullptr)
      return socket_.async_wait(StreamSocket::wait_write, std::forward<Handler>(handler));
    wait_writable_securely(std::forward<Handler>(handler));
  }

  // Cancels the operations in flight.
  void cancel();
  // Ends the sending direction: the peer reads an end of file.
  void shutdown_send();
  void close();
  // Transfers the descriptor to the caller. REQUIRES: plain, no operation in flight.
  [[nodiscard]] int release();

  [[nodiscard]] bool handshaking() const;
  // TLS failed. Further bytes are only read to be discarded, so that the peer receives the alert.
  [[nodiscard]] bool broken() const;
  // TLS failed because the peer does not use TLS.
  [[nodiscard]] bool peer_is_plain() const;
  // Lets a peer without TLS be sent an error. REQUIRES: broken(), no operation in flight.
  void drop_tls();
  // Describes an error that this stream returned.
  [[nodiscard]] std::string describe(const Error& error) const;

  // Whether the peer's certificate is issued for `name`, and all its names. False and empty without
  // TLS or before the end of the handshake.
  [[nodiscard]] bool peer_certifies(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> peer_names() const;
  // The peer's address without the port; empty where it has none or has disconnected.
  [[nodiscard]] std::string peer_address() const;

 private:
  using TwoBuffers = std::array<asio::mutable_buffer, 2>;
  using OnRead = std::function<void(const Error&, std::size_t)>;
  using OnReady = std::function<void(const Error&)>;

  static TwoBuffers two(const asio::mutable_buffer& buffer) { return {buffer, {}}; }
  static const TwoBuffers& two(const TwoBuffers& buffers) { return buffers; }

  void read_securely(const TwoBuffers& buffers, OnRead handler);
  void wait_and_read(const TwoBuffers& buffers, OnRead handler);
  void wait_readable_securely(OnReady handler);
  void wait_writable_securely(OnReady handler);
  // Reads, and wakes a write that waits for the end of the handshake.
  [[nodiscard]] std::size_t read_now(const TwoBuffers& buffers, Error& error);
  [[nodiscard]] std::size_t write_securely(std::span<const asio::const_buffer> pieces,
                                           Error& error);

  StreamSocket socket_;
  std::unique_ptr<TlsChannel> tls_;  // null: plain
  std::weak_ptr<OnReady> waiting_to_write_;
};

}  // namespace gpulet::net
