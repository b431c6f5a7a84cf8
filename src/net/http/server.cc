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

// The sessions of one executor. One timer checks the deadlines of all of them; a timer per session
// would slow every request.
class HttpServer::Sessions : public std::enable_shared_from_this<HttpServer::Sessions> {
 public:
  Sessions(const Place& place, const HttpServerOptions& options, BufferPool& buffers)
      : context_(std::make_shared<SessionContext>(SessionContext{options, buffers, place.handler})),
        sweep_timer_(place.executor),
        sweep_period_(sweep_period(options)) {}

  [[nodiscard]] asio::any_io_executor executor() { return sweep_timer_.get_executor(); }

  void add(Stream stream, ConnectionSlotPointer slot) {
    const auto place = sessions_.emplace(sessions_.end());
    *place = std::make_shared<Session>(std::move(stream), std::move(slot), context_,
                                       [this, place] { sessions_.erase(place); });
    const std::shared_ptr<Session> session = *place;  // start() may close it, which erases `place`
    session->start();
    if (!sweep_scheduled_) schedule_sweep();
  }

  void start_leaving() { context_->leaving = true; }

  void drain() {
    context_->draining = true;
    for_each_session([](Session& session) { session.drain(); });
  }

  void close() {
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

 private:
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
  std::list<std::shared_ptr<Session>> sessions_;
  asio::steady_timer sweep_timer_;
  const Duration sweep_period_;
  Session::Clock::time_point sweep_due_{};
  StandstillGrace grace_;
  bool sweep_scheduled_ = false;
};

HttpServer::HttpServer(std::vector<std::shared_ptr<Sessions>> sessions,
                       std::unique_ptr<Listener> listener, asio::any_io_executor executor)
    : sessions_(std::move(sessions)),
      listener_(std::move(listener)),
      executor_(std::move(executor)) {}

HttpServer::~HttpServer() {
  listener_->close();
  for (const auto& sessions : sessions_) sessions->close();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const asio::any_io_executor& executor,
                                                       const std::string& host, std::uint16_t port,
                                                       const HttpServerOptions& options,
                                                       BufferPool& buffers,
                                                       RequestHandler& handler) {
  return listen(executor, host, port, options, buffers, std::vector<Place>{{executor, handler}});
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const asio::any_io_executor& executor,
                                                       const std::string& host, std::uint16_t port,
                                                       const HttpServerOptions& options,
                                                       BufferPool& buffers,
                                                       const std::vector<Place>& places) {
  ListenerOptions listens;
  listens.connections = options.connections;
  listens.last_descriptor = options.last_descriptor;
  listens.tls = options.tls;
  std::vector<std::shared_ptr<Sessions>> all;
  std::vector<Listener::Receiver> receivers;
  for (const Place& place : places) {
    all.push_back(std::make_shared<Sessions>(place, options, buffers));
    receivers.push_back(
        {place.executor, [sessions = all.back()](Stream stream, ConnectionSlotPointer slot) {
           sessions->add(std::move(stream), std::move(slot));
         }});
  }
  auto listener = Listener::listen(executor, host, port, listens, std::move(receivers));
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(all), std::move(listener).value(), executor));
}

void HttpServer::each(const std::function<void(Sessions&)>& act) {
  for (const auto& sessions : sessions_) {
    if (sessions->executor() == executor_) {
      act(*sessions);
    } else {
      asio::post(sessions->executor(), [act, sessions] { act(*sessions); });
    }
  }
}

std::uint16_t HttpServer::port() const { return listener_->port(); }
std::string HttpServer::local_address() const { return listener_->local_address(); }
std::size_t HttpServer::connections() const { return listener_->connections(); }
const ConnectionSlots& HttpServer::slots() const { return listener_->slots(); }
void HttpServer::start_leaving() {
  each([](Sessions& sessions) { sessions.start_leaving(); });
}
void HttpServer::stop_listening() { listener_->close(); }
void HttpServer::drain() {
  listener_->close();
  each([](Sessions& sessions) { sessions.drain(); });
}
void HttpServer::use_tls(TlsContextPointer tls) { listener_->use_tls(std::move(tls)); }
void HttpServer::close_matching(const std::function<bool(const access::PeerIdentity&)>& matches) {
  each([matches](Sessions& sessions) { sessions.close_matching(matches); });
}

}  // namespace gpulet::net::http
