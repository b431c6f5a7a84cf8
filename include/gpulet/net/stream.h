// Stream: the bytes of one stream socket, as they are or under TLS.
//
// Plain it is the socket and costs a branch a call. Under TLS the handshake happens inside the
// first reads and writes; shaking_hands() says whether it is still under way, and whoever owns the
// stream bounds it in time. Single-strand type, as Connection. Not to be moved while an operation
// is in flight; a handler keeps the stream alive and is never called from within a call.
//
// A peer that ends the connection without saying so under TLS has ended it all the same: what is
// sent here carries its own length.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/asio.h"
#include "gpulet/net/tls.h"

namespace gpulet::net {

using StreamSocket = asio::generic::stream_protocol::socket;

class TlsChannel;

class Stream {
 public:
  using Error = boost::system::error_code;

  Stream(StreamSocket socket);  // NOLINT(google-explicit-constructor): a plain socket is a stream
  // Under TLS; without a context, plain. A client names the host that the peer's certificate must
  // be for.
  Stream(StreamSocket socket, const TlsContextPointer& tls, const std::string& host = {});
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  [[nodiscard]] auto get_executor() { return socket_.get_executor(); }
  // Once, before the first operation: reads and writes do not block, and small ones leave at once.
  void prepare();

  // One buffer, or an array of two.
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_ == nullptr) return socket_.async_read_some(buffers, std::forward<Handler>(handler));
    read_securely(two(buffers), std::forward<Handler>(handler));
  }
  // Until there may be something to read.
  template <typename Handler>
  void async_wait_readable(Handler&& handler) {
    if (tls_ == nullptr)
      return socket_.async_wait(StreamSocket::wait_read, std::forward<Handler>(handler));
    wait_readable_securely(std::forward<Handler>(handler));
  }
  // What can be written now: less than all of it, or would_block, means async_wait_writable() and
  // the same bytes again.
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

  // Cancels what is in flight.
  void cancel();
  // Nothing more will be written: the peer reads an end.
  void shutdown_send();
  void close();
  // The descriptor, which is the caller's from then on. REQUIRES: plain, no operation in flight.
  [[nodiscard]] int release();

  [[nodiscard]] bool shaking_hands() const;
  // TLS itself failed: what is read from now on is of no use but for being thrown away, so that the
  // peer gets to read why.
  [[nodiscard]] bool broken() const;
  // TLS failed because what came from the peer is not TLS.
  [[nodiscard]] bool peer_is_plain() const;
  // From here on plain, so that a peer that does not speak TLS can be told. REQUIRES: broken(), and
  // no operation in flight.
  void speak_plain();
  // An error of this stream's in words.
  [[nodiscard]] std::string describe(const Error& error) const;

  // Whether the peer showed a certificate for `name`, and the names that it is for; none without
  // TLS, or before the end of the handshake.
  [[nodiscard]] bool peer_certifies(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> peer_names() const;
  // The address of the peer, without its port; empty where it has none, or is gone.
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
  // Reads, and lets a write go on that waits for the end of the handshake.
  [[nodiscard]] std::size_t read_now(const TwoBuffers& buffers, Error& error);
  [[nodiscard]] std::size_t write_securely(std::span<const asio::const_buffer> pieces,
                                           Error& error);

  StreamSocket socket_;
  std::unique_ptr<TlsChannel> tls_;  // null: plain
  std::weak_ptr<OnReady> waiting_to_write_;
};

}  // namespace gpulet::net
