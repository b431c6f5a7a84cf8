#include "frontend/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "frontend/administration.h"
#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_files.h"
#include "frontend/catalogue/remote_models.h"
#include "frontend/cluster/cluster_link.h"
#include "frontend/cluster/model_changes.h"
#include "frontend/cluster/peers.h"
#include "frontend/endpoints/core_host.h"
#include "frontend/endpoints/endpoints.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/engine.h"
#include "frontend/frames/client_sessions.h"
#include "frontend/frames/connection_options.h"
#include "frontend/frames/sessions.h"
#include "frontend/loop/event_loop.h"
#include "frontend/loop/heap_trimmer.h"
#include "frontend/observe/status_service.h"
#include "frontend/options.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::frontend {
namespace {

namespace asio = net::asio;

constexpr std::size_t kModelsPerPage = 128;
// Where other frontends take over, clients have that long to use other connections.
constexpr Duration kLeaveWithin = std::chrono::seconds(1);
// After the ports are closed, for the first request of a connection made just before.
constexpr Duration kLastRequests = std::chrono::milliseconds(500);
// A client that sent a request since then may be connected.
constexpr Duration kRecently = std::chrono::seconds(10);

}  // namespace

class FrontendDaemon::Impl final : private Engine::Host,
                                   private ClientRequests,
                                   private PeerQuestions,
                                   private ClusterLink::Listener,
                                   private ModelChanges::Host,
                                   private StatusService::Facts,
                                   private SecurityUser {
 public:
  Impl(asio::io_context& io, Setup setup, std::unique_ptr<cluster::Membership> membership,
       CoreObserver observer)
      : io_(io),
        setup_(std::move(setup)),
        watch_(io),
        engine_(io, setup_, watch_, std::move(observer), *this),
        cluster_(setup_.config, std::move(membership), engine_, *this),
        catalogue_(io, setup_.loader,
                   [this](Result<LoadedCatalogue> read) { apply_catalogue(std::move(read)); }),
        drain_deadline_(io),
        leave_alarm_(io),
        buffers_(buffer_options(setup_)),
        backend_buffers_(buffer_options(setup_)) {}

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen() {
    auto clients = net::Listener::listen(
        io_.get_executor(), setup_.config.listen.host, setup_.config.listen.port,
        client_listener_options(setup_.config, setup_.security.clients.context),
        [this](net::Stream stream, net::ConnectionSlotPointer slot) {
          client_sessions_.accept(std::move(stream), std::move(slot));
        });
    if (!clients.ok()) return clients.status();
    auto backends = net::Listener::listen(
        io_.get_executor(), setup_.config.backend_listen.host, setup_.config.backend_listen.port,
        backend_listener_options(setup_.security.backends.context),
        [this](net::Stream stream, net::ConnectionSlotPointer slot) {
          backend_sessions_.accept(std::move(stream), std::move(slot));
        });
    if (!backends.ok()) return backends.status();
    setup_.security.gate->set_device_time(
        [this](std::string_view model) { return host_.device_time(model); });
    auto endpoints = Endpoints::listen(io_, setup_.config, setup_.security, host_, buffers_,
                                       {status_, engine_traces_, status_.snapshots(),
                                        largest_message(setup_.config, setup_.catalogue)});
    if (!endpoints.ok()) return endpoints.status();
    if (Status listening = listen_to_peers(); !listening.ok()) return listening;
    client_listener_ = std::move(clients).value();
    backend_listener_ = std::move(backends).value();
    endpoints_ = std::move(endpoints).value();
    start();
    return {};
  }

  const net::Listener& clients() const { return *client_listener_; }
  const net::Listener& backends() const { return *backend_listener_; }
  const Endpoints& endpoints() const { return *endpoints_; }
  serve::FrontendStatus status() const { return core_.status(net::now()); }
  Time started_at() const { return engine_.started_at(); }

  void stop(Done done) {
    if (stopping_) return;
    stopping_ = true;
    on_stopped_ = std::move(done);
    catalogue_.stop();
    remote_models_.stop();
    changes_.stop();
    host_.fail_loads({StatusCode::unavailable, "the frontend is stopping"});
    administration_.stop();
    const bool others_take_over = cluster_.resign();
    const Duration grace = anybody_is_here() ? setup_.config.drain_grace : Duration::zero();
    const Duration leave = others_take_over ? std::max(grace, kLeaveWithin) : grace;
    drain_deadline_.set_after(leave + kLastRequests + setup_.config.drain_timeout, [this] {
      spdlog::warn("the drain timeout has expired with requests in flight");
      finish_stop();
    });
    if (leave == Duration::zero()) {
      accept_no_more();
      return engine_.deliver(serve::Drain{});
    }
    engine_.deliver(serve::Drain{true, net::now() + leave + kLastRequests});
    if (others_take_over) {
      ask_clients_to_leave();
      return leave_alarm_.set_after(leave, [this] { close_after_last_requests(false); });
    }
    // Clients that were asked to leave earlier would come back.
    leave_alarm_.set_after(std::max(leave - kLeaveWithin, Duration::zero()), [this] {
      ask_clients_to_leave();
      leave_alarm_.set_after(kLeaveWithin, [this] { close_after_last_requests(true); });
    });
  }

  void hurry() {
    if (!stopping_) return;
    endpoints_->drain(Duration::zero());
    finish_stop();
  }

  void reload() {
    spdlog::info(
        "SIGHUP: reading the models file, tokens and certificates again; other changes of the "
        "configuration need a restart");
    administration_.reload();
    catalogue_.reload();
  }

 private:
  Status listen_to_peers() {
    if (!setup_.config.cluster) return {};
    Result<PeersOptions> options = peers_options(setup_.config);
    if (!options.ok()) return options.status();
    PeerQuestions& questions = *this;
    peers_ = std::make_unique<Peers>(io_, std::move(options).value(), buffers_, link_, changes_,
                                     questions);
    changes_.share_with(*peers_);
    host_.share_with(*peers_);
    return peers_->listen();
  }

  // All ports are open.
  void start() {
    client_sessions_.open(port(FramePort::Peers::clients));
    backend_sessions_.open(port(FramePort::Peers::backends));
    engine_.start();
    status_.start();
    trimmer_.start();
    catalogue_.start();
    remote_models_.replace(std::move(setup_.remote_models));
    remote_models_.start();
    administration_.start();
    cluster_.start();
  }

  FramePort port(FramePort::Peers peers) const {
    return {peers, client_listener_->port(), backend_listener_->port(), endpoints_->http_port(),
            endpoints_->grpc_port()};
  }

  // Connections over gRPC are not known, but requests are.
  bool anybody_is_here() const {
    return client_sessions_.size() > 0 || endpoints_->connections() > 0 ||
           net::now() < engine_.last_request() + kRecently;
  }

  void ask_clients_to_leave() {
    endpoints_->start_leaving();
    client_sessions_.start_leaving();
  }

  // `refuses`: no other frontend serves the clients that stay.
  void close_after_last_requests(bool refuses) {
    client_listener_->close();
    endpoints_->stop_listening();
    leave_alarm_.set_after(kLastRequests, [this, refuses] {
      accept_no_more();
      if (refuses) engine_.deliver(serve::Drain{});
    });
  }

  // A second call has no effect.
  void accept_no_more() {
    client_listener_->close();
    backend_listener_->close();
    endpoints_->drain(setup_.config.drain_timeout);
  }

  // ---- catalogue

  void apply_catalogue(Result<LoadedCatalogue> read, bool by_client = false) {
    if (!read.ok()) {
      engine_.deliver(serve::CatalogueRejected{read.status(), by_client});
      return;
    }
    LoadedCatalogue& loaded = read.value();
    remote_models_.replace(std::move(loaded.remote_models));
    endpoints_->raise_message_limit(largest_message(setup_.config, loaded.catalogue));
    engine_.deliver(
        serve::CatalogueChanged{std::move(loaded.catalogue),
                                by_client ? loaded.changed_models : std::vector<std::string>()});
    // Posted, because it visits every model. No backend can request a file before it runs.
    asio::post(io_, [this, model_files = std::move(loaded.model_files)]() mutable {
      files_.replace(std::move(model_files));
      engine_.when_applied([this] { files_.forget_unknown(core_.known_files()); });
    });
  }

  // ---- ModelChanges::Host

  void apply_change(Result<LoadedCatalogue> read, Done applied) override {
    engine_.when_applied(std::move(applied));
    apply_catalogue(std::move(read), true);
  }

  void when_settled(Done done) override {
    engine_.when_applied(std::move(done));
    engine_.deliver(serve::Settle{});
  }

  void on_asked(const std::string& from, const std::string& model, ModelsChange::Kind kind,
                const Status& outcome) override {
    access::AuditRecord record;
    record.peer.certificates = {from};
    record.peer.protocol = "peer";
    record.action = kind == ModelsChange::Kind::load ? "model_load" : "model_unload";
    record.target = model;
    record.result = outcome;
    setup_.audit->record_call(record);
  }

  // ---- ClusterLink::Listener

  void members_changed(const std::vector<cluster::Member>& members) override {
    if (peers_ != nullptr && !stopped_) peers_->set_members(members);
  }

  void leader_changed(Term term, const std::string& leader, bool own) override {
    if (!stopped_) changes_.follow(term, leader, own);
  }

  // ---- ClientRequests and PeerQuestions

  void answer(ClientId client, const FrontendReply& reply) {
    if (ReplySink* const sink = replies_.find(client)) sink->send(protocol::encode(reply));
  }

  void on_models_request(ClientId client, const ModelsRequest& request) override {
    answer(client, core_.models_after(request.after, kModelsPerPage));
  }

  void on_change(ClientId client, ModelsChange change, const access::PeerIdentity& peer) override {
    const access::CallNeeds needs = needs_of(change);
    changes_.change(std::move(change), [this, client, needs, peer](ModelsChanged changed) {
      setup_.security.gate->called(needs, peer, changed.status);
      answer(client, std::move(changed));
    });
  }

  void on_status_request(ClientId client, const StatusRequest& request) override {
    const std::string elsewhere = request.local ? std::string() : core_.served_by();
    if (elsewhere.empty()) return status_.responder().request(client);
    peers_->ask_status(elsewhere,
                       [this, client](StatusReply reply) { answer(client, std::move(reply)); });
  }

  void on_gone(ClientId client) override { status_.responder().forget(client); }

  std::string address_of(const std::string& member) const override {
    return cluster_.address_of(member);
  }

  void on_status_request(ClientId client) override { status_.responder().request(client); }

  void on_statistics_request(ClientId client, const StatisticsRequest& request) override {
    host_.own_statistics(request.model, [this, client, tag = request.tag](const auto& statistics) {
      peers_->reply_statistics(client, {tag, *statistics});
    });
  }

  // ---- StatusService::Facts

  void add_to(StatusContext& context) const override {
    context.started = engine_.started_at();
    context.clients = client_sessions_.size() + (endpoints_ ? endpoints_->connections() : 0);
    context.by_token = setup_.security.gate->counters();
    context.cluster = cluster_.view();
    context.logs = administration_.log_figures();
  }

  // ---- SecurityUser

  void tokens_changed() override {
    client_sessions_.tokens_changed();
    endpoints_->tokens_changed(*setup_.security.gate);
  }

  void use_client_tls(const PortTls& tls) override {
    client_listener_->use_tls(tls.context);
    endpoints_->use_tls(tls);
  }

  void use_backend_tls(const PortTls& tls) override { backend_listener_->use_tls(tls.context); }

  // ---- Engine::Host

  void on_turn(Time now) override { host_.poll_loads(now); }

  void follow_leader() override {
    remote_models_.follow(core_.leading_term() != Term{}, core_.models(remote_models_.names()));
  }

  void carry_out(serve::FrontendEffect& effect) override {
    std::visit([this](auto& one) { this->take(one); }, effect);
  }

  void take(serve::RequestTraced& effect) { traces_.add(std::move(effect.record)); }

  void take(serve::ReplyToClient& effect) {
    if (ReplySink* const sink = replies_.find(effect.client)) sink->reply(std::move(effect.reply));
  }

  void take(const serve::ReplyElsewhere& effect) {
    if (ReplySink* const sink = replies_.find(effect.client)) sink->reply_elsewhere(effect.tag);
  }
  void take(serve::SendToPeer& effect) {
    if (peers_ != nullptr) peers_->send(effect.member, effect.message);
  }
  void take(serve::TellPeers& effect) {
    if (peers_ != nullptr) peers_->tell(std::move(effect.served));
  }

  void take(serve::SendToBackend& effect) {
    backend_sessions_.send(effect.backend, effect.command);
  }

  void take(serve::SendModelFile& effect) {
    if (!backend_sessions_.contains(effect.backend)) return;
    const bool taken = files_.read(effect.backend.value, effect.sha256, effect.offset,
                                   [this, backend = effect.backend](ModelPiece piece) {
                                     backend_sessions_.send(backend, std::move(piece));
                                   });
    if (taken) return;
    const Status why(StatusCode::overloaded,
                     "the backend requested too many pieces of model files at once");
    // Posted, because effects are being carried out.
    asio::post(io_, [this, id = effect.backend, why] {
      engine_.deliver(serve::BackendViolatedProtocol{id, {serve::PeerViolation::malformed, why}});
    });
  }

  void take(serve::DisconnectBackend& effect) {
    backend_sessions_.refuse(effect.backend, effect.reason);
  }

  void take(serve::MakePlan& effect) { workers_.make_plan(std::move(effect)); }
  void take(serve::StepToRun& effect) { workers_.run_step(std::move(effect)); }

  void take(const serve::EventNote& effect) {
    administration_.log(engine_.cause(), effect.warning, effect.text);
  }

  void take(const serve::SupersededBy& effect) {
    // Posted, because what follows from it may deliver an event.
    asio::post(io_, [this, term = effect.term] { cluster_.on_term(term); });
  }

  void take(const serve::Drained&) {
    asio::post(io_, [this] { finish_stop(); });
  }

  void finish_stop() {
    if (stopped_) return;
    stopped_ = true;
    engine_.stop();
    drain_deadline_.cancel();
    leave_alarm_.cancel();
    accept_no_more();
    status_.stop();
    trimmer_.stop();
    client_sessions_.close_after_sending();
    backend_sessions_.close_all({StatusCode::cancelled, "the frontend is stopping"});
    if (peers_ != nullptr) peers_->close({StatusCode::cancelled, "the frontend is stopping"});
    // Called from a handler of its own, so that queued replies are sent first.
    cluster_.leave(
        [this] { asio::post(io_, [done = std::exchange(on_stopped_, nullptr)] { done(); }); });
  }

  asio::io_context& io_;
  Setup setup_;
  LoopWatch watch_;
  Engine engine_;
  const serve::FrontendCore& core_ = engine_.core();
  ReplyRouter replies_;
  CorePayloadCheck payloads_{core_};
  const EngineLink link_{engine_, replies_, payloads_};
  PeerLog peer_log_{io_};
  ClusterLink cluster_;

  CatalogueService catalogue_;
  RemoteModels remote_models_{io_, setup_.remote_files, setup_.remote_versions, engine_,
                              catalogue_};
  net::Alarm drain_deadline_;
  net::Alarm leave_alarm_;
  bool stopping_ = false;
  bool stopped_ = false;
  Done on_stopped_;

  net::BufferPool buffers_;
  // Separate, so that clients that exhaust their buffers do not disconnect nodes.
  net::BufferPool backend_buffers_;
  ClientSessions client_sessions_{io_, setup_.config, setup_.security.gate, buffers_, link_, *this};
  std::unique_ptr<Peers> peers_;  // null: the frontend is alone
  ModelChanges changes_{io_, core_, cluster_, catalogue_, files_, *this};
  BackendSessions backend_sessions_{
      io_,
      BackendSession::Options{.connection = backend_options(setup_.config),
                              .certified = setup_.security.backends.context != nullptr},
      backend_buffers_, link_, peer_log_};
  std::unique_ptr<net::Listener> client_listener_;
  std::unique_ptr<net::Listener> backend_listener_;
  StatusService status_{io_, core_, watch_, *this, replies_, setup_.config.summary_latencies};
  HeapTrimmer trimmer_{io_, status_.background(), {&buffers_, &backend_buffers_}, setup_.memory};
  TraceLog traces_;
  EngineTraces engine_traces_{engine_, traces_};
  CoreHost host_{io_, core_, link_, status_, changes_, trace_sampling(setup_.config)};
  Administration administration_{io_, setup_, peer_log_, *this};
  std::unique_ptr<Endpoints> endpoints_;
  // Last: their threads are joined before the members that they use are destroyed.
  CoreWorkers workers_{io_, setup_.policy, engine_};
  ServedFiles files_{io_, std::move(setup_.model_files), catalogue_};
};

FrontendDaemon::FrontendDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrontendDaemon::~FrontendDaemon() = default;

Result<std::unique_ptr<FrontendDaemon>> FrontendDaemon::start(asio::io_context& io, Setup setup,
                                                              CoreObserver observer) {
  Result<std::unique_ptr<cluster::Membership>> membership = make_membership(io, setup.config);
  if (!membership.ok()) return membership.status();
  auto impl = std::make_unique<Impl>(io, std::move(setup), std::move(membership).value(),
                                     std::move(observer));
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
void FrontendDaemon::hurry() { impl_->hurry(); }
void FrontendDaemon::reload() { impl_->reload(); }
void FrontendDaemon::stop(Done done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::frontend
