// TlsChannel: one connection's TLS over a socket that does not block. Private to net. Single-strand
// type; it waits for nothing itself: a call that cannot go on says would_block, and for what.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpulet/net/stream.h"

namespace gpulet::net {

class TlsContext::Impl {
 public:
  explicit Impl(bool connects);

  const bool connects;
  // How channels reach their sockets: OpenSSL's own way raises SIGPIPE where a peer is gone.
  std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)> transport;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
};

// Of a certificate; null: none.
[[nodiscard]] bool certificate_is_for(X509* certificate, const std::string& name);
[[nodiscard]] std::vector<std::string> names_of(const X509* certificate);

class TlsChannel {
 public:
  using Error = Stream::Error;

  TlsChannel(TlsContextPointer context, int socket, const std::string& host);

  // At least one byte, or an error: would_block, eof, or what ended the connection. REQUIRES: room
  // for a byte.
  [[nodiscard]] std::size_t read(std::span<const asio::mutable_buffer> buffers, Error& error);
  // As many as can be written now; would_block where that is none.
  [[nodiscard]] std::size_t write(std::span<const asio::const_buffer> pieces, Error& error);
  void say_end();

  // What to wait for before trying again, after would_block or less than all.
  [[nodiscard]] StreamSocket::wait_type read_waits_for() const { return read_waits_for_; }
  [[nodiscard]] StreamSocket::wait_type write_waits_for() const { return write_waits_for_; }
  // Bytes are here that no event of the socket will tell of.
  [[nodiscard]] bool holds_bytes() const;
  [[nodiscard]] bool shaking_hands() const;
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // A server's: what came first from the peer is not TLS.
  [[nodiscard]] bool peer_is_plain() const { return peer_is_plain_; }
  [[nodiscard]] X509* peer_certificate() const;

 private:
  [[nodiscard]] Error error_of(int result, StreamSocket::wait_type& waits_for);
  [[nodiscard]] std::string why_broken() const;
  [[nodiscard]] static bool not_tls();

  TlsContextPointer context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  const std::string host_;
  StreamSocket::wait_type read_waits_for_ = StreamSocket::wait_read;
  StreamSocket::wait_type write_waits_for_ = StreamSocket::wait_write;
  Error ended_;  // found while there were bytes to hand over first
  bool broken_ = false;
  bool peer_is_plain_ = false;
  std::string failure_;
};

}  // namespace gpulet::net
