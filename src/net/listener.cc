#include "gpulet/net/listener.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gpulet::net {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" +
         std::to_string(endpoint.port());
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, const ListenerOptions& options, OnSocket on_socket)
      : acceptor_(executor),
        pause_timer_(executor),
        options_(options),
        tls_(options.tls),
        on_socket_(std::move(on_socket)),
        places_(options.places),
        pause_(options.first_pause) {}

  [[nodiscard]] Status open(const tcp::endpoint& endpoint);
  void accept();
  void close();
  void use_tls(TlsContextPointer tls) { tls_ = std::move(tls); }

  [[nodiscard]] tcp::endpoint local_endpoint() const { return local_; }
  [[nodiscard]] const Places& places() const { return places_; }
  [[nodiscard]] std::uint64_t failed_accepts() const { return failed_accepts_; }

 private:
  void on_accepted(const error_code& error, tcp::socket socket);
  void pause();
  [[nodiscard]] ConnectionSlot place_for(int descriptor);

  tcp::acceptor acceptor_;
  asio::steady_timer pause_timer_;
  const ListenerOptions options_;
  TlsContextPointer tls_;
  OnSocket on_socket_;
  tcp::endpoint local_;
  Places places_;
  tcp::endpoint peer_;  // of the accept under way
  std::uint64_t failed_accepts_ = 0;
  Duration pause_;
  bool closed_ = false;
};

Status Listener::Impl::open(const tcp::endpoint& endpoint) {
  error_code error;
  acceptor_.open(endpoint.protocol(), error);
  // A daemon that restarts takes its port again although old connections still linger in the
  // kernel.
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) local_ = acceptor_.local_endpoint(error);
  if (!error) return {};
  return {StatusCode::unavailable, "cannot listen on " + to_text(endpoint) + ": " +
                                       error.message() +
                                       "; choose another address or port, or stop what uses it"};
}

void Listener::Impl::accept() {
  acceptor_.async_accept(peer_,
                         [self = shared_from_this()](const error_code& error, tcp::socket socket) {
                           self->on_accepted(error, std::move(socket));
                         });
}

void Listener::Impl::on_accepted(const error_code& error, tcp::socket socket) {
  if (closed_) return;
  if (error) {
    ++failed_accepts_;
    return pause();
  }
  pause_ = options_.first_pause;
  if (ConnectionSlot place = place_for(socket.native_handle())) {
    on_socket_(Stream(std::move(socket), tls_), std::move(place));
    if (closed_) return;
  } else {
    error_code ignored;  // closing is all that can be done for it
    socket.close(ignored);
  }
  accept();
}

// Without descriptors every further accept fails at once: wait until some connection has ended.
void Listener::Impl::pause() {
  pause_timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, options_.longest_pause);
  pause_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->closed_) self->accept();
  });
}

// Descriptors are the lowest that are free: a high one says that nearly all are in use.
ConnectionSlot Listener::Impl::place_for(int descriptor) {
  const Place::TimePoint now = std::chrono::steady_clock::now();
  if (descriptor > options_.last_descriptor && places_.make_room(now) == 0) return nullptr;
  return places_.take(address_key(peer_.address()), now);
}

void Listener::Impl::close() {
  closed_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_timer_.cancel();
}

Result<std::unique_ptr<Listener>> Listener::listen(const asio::any_io_executor& executor,
                                                   const std::string& host, std::uint16_t port,
                                                   const ListenerOptions& options,
                                                   OnSocket on_socket) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return Status(StatusCode::invalid,
                  "cannot listen on \"" + host +
                      "\": it must be a numeric address, such as 127.0.0.1, 0.0.0.0 or ::");
  }
  auto impl = std::make_shared<Impl>(executor, options, std::move(on_socket));
  if (const Status status = impl->open({address, port}); !status.ok()) return status;
  impl->accept();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { impl_->close(); }

std::uint16_t Listener::port() const { return impl_->local_endpoint().port(); }
std::string Listener::local_address() const { return to_text(impl_->local_endpoint()); }
std::size_t Listener::connections() const { return impl_->places().taken(); }
const Places& Listener::places() const { return impl_->places(); }
std::uint64_t Listener::failed_accepts() const { return impl_->failed_accepts(); }
void Listener::use_tls(TlsContextPointer tls) { impl_->use_tls(std::move(tls)); }
void Listener::close() { impl_->close(); }

}  // namespace gpulet::net
