#include "gpulet/frontend/daemon.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "administration.h"
#include "backend_sessions.h"
#include "catalogue_service.h"
#include "core_host.h"
#include "endpoints.h"
#include "event_names.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/clock.h"
#include "gpulet/net/listener.h"
#include "options.h"
#include "payload_check.h"
#include "served_files.h"
#include "sessions.h"
#include "side_threads.h"
#include "status_service.h"
#include "trace_log.h"

namespace gpulet::frontend {
namespace {

namespace asio = net::asio;

constexpr std::size_t kModelsOfPage = 128;  // of the list of models

}  // namespace

class FrontendDaemon::Impl {
 public:
  Impl(asio::io_context& io, Setup setup, CoreObserver observer)
      : io_(io),
        setup_(std::move(setup)),
        observer_(std::move(observer)),
        started_(net::now()),
        core_(core_options(setup_), setup_.catalogue, started_),
        catalogue_(io, setup_.loader,
                   [this](Result<LoadedCatalogue> read) { take_in(std::move(read)); }),
        wake_(io),
        drain_deadline_(io),
        buffers_(buffer_options(setup_.config)),
        backend_buffers_(buffer_options(setup_.config)),
        host_(io, core_, status_.snapshots(), status_.background(), asked_of_daemon()),
        administration_(io, setup_.config, setup_.security, setup_.audit, ports()) {}

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen() {
    auto clients = net::Listener::listen(
        io_.get_executor(), setup_.config.listen.host, setup_.config.listen.port,
        client_listener_options(setup_.config, setup_.security.clients.context),
        [this](net::Stream stream, net::ConnectionSlot slot) {
          accept_client(std::move(stream), std::move(slot));
        });
    if (!clients.ok()) return clients.status();
    auto backends = net::Listener::listen(
        io_.get_executor(), setup_.config.backend_listen.host, setup_.config.backend_listen.port,
        backend_listener_options(setup_.security.backends.context),
        [this](net::Stream stream, net::ConnectionSlot slot) {
          backend_sessions_.accept(BackendId{next_session_++}, std::move(stream), std::move(slot));
        });
    if (!backends.ok()) return backends.status();
    Endpoints::Daemon daemon;
    daemon.metrics = [this](MetricsHandler::OnPage done) { status_.metrics(std::move(done)); };
    setup_.security.gate->set_device_time(
        [this](std::string_view model) { return host_.device_time(model); });
    daemon.trace = {[this](Duration length) { return trace(length); },
                    [this](std::uint64_t mark) { return traces_.since(mark); }, wall_clock};
    daemon.dashboard = {
        [this](StatusSnapshots::OnSnapshot done) { status_.snapshots().get(std::move(done)); },
        wall_clock};
    daemon.largest_message = largest_message(setup_.config, setup_.catalogue);
    auto endpoints =
        Endpoints::listen(io_, setup_.config, setup_.security, host_, buffers_, std::move(daemon));
    if (!endpoints.ok()) return endpoints.status();
    client_listener_ = std::move(clients).value();
    backend_listener_ = std::move(backends).value();
    endpoints_ = std::move(endpoints).value();
    arm_wake();
    status_.start();
    catalogue_.start();
    administration_.start();
    return {};
  }

  const net::Listener& clients() const { return *client_listener_; }
  const net::Listener& backends() const { return *backend_listener_; }
  const Endpoints& endpoints() const { return *endpoints_; }
  serve::FrontendStatus status() const { return core_.status(net::now()); }
  Time started_at() const { return started_; }

  void stop(std::function<void()> done) {
    if (stopping_) return;
    stopping_ = true;
    on_stopped_ = std::move(done);
    client_listener_->close();
    backend_listener_->close();
    endpoints_->drain(setup_.config.drain_timeout);
    catalogue_.stop();
    host_.end_loads({StatusCode::unavailable, "the frontend stops"});
    administration_.stop();
    drain_deadline_.set_after(setup_.config.drain_timeout, [this] {
      spdlog::warn("the drain timeout has passed with requests in flight");
      finish_stop();
    });
    deliver(serve::Drain{});
  }

 private:
  // ---- the core

  // An event that a backend at that address has caused.
  void deliver(serve::FrontendEvent event, std::string address) {
    cause_ = std::move(address);
    deliver(std::move(event));
    cause_.clear();
  }

