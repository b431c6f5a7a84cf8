// TlsChannel: TLS over one non-blocking socket. Never waits: a call that cannot proceed returns
// would_block and the event to wait for. Private to net. Single-strand type.
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
  explicit Impl(bool client);

  const bool connects;  // a client
  // Socket I/O of the channels; OpenSSL's own raises SIGPIPE after a disconnect.
  std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)> transport;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
};

// False and empty for a null certificate.
[[nodiscard]] bool certificate_is_for(X509* certificate, const std::string& name);
[[nodiscard]] std::vector<std::string> names_of(const X509* certificate);

class TlsChannel {
 public:
  using Error = Stream::Error;

  TlsChannel(TlsContextPointer context, int socket, const std::string& host);

  // Reads at least one byte or sets an error: would_block, eof, or the failure of the connection.
  // REQUIRES: the buffers are not empty.
  [[nodiscard]] std::size_t read(std::span<const asio::mutable_buffer> buffers, Error& error);
  // Writes as much as the socket takes now; would_block if it takes nothing.
  [[nodiscard]] std::size_t write(std::span<const asio::const_buffer> pieces, Error& error);
  // Sends close_notify.
  void send_close();

  // The event to wait for after would_block or a partial write.
  [[nodiscard]] StreamSocket::wait_type read_waits_for() const { return read_waits_for_; }
  [[nodiscard]] StreamSocket::wait_type write_waits_for() const { return write_waits_for_; }
  // True if decrypted bytes are buffered, which the socket will not signal.
  [[nodiscard]] bool holds_bytes() const;
  [[nodiscard]] bool handshaking() const;
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // On a server: the peer's first bytes are not TLS.
  [[nodiscard]] bool peer_is_plain() const { return peer_is_plain_; }
  [[nodiscard]] X509* peer_certificate() const;

 private:
  [[nodiscard]] Error error_of(int result, StreamSocket::wait_type& waits_for);
  [[nodiscard]] std::string failure_text() const;
  [[nodiscard]] std::string not_tls_text() const;
  [[nodiscard]] static bool not_tls();

  TlsContextPointer context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  const std::string host_;
  StreamSocket::wait_type read_waits_for_ = StreamSocket::wait_read;
  StreamSocket::wait_type write_waits_for_ = StreamSocket::wait_write;
  Error ended_;  // reported by the next read(), after the bytes before it
  bool broken_ = false;
  bool peer_is_plain_ = false;
  std::string failure_;
};

}  // namespace gpulet::net
