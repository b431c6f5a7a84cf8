#include "net/tls_channel.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace gpulet::net {
namespace {

constexpr std::size_t kRecordBytes = 16U << 10U;  // TLS's largest record
constexpr std::size_t kMaxReadAtOnce = 256U << 10U;

bool is_address(const std::string& host) {
  boost::system::error_code not_numeric;
  static_cast<void>(asio::ip::make_address(host, not_numeric));
  return !not_numeric;
}

// The next bytes to write, starting at `offset` in the first piece. Small pieces are gathered in
// `scratch` to save records; large ones are not copied.
std::span<const std::byte> next_record(std::span<const asio::const_buffer> pieces,
                                       std::size_t offset, std::span<std::byte> scratch) {
  const auto* const first = static_cast<const std::byte*>(pieces.front().data()) + offset;
  const std::size_t rest = pieces.front().size() - offset;
  if (rest >= scratch.size() || pieces.size() == 1) return {first, std::min(rest, scratch.size())};
  std::memcpy(scratch.data(), first, rest);
  std::size_t gathered = rest;
  for (const asio::const_buffer& piece : pieces.subspan(1)) {
    const std::size_t taken = std::min(piece.size(), scratch.size() - gathered);
    std::memcpy(scratch.data() + gathered, piece.data(), taken);
    gathered += taken;
    if (gathered == scratch.size()) break;
  }
  return scratch.first(gathered);
}

}  // namespace

TlsChannel::TlsChannel(TlsContextPointer context, int socket, const std::string& host)
    : context_(std::move(context)),
      ssl_(SSL_new(context_->impl().context.get()), &SSL_free),
      host_(host) {
  BIO* const transport = BIO_new(context_->impl().transport.get());
  if (!ssl_ || transport == nullptr) throw std::bad_alloc();
  BIO_set_data(transport, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(transport, 1);
  SSL_set_bio(ssl_.get(), transport, transport);
  if (!context_->impl().connects) {
    SSL_set_accept_state(ssl_.get());
    return;
  }
  // OpenSSL accepts any host for an empty name.
  if (host.empty()) throw std::logic_error("TLS: a client must name the host");
  SSL_set_connect_state(ssl_.get());
  if (is_address(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str());
  } else {
    SSL_set_hostflags(ssl_.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_set1_host(ssl_.get(), host.c_str());
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
  }
}

std::size_t TlsChannel::read(std::span<const asio::mutable_buffer> buffers, Error& error) {
  error = std::exchange(ended_, {});
  if (error) return 0;
  std::size_t total = 0;
  for (const asio::mutable_buffer& buffer : buffers) {
    std::size_t filled = 0;
    while (filled < buffer.size()) {
      if (total >= kMaxReadAtOnce) return total;
      ERR_clear_error();
      errno = 0;
      std::size_t bytes = 0;
      const int result = SSL_read_ex(ssl_.get(), static_cast<std::byte*>(buffer.data()) + filled,
                                     buffer.size() - filled, &bytes);
      if (result != 1) {
        error = error_of(result, read_waits_for_);
        if (total == 0) return 0;
        if (error != asio::error::would_block) ended_ = error;
        error.clear();
        return total;
      }
      filled += bytes;
      total += bytes;
    }
  }
  return total;
}

std::size_t TlsChannel::write(std::span<const asio::const_buffer> pieces, Error& error) {
  std::array<std::byte, kRecordBytes> scratch;
  error.clear();
  std::size_t total = 0;
  std::size_t offset = 0;  // in the first of `pieces`
  while (!pieces.empty()) {
    if (pieces.front().size() == offset) {
      pieces = pieces.subspan(1);
      offset = 0;
      continue;
    }
    const std::span<const std::byte> record = next_record(pieces, offset, scratch);
    ERR_clear_error();
    errno = 0;
    std::size_t bytes = 0;
    const int result = SSL_write_ex(ssl_.get(), record.data(), record.size(), &bytes);
    if (result != 1) {
      error = error_of(result, write_waits_for_);
      if (total > 0 && error == asio::error::would_block) error.clear();
      return total;
    }
    total += bytes;
    for (offset += bytes; !pieces.empty() && offset >= pieces.front().size();) {
      offset -= pieces.front().size();
      pieces = pieces.subspan(1);
    }
  }
  return total;
}

TlsChannel::Error TlsChannel::error_of(int result, StreamSocket::wait_type& waits_for) {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      waits_for = StreamSocket::wait_read;
      return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE:
      waits_for = StreamSocket::wait_write;
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      if (system_error == 0) return asio::error::eof;
      return {system_error, boost::system::system_category()};
    default:
      if (!broken_) {
        failure_ = failure_text();
        peer_is_plain_ =
            !context_->impl().connects && SSL_is_init_finished(ssl_.get()) == 0 && not_tls();
      }
      broken_ = true;
      return {EPROTO, boost::system::system_category()};
  }
}

// True if OpenSSL's last failure means that the peer does not use TLS.
bool TlsChannel::not_tls() {
  const unsigned long code = ERR_peek_error();
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return false;
  const int reason = ERR_GET_REASON(code);
  return reason == SSL_R_HTTP_REQUEST || reason == SSL_R_WRONG_VERSION_NUMBER ||
         reason == SSL_R_PACKET_LENGTH_TOO_LONG;
}

// Names the fix for common failures; otherwise OpenSSL's description.
std::string TlsChannel::failure_text() const {
  const long verified = SSL_get_verify_result(ssl_.get());
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return "the peer's certificate is not issued for " + host_ +
           "; connect to a name in the certificate, or issue one for this name";
  }
  if (verified != X509_V_OK) {
    return std::string("the peer's certificate is rejected: ") +
           X509_verify_cert_error_string(verified);
  }
  const unsigned long code = ERR_peek_error();
  const char* const words = ERR_reason_error_string(code);
  const std::string reason = words == nullptr ? "no reason given" : words;
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return reason;
  switch (ERR_GET_REASON(code)) {
    case SSL_R_HTTP_REQUEST:
      return "received plain HTTP on a TLS port; use https://";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
      return not_tls_text();
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "the peer presented no certificate, and this side requires one";
    default:
      break;
  }
  // Reasons from SSL_AD_REASON_OFFSET on are alerts from the peer.
  if (ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET)
    return "the peer rejected the connection: " + reason;
  return reason;
}

// For both sides' readers: the listening side also sends it to the other one.
std::string TlsChannel::not_tls_text() const {
  if (context_->impl().connects) {
    return "the listening side, " + host_ +
           ", does not use TLS and the connecting side does; set \"tls\" in the listening daemon's "
           "file, or connect without TLS: without --tls-authority, or without \"tls\" in the "
           "connecting daemon's file (docs/security.md)";
  }
  return "the connecting side does not use TLS and the listening side requires it; connect with "
         "TLS: gpulet's commands with --tls-authority, daemons with \"tls\" in their file; or "
         "remove "
         "\"tls\" from the listening daemon's file (docs/security.md)";
}

void TlsChannel::send_close() {
  ERR_clear_error();
  const bool said = (SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0;
  if (!said && !broken_ && !handshaking()) SSL_shutdown(ssl_.get());
}

bool TlsChannel::holds_bytes() const { return ended_.failed() || SSL_has_pending(ssl_.get()) == 1; }

bool TlsChannel::handshaking() const { return !broken_ && SSL_is_init_finished(ssl_.get()) == 0; }

X509* TlsChannel::peer_certificate() const { return SSL_get0_peer_certificate(ssl_.get()); }

}  // namespace gpulet::net