  void deliver(serve::FrontendEvent event) {
    if (stopped_) return;
    run_core(std::move(event));
    if (settle_posted_) return;
    settle_posted_ = true;
    asio::post(io_, [this] {
      settle_posted_ = false;
      if (stopped_) return;
      run_core(serve::Settle{});
      arm_wake();
    });
  }

  void run_core(serve::FrontendEvent event) {
    const Time now = net::now();
    // Requests are short and many: reading the clock for each would cost more than it tells.
    std::optional<LoopWatch::Scope> scope;
    if (!std::holds_alternative<serve::ClientSaid>(event))
      scope.emplace(status_.watch(), name_of(event), now);
    effects_.clear();
    if (observer_) {
      const serve::FrontendEvent seen = event;
      core_.on(std::move(event), now, effects_);
      observer_(seen, now, effects_);
    } else {
      core_.on(std::move(event), now, effects_);
    }
    for (serve::FrontendEffect& effect : effects_) {
      std::visit([this](auto& one) { carry_out(one); }, effect);
    }
    host_.settle_loads(now);
    if (when_taken_in_.empty() || core_.takes_in_catalogue()) return;
    for (const auto& tell : std::exchange(when_taken_in_, {})) tell();
  }

  // An alarm that rings too early is cheaper than one that is set anew for every batch.
  void arm_wake() {
    const Time wake = core_.next_wake();
    if (wake >= armed_for_) return;
    armed_for_ = wake;
    wake_.set(wake, [this] {
      armed_for_ = kNever;
      run_core(serve::Settle{});
      arm_wake();
    });
  }

  // ---- what is served

  void take_in(Result<LoadedCatalogue> read, bool by_hand = false) {
    if (!read.ok()) {
      deliver(serve::CatalogueRefused{read.status(), by_hand});
      return;
    }
    LoadedCatalogue& loaded = read.value();
    endpoints_->take_messages_up_to(largest_message(setup_.config, loaded.catalogue));
    deliver(serve::CatalogueChanged{std::move(loaded.catalogue),
                                    by_hand ? loaded.meant : std::vector<std::string>()});
    // In a turn of its own, as it looks at every model. No backend can ask for a file before.
    asio::post(io_, [this, model_files = std::move(loaded.model_files)]() mutable {
      files_.replace(std::move(model_files),
                     [this](const std::string& sha256) { return core_.knows_file(sha256); });
    });
  }

  void change_models(serve::ModelsChange change, net::kserve::ProtocolHost::OnChanged done) {
    catalogue_.change(std::move(change),
                      [this, done = std::move(done)](Result<LoadedCatalogue> read) {
                        change_by_hand(std::move(read), done);
                      });
  }

  void change_by_hand(Result<LoadedCatalogue> read,
                      const net::kserve::ProtocolHost::OnChanged& done) {
    std::vector<std::string> meant = read.ok() ? read.value().meant : std::vector<std::string>();
    when_taken_in_.emplace_back([this, done, status = read.status(), meant = std::move(meant)] {
      done({status, core_.models(meant)});
    });
    take_in(std::move(read), true);
  }

  // ---- the endpoints of standard protocols

  CoreHost::Daemon asked_of_daemon() {
    CoreHost::Daemon daemon;
    daemon.deliver = [this](serve::FrontendEvent event) { deliver(std::move(event)); };
    daemon.new_client = [this] { return ClientId{next_session_++}; };
    daemon.wall_clock = wall_clock;
    daemon.tracing = trace_sampling(setup_.config);
    daemon.change_models = [this](serve::ModelsChange change, CoreHost::OnChanged done) {
      change_models(std::move(change), std::move(done));
    };
    return daemon;
  }

  StatusService::Daemon told_of_status() {
    return {
        wall_clock,
        [this] { return client_sessions_.size() + (endpoints_ ? endpoints_->connections() : 0); },
        [this]() -> const net::CountersByClient& { return setup_.security.gate->counters(); },
        [this](ClientId id, const net::OutgoingFrame& frame) {
          const auto session = client_sessions_.find(id);
          if (session != client_sessions_.end()) session->second->send(frame);
        },
        setup_.config.summary_latencies};
  }

  // Everything that comes within `length`, or what was sampled where it is zero.
  std::uint64_t trace(Duration length) {
    if (length <= Duration::zero()) return 0;
    deliver(serve::TraceUntil{net::now() + length});
    return traces_.mark();
  }

