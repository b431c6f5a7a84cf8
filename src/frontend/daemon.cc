#include "frontend/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/administration.h"
#include "frontend/answers.h"
#include "frontend/catalogue_intake.h"
#include "frontend/cluster/cluster_link.h"
#include "frontend/cluster/model_changes.h"
#include "frontend/cluster/peers.h"
#include "frontend/connection_threads.h"
#include "frontend/endpoints/core_host.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/engine.h"
#include "frontend/loop/event_loop.h"
#include "frontend/loop/heap_trimmer.h"
#include "frontend/observe/status_service.h"
#include "frontend/options.h"
#include "frontend/ports.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::frontend {
namespace {

namespace asio = net::asio;

// Where other frontends take over, clients have that long to use other connections.
constexpr Duration kLeaveWithin = std::chrono::seconds(1);
// After the ports are closed, for the first request of a connection made just before.
constexpr Duration kLastRequests = std::chrono::milliseconds(500);
// A client that sent a request since then may be connected.
constexpr Duration kRecently = std::chrono::seconds(10);
// For the last bytes of closing connections: longer than any write may take.
constexpr Duration kLastBytes = std::chrono::seconds(12);

}  // namespace

class FrontendDaemon::Impl final : private Engine::Host,
                                   private ClusterLink::Listener,
                                   private StatusService::Facts {
 public:
  Impl(asio::io_context& io, Setup setup, std::unique_ptr<cluster::Membership> membership,
       CoreObserver observer)
      : io_(io),
        setup_(std::move(setup)),
        watch_(io),
        engine_(io, setup_, watch_, std::move(observer), *this),
        threads_(io, io_threads(setup_.config), engine_),
        cluster_(setup_.config, std::move(membership), engine_, *this),
        drain_deadline_(io),
        leave_alarm_(io),
        buffers_(buffer_options(setup_)) {}

  ~Impl() { threads_.join(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen() {
    setup_.security.gate->set_device_time(
        [this](std::string_view model) { return device_time(model); });
    publish_models();
    Status listening = ports_.listen(host_, {status_, engine_traces_, status_.snapshots(), places_,
                                             largest_message(setup_.config, setup_.catalogue)});
    if (!listening.ok()) return listening;
    if (Status shared = listen_to_peers(); !shared.ok()) return shared;
    start();
    return {};
  }

  const Ports& ports() const { return ports_; }
  serve::FrontendStatus status() const { return core_.status(net::now()); }
  Time started_at() const { return engine_.started_at(); }

  void stop(Done done) {
    if (stopping_) return;
    stopping_ = true;
    on_stopped_ = std::move(done);
    intake_.stop();
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
      ports_.drain(setup_.config.drain_timeout);
      return engine_.deliver(serve::Drain{});
    }
    engine_.deliver(serve::Drain{true, net::now() + leave + kLastRequests});
    if (others_take_over) {
      ports_.start_leaving();
      return leave_alarm_.set_after(leave, [this] { close_after_last_requests(false); });
    }
    // Clients that were asked to leave earlier would come back.
    leave_alarm_.set_after(std::max(leave - kLeaveWithin, Duration::zero()), [this] {
      ports_.start_leaving();
      leave_alarm_.set_after(kLeaveWithin, [this] { close_after_last_requests(true); });
    });
  }

  void hurry() {
    if (!stopping_) return;
    ports_.hurry();
    finish_stop();
    threads_.halt();
  }

  void reload() {
    spdlog::info(
        "SIGHUP: reading the models file, tokens and certificates again; other changes of the "
        "configuration need a restart");
    administration_.reload();
    intake_.reload();
  }

 private:
  Status listen_to_peers() {
    if (!setup_.config.cluster) return {};
    Result<PeersOptions> options = peers_options(setup_.config);
    if (!options.ok()) return options.status();
    peers_ = std::make_unique<Peers>(io_, std::move(options).value(), buffers_.clients, link_,
                                     changes_, peer_answers_);
    changes_.share_with(*peers_);
    host_.share_with(*peers_);
    client_answers_.share_with(*peers_);
    peer_answers_.share_with(*peers_);
    return peers_->listen();
  }

  // All ports are open.
  void start() {
    ports_.open();
    engine_.start();
    status_.start();
    trimmer_.start();
    intake_.start();
    administration_.start();
    cluster_.start();
  }

  // Any thread.
  Duration device_time(std::string_view model) {
    if (threads_.size() == 0) return host_.device_time(model);
    const PublishedModelsPointer models = threads_.models().current();
    const PublishedModels::Entry* const found = models->find(model);
    return found == nullptr ? Duration::zero() : found->device_time;
  }

  void publish_models() {
    threads_.publish(core_, [this](std::string_view model) { return host_.device_time(model); });
  }

  // Connections over gRPC are not known, but requests are.
  bool anybody_is_here() const {
    return ports_.client_connections() > 0 || net::now() < engine_.last_request() + kRecently;
  }

  // `refuses`: no other frontend serves the clients that stay.
  void close_after_last_requests(bool refuses) {
    ports_.stop_listening();
    leave_alarm_.set_after(kLastRequests, [this, refuses] {
      ports_.drain(setup_.config.drain_timeout);
      if (refuses) engine_.deliver(serve::Drain{});
    });
  }

  // ---- ClusterLink::Listener

  void members_changed(const std::vector<cluster::Member>& members) override {
    if (peers_ != nullptr && !stopped_) peers_->set_members(members);
  }

  void leader_changed(Term term, const std::string& leader, bool own) override {
    if (!stopped_) changes_.follow(term, leader, own);
  }

  // ---- StatusService::Facts

  void add_to(StatusContext& context) const override {
    context.started = engine_.started_at();
    context.clients = ports_.client_connections();
    context.by_token = setup_.security.gate->counters();
    context.cluster = cluster_.view();
    context.logs = administration_.log_figures();
  }

  // ---- Engine::Host

  void on_turn(Time now) override {
    publish_models();
    host_.poll_loads(now);
  }

  void follow_leader() override { intake_.follow_leader(); }

  void carry_out(serve::FrontendEffect& effect) override {
    std::visit([this](auto& one) { this->take(one); }, effect);
  }

  void take(serve::RequestTraced& effect) { traces_.add(std::move(effect.record)); }

  void take(serve::ReplyToClient& effect) {
    InferReply& reply = effect.reply;
    if (!reply.served_by.empty()) reply.served_by = cluster_.address_of(reply.served_by);
    replies_.reply(effect.client, std::move(reply));
  }

  void take(const serve::ReplyElsewhere& effect) {
    // Frontends belong to the engine's thread.
    ReplySink* const sink = replies_.find(effect.client);
    if (sink == nullptr) return;
    if (!effect.payload_needed) return sink->reply_elsewhere(effect.tag);
    ForwardReply reply;
    reply.reply.tag = effect.tag;
    reply.payload_needed = true;
    sink->send(protocol::encode(PeerReply(std::move(reply))));
  }
  void take(serve::AskForRows& effect) {
    if (ReplySink* const sink = replies_.find(effect.client))
      sink->send(protocol::encode(PeerReply(std::move(effect.wanted))));
  }
  void take(serve::SendToPeer& effect) {
    if (peers_ != nullptr) peers_->send(effect.member, effect.message);
  }
  void take(serve::TellPeers& effect) {
    if (peers_ != nullptr) peers_->tell(std::move(effect.served));
  }

  void take(serve::SendToBackend& effect) {
    ports_.backend_sessions().send(effect.backend, effect.command);
  }

  void take(serve::SendModelFile& effect) {
    BackendSessions& backends = ports_.backend_sessions();
    if (!backends.contains(effect.backend)) return;
    const bool taken = intake_.files().read(effect.backend.value, effect.sha256, effect.offset,
                                            [&backends, to = effect.backend](ModelPiece piece) {
                                              backends.send(to, std::move(piece));
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
    ports_.backend_sessions().refuse(effect.backend, effect.reason);
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
    ports_.drain(setup_.config.drain_timeout);
    status_.stop();
    trimmer_.stop();
    const Status reason(StatusCode::cancelled, "the frontend is stopping");
    ports_.close(reason);
    if (peers_ != nullptr) peers_->close(reason);
    // Called from a handler of its own, so that queued replies are sent first.
    cluster_.leave([this] {
      threads_.finish(kLastBytes, [done = std::exchange(on_stopped_, nullptr)] { done(); });
    });
  }

  asio::io_context& io_;
  Setup setup_;
  LoopWatch watch_;
  Engine engine_;
  const serve::FrontendCore& core_ = engine_.core();
  // Its threads use much of what follows: they are joined first of all.
  ConnectionThreads threads_;
  ReplyRouter replies_{threads_.engine_thread()};
  CorePayloadCheck payloads_{core_};
  const EngineLink link_{engine_, replies_, payloads_};
  PeerLog peer_log_{io_};
  ClusterLink cluster_;

  CatalogueIntake intake_{io_, setup_, engine_, ports_};
  net::Alarm drain_deadline_;
  net::Alarm leave_alarm_;
  bool stopping_ = false;
  bool stopped_ = false;
  Done on_stopped_;

  PortBuffers buffers_;
  std::unique_ptr<Peers> peers_;  // null: the frontend is alone
  ModelChanges changes_{io_, core_, cluster_, intake_.catalogue(), intake_.files(), intake_};
  StatusService status_{io_, core_, watch_, *this, replies_, setup_.config.summary_latencies};
  HeapTrimmer trimmer_{
      io_, status_.background(), {&buffers_.clients, &buffers_.backends}, setup_.memory};
  TraceLog traces_;
  EngineTraces engine_traces_{engine_, traces_};
  CoreHost host_{io_, core_, link_, status_, changes_, trace_sampling(setup_.config)};
  ClientAnswers client_answers_{core_, replies_, changes_, *setup_.security.gate,
                                status_.responder()};
  PeerAnswers peer_answers_{status_.responder(), host_};
  const std::vector<ConnectionPlace> places_ = threads_.places(link_, client_answers_);
  Ports ports_{io_, setup_, buffers_, link_, peer_log_, places_};
  Administration administration_{io_, setup_, peer_log_, ports_};
  // Last: its threads are joined before the members that they use are destroyed.
  CoreWorkers workers_{io_, setup_.policy, engine_};
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

std::string FrontendDaemon::client_address() const {
  return impl_->ports().clients().local_address();
}
std::string FrontendDaemon::backend_address() const {
  return impl_->ports().backends().local_address();
}
std::uint16_t FrontendDaemon::client_port() const { return impl_->ports().clients().port(); }
std::uint16_t FrontendDaemon::backend_port() const { return impl_->ports().backends().port(); }
std::uint16_t FrontendDaemon::http_port() const { return impl_->ports().endpoints().http_port(); }
std::uint16_t FrontendDaemon::grpc_port() const { return impl_->ports().endpoints().grpc_port(); }
std::uint16_t FrontendDaemon::metrics_port() const {
  return impl_->ports().endpoints().metrics_port();
}
serve::FrontendStatus FrontendDaemon::status() const { return impl_->status(); }
Time FrontendDaemon::started_at() const { return impl_->started_at(); }
void FrontendDaemon::hurry() { impl_->hurry(); }
void FrontendDaemon::reload() { impl_->reload(); }
void FrontendDaemon::stop(Done done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::frontend
