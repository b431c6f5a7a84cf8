#include "gpulet/net/http/server.h"

#include <algorithm>
#include <list>
#include <utility>

#include "net/http/session.h"

namespace gpulet::net::http {
namespace {

constexpr Duration kFinestSweep = std::chrono::milliseconds(5);
constexpr Duration kCoarsestSweep = std::chrono::seconds(1);
constexpr int kSweepsPerTimeout = 8;

// How late a deadline may be noticed: a fraction of the shortest timeout.
Duration sweep_period(const HttpServerOptions& options) {
  const Duration shortest =
      std::min({options.header_timeout, options.progress_timeout, options.idle_timeout,
                options.first_timeout, options.pace.window});
  return std::clamp(shortest / kSweepsPerTimeout, kFinestSweep, kCoarsestSweep);
}

}  // namespace

std::shared_ptr<const RequestRoute> RequestHandler::route(const HttpRequest&) { return nullptr; }
RequestHandler::BodyBound RequestHandler::body_bound(const HttpRequest&) { return {}; }
bool RequestHandler::may_use_reserve(const HttpRequest&) { return false; }

// One timer checks the deadlines of all sessions; a timer per session would slow every request.
class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, const HttpServerOptions& options, BufferPool& buffers,
       RequestHandler& handler)
      : context_(std::make_shared<SessionContext>(SessionContext{options, buffers, handler})),
        sweep_timer_(executor),
        sweep_period_(sweep_period(options)) {}

  [[nodiscard]] Status listen(const asio::any_io_executor& executor, const std::string& host,
                              std::uint16_t port) {
    ListenerOptions options;
    options.connections = context_->options.connections;
    options.last_descriptor = context_->options.last_descriptor;
    options.tls = context_->options.tls;
    auto listener = Listener::listen(executor, host, port, options,
                                     [this](Stream stream, ConnectionSlotPointer slot) {
                                       on_socket(std::move(stream), std::move(slot));
                                     });
    if (listener.ok()) listener_ = std::move(listener).value();
    return listener.status();
  }

  void start_leaving() { context_->leaving = true; }

  void drain() {
    context_->draining = true;
    listener_->close();
    for_each_session([](Session& session) { session.drain(); });
  }

  void close() {
    listener_->close();
    sweep_timer_.cancel();
    sweep_scheduled_ = true;  // for good, so that no other sweep is scheduled
    for_each_session([](Session& session) { session.abandon(); });
    sessions_.clear();
  }

  void close_matching(const std::function<bool(const access::PeerIdentity&)>& matches) {
    for_each_session([&matches](Session& session) {
      if (matches(session.peer())) session.close();
    });
  }

  [[nodiscard]] Listener& listener() { return *listener_; }
  [[nodiscard]] std::size_t connections() const { return sessions_.size(); }

 private:
  void on_socket(Stream stream, ConnectionSlotPointer slot) {
    const auto place = sessions_.emplace(sessions_.end());
    *place = std::make_shared<Session>(std::move(stream), std::move(slot), context_,
                                       [this, place] { sessions_.erase(place); });
    const std::shared_ptr<Session> session = *place;  // start() may close it, which erases `place`
    session->start();
    if (!sweep_scheduled_) schedule_sweep();
  }

  void schedule_sweep() {
    sweep_scheduled_ = true;
    sweep_due_ = Session::Clock::now() + sweep_period_;
    sweep_timer_.expires_at(sweep_due_);
    sweep_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->sweep();
    });
  }

  void sweep() {
    const Session::Clock::time_point now = Session::Clock::now();
    if (grace_.counts_sweep(sweep_due_, now))
      for_each_session([now](Session& session) { session.check_deadlines(now); });
    sweep_scheduled_ = false;
    if (!sessions_.empty()) schedule_sweep();
  }

  // REQUIRES: `act` closes no session but its argument.
  template <typename Act>
  void for_each_session(Act act) {
    for (auto place = sessions_.begin(); place != sessions_.end();) {
      const std::shared_ptr<Session> session = *place;
      ++place;
      act(*session);
    }
  }

  const std::shared_ptr<SessionContext> context_;
  std::unique_ptr<Listener> listener_;
  std::list<std::shared_ptr<Session>> sessions_;
  asio::steady_timer sweep_timer_;
  const Duration sweep_period_;
  Session::Clock::time_point sweep_due_{};
  StandstillGrace grace_;
  bool sweep_scheduled_ = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const asio::any_io_executor& executor,
                                                       const std::string& host, std::uint16_t port,
                                                       const HttpServerOptions& options,
                                                       BufferPool& buffers,
                                                       RequestHandler& handler) {
  auto impl = std::make_shared<Impl>(executor, options, buffers, handler);
  if (const Status status = impl->listen(executor, host, port); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->close(); }

std::uint16_t HttpServer::port() const { return impl_->listener().port(); }
std::string HttpServer::local_address() const { return impl_->listener().local_address(); }
std::size_t HttpServer::connections() const { return impl_->connections(); }
const ConnectionSlots& HttpServer::slots() const { return impl_->listener().slots(); }
void HttpServer::start_leaving() { impl_->start_leaving(); }
void HttpServer::stop_listening() { impl_->listener().close(); }
void HttpServer::drain() { impl_->drain(); }
void HttpServer::use_tls(TlsContextPointer tls) { impl_->listener().use_tls(std::move(tls)); }
void HttpServer::close_matching(const std::function<bool(const access::PeerIdentity&)>& matches) {
  impl_->close_matching(matches);
}

}  // namespace gpulet::net::http
