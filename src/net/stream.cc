#include "gpulet/net/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "net/tls_channel.h"

namespace gpulet::net {
Stream::Stream(StreamSocket socket) : socket_(std::move(socket)) {}

Stream::Stream(StreamSocket socket, const TlsContextPointer& tls, const std::string& host)
    : socket_(std::move(socket)) {
  if (tls) tls_ = std::make_unique<TlsChannel>(tls, socket_.native_handle(), host);
}

Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

void Stream::prepare() {
  Error ignored;  // a broken socket fails its first read
  socket_.non_blocking(true, ignored);
  const int family = socket_.local_endpoint(ignored).protocol().family();
  if (family == AF_INET || family == AF_INET6)
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Stream::read_securely(const TwoBuffers& buffers, OnRead handler) {
  if (tls_->broken()) return socket_.async_read_some(buffers, std::move(handler));
  Error error;
  const std::size_t bytes = read_now(buffers, error);
  if (error == asio::error::would_block) return wait_and_read(buffers, std::move(handler));
  asio::post(socket_.get_executor(),
             [handler = std::move(handler), error, bytes] { handler(error, bytes); });
}

void Stream::wait_and_read(const TwoBuffers& buffers, OnRead handler) {
  socket_.async_wait(tls_->read_waits_for(),
                     [this, buffers, handler = std::move(handler)](Error error) mutable {
                       if (error) return handler(error, 0);
                       if (!socket_.is_open()) return handler(asio::error::operation_aborted, 0);
                       if (tls_->broken())
                         return socket_.async_read_some(buffers, std::move(handler));
                       const std::size_t bytes = read_now(buffers, error);
                       if (error == asio::error::would_block)
                         return wait_and_read(buffers, std::move(handler));
                       handler(error, bytes);
                     });
}

std::size_t Stream::read_some(const asio::mutable_buffer& buffer, Error& error) {
  if (!tls_ || tls_->broken()) return socket_.read_some(buffer, error);
  return read_now(two(buffer), error);
}

void Stream::wait_readable_securely(OnReady handler) {
  if (!tls_->holds_bytes()) return socket_.async_wait(StreamSocket::wait_read, std::move(handler));
  asio::post(socket_.get_executor(), [handler = std::move(handler)] { handler({}); });
}

std::size_t Stream::write_securely(std::span<const asio::const_buffer> pieces, Error& error) {
  return tls_->write(pieces, error);
}

// A write during the handshake waits for bytes from the peer. If a read consumes them, the socket
// does not signal them, so that the read must wake the write.
void Stream::wait_writable_securely(OnReady handler) {
  const auto waiting = std::make_shared<OnReady>(std::move(handler));
  waiting_to_write_ = waiting;
  socket_.async_wait(tls_->write_waits_for(), [waiting](const Error& error) {
    if (const OnReady waited = std::exchange(*waiting, nullptr)) waited(error);
  });
}

std::size_t Stream::read_now(const TwoBuffers& buffers, Error& error) {
  const bool was_handshaking = tls_->handshaking();
  const std::size_t bytes = tls_->read(buffers, error);
  if (!was_handshaking || tls_->handshaking()) return bytes;
  if (const auto waiting = std::exchange(waiting_to_write_, {}).lock()) {
    asio::post(socket_.get_executor(), [waiting] {
      if (const OnReady waited = std::exchange(*waiting, nullptr)) waited({});
    });
  }
  return bytes;
}

void Stream::cancel() {
  Error ignored;
  socket_.cancel(ignored);
}

void Stream::shutdown_send() {
  if (tls_) tls_->send_close();
  Error ignored;  // after a disconnect the read fails
  socket_.shutdown(StreamSocket::shutdown_send, ignored);
}

void Stream::close() {
  if (tls_ && socket_.is_open()) tls_->send_close();
  Error ignored;
  socket_.close(ignored);
}

int Stream::release() { return socket_.release(); }

bool Stream::handshaking() const { return tls_ && tls_->handshaking(); }
bool Stream::broken() const { return tls_ && tls_->broken(); }

bool Stream::peer_is_plain() const { return tls_ && tls_->peer_is_plain(); }
void Stream::drop_tls() { tls_.reset(); }

std::string Stream::describe(const Error& error) const {
  const bool of_tls = tls_ && !tls_->failure().empty();
  return of_tls ? "TLS: " + tls_->failure() : error.message();
}

bool Stream::peer_certifies(const std::string& name) const {
  return tls_ && !tls_->handshaking() && certificate_is_for(tls_->peer_certificate(), name);
}

std::vector<std::string> Stream::peer_names() const {
  if (!tls_ || tls_->handshaking()) return {};
  return names_of(tls_->peer_certificate());
}

std::string Stream::peer_address() const {
  Error error;
  const StreamSocket::endpoint_type peer = socket_.remote_endpoint(error);
  const int family = peer.protocol().family();
  if (error || (family != AF_INET && family != AF_INET6)) return {};
  asio::ip::tcp::endpoint internet;
  internet.resize(peer.size());
  std::memcpy(internet.data(), peer.data(), peer.size());
  const asio::ip::address address = internet.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

// ---- Pace

Pace::Pace(const PaceLimits& limits)
    : limits_(limits),
      bytes_of_window_(static_cast<std::size_t>(static_cast<double>(limits.bytes_per_second) *
                                                to_seconds(limits.window))) {}

void Pace::begin(TimePoint now) {
  active_ = true;
  end_ = limits_.longest > Duration::zero() ? now + limits_.longest : TimePoint::max();
  begin_window(now);
}

void Pace::received(std::size_t bytes, TimePoint now) {
  if (bytes < missing_) {
    missing_ -= bytes;
  } else {
    begin_window(now);
  }
}

// A window ends as soon as its bytes have arrived, so that a burst does not allow a later pause.
void Pace::begin_window(TimePoint now) {
  missing_ = bytes_of_window_;
  deadline_ = bytes_of_window_ > 0 ? std::min(now + limits_.window, end_) : end_;
}

std::string Pace::demand() const {
  std::string text;
  if (limits_.bytes_per_second > 0)
    text = fmt::format("{} bytes a second", limits_.bytes_per_second);
  if (limits_.longest > Duration::zero()) {
    text += fmt::format("{}all of it within {} s", text.empty() ? "" : ", and ",
                        limits_.longest / std::chrono::seconds(1));
  }
  return text;
}

}  // namespace gpulet::net