  // ---- effects

  void carry_out(serve::Traced& effect) { traces_.add(std::move(effect.record)); }

  void carry_out(serve::ReplyToClient& effect) {
    if (host_.answer(effect.client, effect.reply)) return;
    const auto found = client_sessions_.find(effect.client);
    if (found != client_sessions_.end())
      found->second->send(serve::FrontendReply(std::move(effect.reply)));
  }

  void carry_out(serve::TellBackend& effect) {
    backend_sessions_.send(effect.backend, effect.command);
  }

  void carry_out(serve::SendModelFile& effect) {
    if (!backend_sessions_.contains(effect.backend)) return;
    if (files_.send(effect.backend, effect.sha256, effect.offset)) return;
    const Status why(StatusCode::overloaded,
                     "it asked for more pieces of model files than the frontend keeps");
    // Not now: effects are being carried out.
    asio::post(io_, [this, id = effect.backend, why] {
      deliver(serve::BackendBroke{id, {serve::PeerViolation::malformed, why}});
    });
  }

  void carry_out(serve::DropBackend& effect) {
    backend_sessions_.refuse(effect.backend, effect.reason);
  }

  void carry_out(serve::MakePlan& effect) { side_threads_.make_plan(std::move(effect)); }
  void carry_out(serve::StepToRun& effect) { side_threads_.run_step(std::move(effect)); }

  void carry_out(const serve::Note& effect) {
    administration_.note(cause_, effect.warning, effect.text);
  }

  void carry_out(const serve::Drained&) {
    asio::post(io_, [this] { finish_stop(); });
  }

  void finish_stop() {
    if (stopped_) return;
    stopped_ = true;
    drain_deadline_.cancel();
    wake_.cancel();
    status_.stop();
    for (auto& [id, session] : client_sessions_) session->close_after_sending();
    backend_sessions_.close_all({StatusCode::cancelled, "the frontend stops"});
    // The replies that are queued leave before the process does.
    asio::post(io_, [done = std::exchange(on_stopped_, nullptr)] { done(); });
  }

  // ---- what files of tokens and certificates say

  Administration::Ports ports() {
    Administration::Ports ports;
    ports.tokens_changed = [this] {
      for (auto& [id, session] : client_sessions_) session->tokens_changed();
      endpoints_->tokens_changed(*setup_.security.gate);
    };
    ports.clients_changed = [this](const PortTls& tls) {
      client_listener_->use_tls(tls.context);
      endpoints_->use_tls(tls);
    };
    ports.backends_changed = [this](const PortTls& tls) {
      backend_listener_->use_tls(tls.context);
    };
    return ports;
  }

  // ---- sessions

  void forget_client(ClientId id) {
    const auto found = client_sessions_.find(id);
    if (found == client_sessions_.end()) return;
    // The session may be on the stack: it ends in a turn of its own.
    asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
    client_sessions_.erase(found);
  }

  void accept_client(net::Stream stream, net::ConnectionSlot slot) {
    const ClientId id{next_session_++};
    const net::ConnectionOptions options = client_options(setup_.config, slot->reserved());
    client_sessions_[id] = std::make_unique<ClientSession>(
        std::move(stream), std::move(slot), options, setup_.security.gate, buffers_,
        port(FramePort::For::clients),
        [this](const serve::InferRequest& request, std::size_t payload_bytes) {
          return takes_payload(core_, request, payload_bytes);
        },
        [this, id](serve::ClientMessage&& message) {
          std::visit([this, id](auto& one) { client_said(id, std::move(one)); }, message);
        },
        [this, id](const Status& reason) {
          spdlog::debug("a client is gone: {}", reason.to_string());
          if (!client_sessions_.contains(id)) return;
          forget_client(id);
          status_.answers().forget(id);
          deliver(serve::ClientGone{id});
        });
  }

  void client_said(ClientId id, serve::InferRequest request) {
    deliver(serve::ClientSaid{id, std::move(request)});
  }
  void client_said(ClientId id, const serve::ModelsRequest& request) {
    client_sessions_.at(id)->send(core_.models_after(request.after, kModelsOfPage));
  }
  void client_said(ClientId id, serve::ModelsChange change) {
    const net::CallNeeds needs = needs_of(change);
    const net::PeerIdentity peer = client_sessions_.at(id)->peer();
    change_models(std::move(change), [this, id, needs, peer](serve::ModelsChanged changed) {
      setup_.security.gate->called(needs, peer, changed.status);
      const auto session = client_sessions_.find(id);
      if (session != client_sessions_.end()) session->second->send(std::move(changed));
    });
  }
  static void client_said(ClientId, const serve::Authenticate&) {}  // its session's own
  void client_said(ClientId id, const serve::StatusRequest&) { status_.answers().ask(id); }

  FramePort port(FramePort::For peers) const {
    return {peers, client_listener_->port(), backend_listener_->port(), endpoints_->http_port(),
            endpoints_->grpc_port()};
  }

  BackendSessions::Owner owner_of_backends() {
    BackendSessions::Owner owner;
    owner.port = [this] { return port(FramePort::For::backends); };
    owner.deliver = [this](serve::FrontendEvent event, const std::string& address) {
      deliver(std::move(event), address);
    };
    owner.breach_of_result = [this](BackendId backend, BatchId batch) {
      return core_.breach_of_result(backend, batch);
    };
    owner.warn = [this](const std::string& address, const std::string& text) {
      administration_.note(address, true, text);
    };
    return owner;
  }

  asio::io_context& io_;
  Setup setup_;
  CoreObserver observer_;
  Time started_;
  serve::FrontendCore core_;
  serve::FrontendEffects effects_;
  std::vector<std::function<void()>> when_taken_in_;  // the catalogue, as a whole
  bool settle_posted_ = false;

  CatalogueService catalogue_;
  net::Alarm wake_;
  Time armed_for_ = kNever;
  net::Alarm drain_deadline_;
  bool stopping_ = false;
  bool stopped_ = false;
  std::function<void()> on_stopped_;

  net::BufferPool buffers_;
  // Of their own: clients that fill theirs must not cost a node its connection.
  net::BufferPool backend_buffers_;
  std::uint64_t next_session_ = 1;
  std::map<ClientId, std::unique_ptr<ClientSession>> client_sessions_;
  BackendSessions backend_sessions_{
      io_, backend_options(setup_.config),
      BackendSession::Options{.certified = setup_.security.backends.context != nullptr},
      backend_buffers_, owner_of_backends()};
  std::unique_ptr<net::Listener> client_listener_;
  std::unique_ptr<net::Listener> backend_listener_;
  StatusService status_{io_, core_, started_, told_of_status()};
  TraceLog traces_;
  CoreHost host_;
  std::string cause_;  // the address of the backend whose event is being handled; empty: none
  Administration administration_;
  std::unique_ptr<Endpoints> endpoints_;
  // Last: they end before anything they use goes.
  SideThreads side_threads_{io_, setup_.policy,
                            [this](serve::FrontendEvent event) { deliver(std::move(event)); }};
  ServedFiles files_{io_,
                     std::move(setup_.model_files),
                     {[this](BackendId backend, serve::ModelPiece piece) {
                        backend_sessions_.send(backend, std::move(piece));
                      },
                      [this] { catalogue_.look_again(); }}};
};

FrontendDaemon::FrontendDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrontendDaemon::~FrontendDaemon() = default;

Result<std::unique_ptr<FrontendDaemon>> FrontendDaemon::start(asio::io_context& io, Setup setup,
                                                              CoreObserver observer) {
  auto impl = std::make_unique<Impl>(io, std::move(setup), std::move(observer));
  if (const Status status = impl->listen(); !status.ok()) return status;
  return std::unique_ptr<FrontendDaemon>(new FrontendDaemon(std::move(impl)));
}

std::string FrontendDaemon::client_address() const { return impl_->clients().local_address(); }
std::string FrontendDaemon::backend_address() const { return impl_->backends().local_address(); }
std::uint16_t FrontendDaemon::client_port() const { return impl_->clients().port(); }
std::uint16_t FrontendDaemon::backend_port() const { return impl_->backends().port(); }
std::uint16_t FrontendDaemon::http_port() const { return impl_->endpoints().http_port(); }
std::uint16_t FrontendDaemon::grpc_port() const { return impl_->endpoints().grpc_port(); }
std::uint16_t FrontendDaemon::metrics_port() const { return impl_->endpoints().metrics_port(); }
serve::FrontendStatus FrontendDaemon::status() const { return impl_->status(); }
Time FrontendDaemon::started_at() const { return impl_->started_at(); }
void FrontendDaemon::stop(std::function<void()> done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::frontend
