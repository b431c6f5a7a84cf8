#include "frontend/daemon.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "frontend/administration.h"
#include "frontend/catalogue.h"
#include "frontend/cluster_link.h"
#include "frontend/core_host.h"
#include "frontend/endpoints.h"
#include "frontend/event_loop.h"
#include "frontend/heap_trimmer.h"
#include "frontend/http_handlers.h"
#include "frontend/model_changes.h"
#include "frontend/model_files.h"
#include "frontend/options.h"
#include "frontend/peers.h"
#include "frontend/remote_models.h"
#include "frontend/sessions.h"
#include "frontend/status_service.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"

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
// Memory for more is returned: thousands of requests may be dropped at once.
constexpr std::size_t kEffectsKept = 1024;

// Names an event in the reports of LoopWatch.
struct TaskName {
  using Text = std::string_view;
  Text operator()(const serve::RequestReceived&) const { return "a client's request"; }
  Text operator()(const serve::ClientDisconnected&) const { return "a client that left"; }
  Text operator()(const serve::BackendMessageReceived&) const { return "a backend's message"; }
  Text operator()(const serve::BackendDisconnected&) const { return "a backend that left"; }
  Text operator()(const serve::PlanMade&) const { return "a new plan"; }
  Text operator()(const serve::CatalogueChanged&) const { return "a changed catalogue"; }
  Text operator()(const serve::ModelSourcesChanged&) const { return "news of stores"; }
  Text operator()(const serve::StepCompleted&) const { return "a step of an application"; }
  Text operator()(const serve::Settle&) const { return "follow-up work"; }
  Text operator()(const auto&) const { return "an event"; }
};

// Admission checks the rest.
Status accepts_length(const serve::ServedModel& model, const InferRequest& request,
                      std::size_t payload_bytes) {
  const Result<std::size_t> bytes = byte_size(request.inputs);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() == payload_bytes && payload_bytes <= model.input_bytes) return {};
  return {StatusCode::invalid,
          fmt::format("model {} takes at most {} bytes of inputs; the request has {}, and its "
                      "shapes {}",
                      model.name, model.input_bytes, payload_bytes, bytes.value())};
}

// Checks the size of a payload before memory is reserved for it.
Status accepts_payload(const serve::FrontendCore& core, const InferRequest& request,
                       std::size_t payload_bytes) {
  const std::optional<serve::ModelView> view = core.model(request.model);
  if (!view) {
    return {StatusCode::not_found,
            fmt::format("model {} is not loaded; `gpulet models list` shows the loaded models",
                        request.model)};
  }
  if (is_dynamic(view->model.inputs)) return accepts_length(view->model, request, payload_bytes);
  if (view->model.input_bytes == payload_bytes) return {};
  // Admission looks at the elements.
  if (has_bytes_tensor(view->model.inputs) && payload_bytes < view->model.input_bytes) return {};
  return {StatusCode::invalid, fmt::format("model {} takes {} bytes of inputs; the request has {}",
                                           request.model, view->model.input_bytes, payload_bytes)};
}

}  // namespace

class FrontendDaemon::Impl {
 public:
  Impl(asio::io_context& io, Setup setup, std::unique_ptr<cluster::Membership> membership,
       CoreObserver observer)
      : io_(io),
        setup_(std::move(setup)),
        observer_(std::move(observer)),
        started_(net::now()),
        core_(core_options(setup_), setup_.catalogue, started_),
        cluster_(setup_.config, std::move(membership), cluster_callbacks()),
        catalogue_(io, setup_.loader,
                   [this](Result<LoadedCatalogue> read) { apply_catalogue(std::move(read)); }),
        wake_(io),
        drain_deadline_(io),
        leave_alarm_(io),
        buffers_(buffer_options(setup_)),
        backend_buffers_(buffer_options(setup_)),
        host_(io, core_, status_.snapshots(), status_.background(), host_callbacks()),
        administration_(io, setup_.config, setup_.security, setup_.audit,
                        administration_callbacks()) {}

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen() {
    auto clients = net::Listener::listen(
        io_.get_executor(), setup_.config.listen.host, setup_.config.listen.port,
        client_listener_options(setup_.config, setup_.security.clients.context),
        [this](net::Stream stream, net::ConnectionSlotPointer slot) {
          accept_client(std::move(stream), std::move(slot));
        });
    if (!clients.ok()) return clients.status();
    auto backends = net::Listener::listen(
        io_.get_executor(), setup_.config.backend_listen.host, setup_.config.backend_listen.port,
        backend_listener_options(setup_.security.backends.context),
        [this](net::Stream stream, net::ConnectionSlotPointer slot) {
          backend_sessions_.accept(BackendId{next_session_++}, std::move(stream), std::move(slot));
        });
    if (!backends.ok()) return backends.status();
    Endpoints::Sources sources;
    sources.metrics = [this](MetricsHandler::OnPage done) { status_.metrics(std::move(done)); };
    setup_.security.gate->set_device_time(
        [this](std::string_view model) { return host_.device_time(model); });
    sources.trace = {[this](Duration length) { return trace(length); },
                     [this](std::uint64_t mark) { return traces_.since(mark); }, wall_clock};
    sources.dashboard = {
        [this](StatusSnapshots::OnSnapshot done) { status_.snapshots().get(std::move(done)); },
        wall_clock};
    sources.largest_message = largest_message(setup_.config, setup_.catalogue);
    auto endpoints =
        Endpoints::listen(io_, setup_.config, setup_.security, host_, buffers_, std::move(sources));
    if (!endpoints.ok()) return endpoints.status();
    if (Status listening = listen_to_peers(); !listening.ok()) return listening;
    client_listener_ = std::move(clients).value();
    backend_listener_ = std::move(backends).value();
    endpoints_ = std::move(endpoints).value();
    arm_wake();
    status_.start();
    trimmer_.start();
    catalogue_.start();
    remote_models_.replace(std::move(setup_.remote_models));
    remote_models_.start();
    administration_.start();
    cluster_.start();
    return {};
  }

  Status listen_to_peers() {
    if (!setup_.config.cluster) return {};
    Result<PeersOptions> options = peers_options(setup_.config);
    if (!options.ok()) return options.status();
    Peers::Owner owner;
    owner.deliver = [this](serve::FrontendEvent event) {
      const bool tells = std::holds_alternative<serve::PeerServes>(event);
      deliver(std::move(event));
      if (tells) follow_leader();
    };
    owner.new_client = [this] { return ClientId{next_session_++}; };
    owner.accepts = [this](const InferRequest& request, std::size_t payload_bytes) {
      return accepts_payload(core_, request, payload_bytes);
    };
    changes_.handle(owner, [this](const std::string& from, const std::string& model,
                                  ModelsChange::Kind kind, const Status& result) {
      net::AuditRecord record;
      record.peer.certificates = {from};
      record.peer.protocol = "peer";
      record.action = kind == ModelsChange::Kind::load ? "model_load" : "model_unload";
      record.target = model;
      record.result = result;
      setup_.audit->record_call(record);
    });
    owner.on_statistics_request = [this](ClientId client, const StatisticsRequest& request) {
      host_.own_statistics(request.model,
                           [this, client, tag = request.tag](const auto& statistics) {
                             peers_->reply_statistics(client, {tag, *statistics});
                           });
    };
    owner.on_status_request = [this](ClientId client) { status_.responder().request(client); };
    peers_ = std::make_unique<Peers>(io_, std::move(options).value(), buffers_, std::move(owner));
    changes_.share_with(*peers_);
    return peers_->listen();
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
      return deliver(serve::Drain{});
    }
    deliver(serve::Drain{true, net::now() + leave + kLastRequests});
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
  // Connections over gRPC are not known, but requests are.
  bool anybody_is_here() const {
    return !client_sessions_.empty() || endpoints_->connections() > 0 ||
           net::now() < last_request_ + kRecently;
  }

  void ask_clients_to_leave() {
    leaving_ = true;
    endpoints_->start_leaving();
    for (auto& [id, session] : client_sessions_) session->start_leaving();
  }

  // `refuses`: no other frontend serves the clients that stay.
  void close_after_last_requests(bool refuses) {
    client_listener_->close();
    endpoints_->stop_listening();
    leave_alarm_.set_after(kLastRequests, [this, refuses] {
      accept_no_more();
      if (refuses) deliver(serve::Drain{});
    });
  }

  // A second call has no effect.
  void accept_no_more() {
    client_listener_->close();
    backend_listener_->close();
    endpoints_->drain(setup_.config.drain_timeout);
  }

  // ---- the core

  // Delivers an event caused by the backend at `address`.
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
    // Requests are not measured: they are short, and reading the clock would slow them down.
    std::optional<LoopWatch::Scope> scope;
    if (std::holds_alternative<serve::RequestReceived>(event)) {
      last_request_ = now;
    } else {
      scope.emplace(status_.watch(), std::visit(TaskName(), event), now);
    }
    effects_.clear();
    if (observer_) {
      const serve::FrontendEvent seen = event;
      core_.on(std::move(event), now, effects_);
      observer_(seen, now, effects_);
    } else {
      core_.on(std::move(event), now, effects_);
    }
    for (serve::FrontendEffect& effect : effects_)
      std::visit([this](auto& one) { carry_out(one); }, effect);
    if (effects_.capacity() > kEffectsKept) effects_ = {};
    host_.poll_loads(now);
    if (when_applied_.empty() || core_.takes_in_catalogue()) return;
    for (const auto& notify : std::exchange(when_applied_, {})) notify();
  }

  // Never postpones the alarm: an early wake-up costs less than setting the alarm for every batch.
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

  // ---- catalogue

  void apply_catalogue(Result<LoadedCatalogue> read, bool by_client = false) {
    if (!read.ok()) {
      deliver(serve::CatalogueRejected{read.status(), by_client});
      return;
    }
    LoadedCatalogue& loaded = read.value();
    remote_models_.replace(std::move(loaded.remote_models));
    endpoints_->raise_message_limit(largest_message(setup_.config, loaded.catalogue));
    deliver(serve::CatalogueChanged{std::move(loaded.catalogue), by_client
                                                                     ? loaded.changed_models
                                                                     : std::vector<std::string>()});
    // Posted, because it visits every model. No backend can request a file before it runs.
    asio::post(io_, [this, model_files = std::move(loaded.model_files)]() mutable {
      files_.replace(std::move(model_files));
      when_applied_.emplace_back([this] { files_.forget_unknown(core_.known_files()); });
    });
  }

  void apply_change(Result<LoadedCatalogue> read, std::function<void()> applied) {
    when_applied_.push_back(std::move(applied));
    apply_catalogue(std::move(read), true);
  }

  // Who leads, or what the leader serves, may have changed.
  void follow_leader() {
    remote_models_.follow(core_.leading_term() != Term{}, core_.models(remote_models_.names()));
  }

  void when_settled(std::function<void()> done) {
    when_applied_.push_back(std::move(done));
    deliver(serve::Settle{});
  }

  // ---- callbacks of the daemon's parts

  ClusterLink::Callbacks cluster_callbacks() {
    return {[this](serve::FrontendEvent event) {
              deliver(std::move(event));
              follow_leader();
            },
            [this](const std::vector<cluster::Member>& members) {
              if (peers_ != nullptr && !stopped_) peers_->set_members(members);
            },
            [this](Term term, const std::string& leader, bool own) {
              if (!stopped_) changes_.follow(term, leader, own);
            }};
  }

  CoreHost::Callbacks host_callbacks() {
    CoreHost::Callbacks callbacks;
    callbacks.deliver = [this](serve::FrontendEvent event) { deliver(std::move(event)); };
    callbacks.new_client = [this] { return ClientId{next_session_++}; };
    callbacks.wall_clock = wall_clock;
    callbacks.tracing = trace_sampling(setup_.config);
    if (setup_.config.cluster) {
      callbacks.ask_others = [this](const std::string& model, Peers::OnStatistics done) {
        peers_->ask_statistics(model, done);
      };
    }
    callbacks.change_models = [this](ModelsChange change, CoreHost::OnChanged done) {
      changes_.change(std::move(change), std::move(done));
    };
    return callbacks;
  }

  StatusService::Callbacks status_callbacks() {
    return {
        wall_clock,
        [this] { return client_sessions_.size() + (endpoints_ ? endpoints_->connections() : 0); },
        [this]() -> const net::CountersByClient& { return setup_.security.gate->counters(); },
        [this]() -> const std::optional<ClusterView>& { return cluster_.view(); },
        [this] { return administration_.log_figures(); },
        [this](ClientId id, const protocol::OutgoingFrame& frame) {
          const auto session = client_sessions_.find(id);
          if (session != client_sessions_.end()) return session->second->send(frame);
          if (peers_ != nullptr) peers_->reply_status(id, frame);
        },
        setup_.config.summary_latencies};
  }

  // Traces all requests that arrive within `length`. Zero: uses the sampled requests.
  std::uint64_t trace(Duration length) {
    if (length <= Duration::zero()) return 0;
    deliver(serve::TraceUntil{net::now() + length});
    return traces_.mark();
  }

  // ---- effects

  void carry_out(serve::RequestTraced& effect) { traces_.add(std::move(effect.record)); }

  void carry_out(serve::ReplyToClient& effect) {
    if (host_.answer(effect.client, effect.reply)) return;
    const auto found = client_sessions_.find(effect.client);
    if (found != client_sessions_.end()) {
      if (!effect.reply.served_by.empty())
        effect.reply.served_by = cluster_.address_of(effect.reply.served_by);
      return found->second->send(FrontendReply(std::move(effect.reply)));
    }
    if (peers_ != nullptr) peers_->reply(effect.client, effect.reply);
  }

  void carry_out(const serve::ReplyElsewhere& effect) {
    if (peers_ != nullptr) peers_->reply_elsewhere(effect.client, effect.tag);
  }
  void carry_out(serve::SendToPeer& effect) {
    if (peers_ != nullptr) peers_->send(effect.member, effect.message);
  }
  void carry_out(serve::TellPeers& effect) {
    if (peers_ != nullptr) peers_->tell(std::move(effect.served));
  }

  void carry_out(serve::SendToBackend& effect) {
    backend_sessions_.send(effect.backend, effect.command);
  }

  void carry_out(serve::SendModelFile& effect) {
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
      deliver(serve::BackendViolatedProtocol{id, {serve::PeerViolation::malformed, why}});
    });
  }

  void carry_out(serve::DisconnectBackend& effect) {
    backend_sessions_.refuse(effect.backend, effect.reason);
  }

  void carry_out(serve::MakePlan& effect) { workers_.make_plan(std::move(effect)); }
  void carry_out(serve::StepToRun& effect) { workers_.run_step(std::move(effect)); }

  void carry_out(const serve::EventNote& effect) {
    administration_.log(cause_, effect.warning, effect.text);
  }

  void carry_out(const serve::SupersededBy& effect) {
    // Posted, because what follows from it may deliver an event.
    asio::post(io_, [this, term = effect.term] { cluster_.on_term(term); });
  }

  void carry_out(const serve::Drained&) {
    asio::post(io_, [this] { finish_stop(); });
  }

  void finish_stop() {
    if (stopped_) return;
    stopped_ = true;
    drain_deadline_.cancel();
    leave_alarm_.cancel();
    accept_no_more();
    wake_.cancel();
    status_.stop();
    trimmer_.stop();
    for (auto& [id, session] : client_sessions_) session->close_after_sending();
    backend_sessions_.close_all({StatusCode::cancelled, "the frontend is stopping"});
    if (peers_ != nullptr) peers_->close({StatusCode::cancelled, "the frontend is stopping"});
    // Called from a handler of its own, so that queued replies are sent first.
    cluster_.leave(
        [this] { asio::post(io_, [done = std::exchange(on_stopped_, nullptr)] { done(); }); });
  }

  Administration::Callbacks administration_callbacks() {
    Administration::Callbacks callbacks;
    callbacks.tokens_changed = [this] {
      for (auto& [id, session] : client_sessions_) session->tokens_changed();
      endpoints_->tokens_changed(*setup_.security.gate);
    };
    callbacks.clients_changed = [this](const PortTls& tls) {
      client_listener_->use_tls(tls.context);
      endpoints_->use_tls(tls);
    };
    callbacks.backends_changed = [this](const PortTls& tls) {
      backend_listener_->use_tls(tls.context);
    };
    return callbacks;
  }

  // ---- sessions

  void forget_client(ClientId id) {
    const auto found = client_sessions_.find(id);
    if (found == client_sessions_.end()) return;
    // Posted, because the session may be on the stack.
    asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
    client_sessions_.erase(found);
  }

  void accept_client(net::Stream stream, net::ConnectionSlotPointer slot) {
    const ClientId id{next_session_++};
    const net::ConnectionOptions options = client_options(setup_.config, slot->reserved());
    client_sessions_[id] = std::make_unique<ClientSession>(
        std::move(stream), std::move(slot), options, setup_.security.gate, buffers_,
        port(FramePort::Peers::clients),
        [this](const InferRequest& request, std::size_t payload_bytes) {
          return accepts_payload(core_, request, payload_bytes);
        },
        [this, id](ClientMessage&& message) {
          std::visit([this, id](auto& one) { this->on_client_message(id, std::move(one)); },
                     message);
        },
        [this, id](const Status& reason) {
          spdlog::debug("a client disconnected: {}", reason.to_string());
          if (!client_sessions_.contains(id)) return;
          forget_client(id);
          status_.responder().forget(id);
          deliver(serve::ClientDisconnected{id});
        });
    if (leaving_) client_sessions_[id]->start_leaving();
  }

  void on_client_message(ClientId id, InferRequest request) {
    deliver(serve::RequestReceived{id, std::move(request)});
  }
  void on_client_message(ClientId id, const ModelsRequest& request) {
    client_sessions_.at(id)->send(core_.models_after(request.after, kModelsPerPage));
  }
  void on_client_message(ClientId id, ModelsChange change) {
    const net::CallNeeds needs = needs_of(change);
    const net::PeerIdentity peer = client_sessions_.at(id)->peer();
    changes_.change(std::move(change), [this, id, needs, peer](ModelsChanged changed) {
      setup_.security.gate->called(needs, peer, changed.status);
      const auto session = client_sessions_.find(id);
      if (session != client_sessions_.end()) session->second->send(std::move(changed));
    });
  }
  static void on_client_message(ClientId, const Authenticate&) {}  // handled by the session
  void on_client_message(ClientId id, const StatusRequest& request) {
    const std::string elsewhere = request.local ? std::string() : core_.served_by();
    if (elsewhere.empty()) return status_.responder().request(id);
    peers_->ask_status(elsewhere, [this, id](StatusReply reply) {
      const auto session = client_sessions_.find(id);
      if (session != client_sessions_.end()) session->second->send(FrontendReply(std::move(reply)));
    });
  }

  FramePort port(FramePort::Peers peers) const {
    return {peers, client_listener_->port(), backend_listener_->port(), endpoints_->http_port(),
            endpoints_->grpc_port()};
  }

  BackendSessions::Owner owner_of_backends() {
    BackendSessions::Owner owner;
    owner.port = [this] { return port(FramePort::Peers::backends); };
    owner.deliver = [this](serve::FrontendEvent event, const std::string& address) {
      deliver(std::move(event), address);
    };
    owner.breach_of_result = [this](BackendId backend, BatchId batch) {
      return core_.breach_of_result(backend, batch);
    };
    owner.warn = [this](const std::string& address, const std::string& text) {
      administration_.log(address, true, text);
    };
    return owner;
  }

  asio::io_context& io_;
  Setup setup_;
  CoreObserver observer_;
  Time started_;
  serve::FrontendCore core_;
  ClusterLink cluster_;
  serve::FrontendEffects effects_;
  std::vector<std::function<void()>> when_applied_;  // run once the core has applied the catalogue
  bool settle_posted_ = false;

  CatalogueService catalogue_;
  RemoteModels remote_models_{
      io_, setup_.remote_files, setup_.remote_versions,
      RemoteModels::Owner{[this](serve::ModelSources sources) {
                            deliver(serve::ModelSourcesChanged{std::move(sources)});
                          },
                          [this] { catalogue_.reload(); }}};
  net::Alarm wake_;
  Time armed_for_ = kNever;
  net::Alarm drain_deadline_;
  net::Alarm leave_alarm_;
  bool stopping_ = false;
  bool leaving_ = false;  // clients are asked to leave
  bool stopped_ = false;
  Time last_request_ = Time::min();
  std::function<void()> on_stopped_;

  net::BufferPool buffers_;
  // Separate, so that clients that exhaust their buffers do not disconnect nodes.
  net::BufferPool backend_buffers_;
  std::uint64_t next_session_ = 1;
  std::map<ClientId, std::unique_ptr<ClientSession>> client_sessions_;
  std::unique_ptr<Peers> peers_;  // null: the frontend is alone
  ModelChanges changes_{
      io_,
      core_,
      cluster_,
      catalogue_,
      files_,
      [this](auto read, auto applied) { apply_change(std::move(read), std::move(applied)); },
      [this](auto done) { when_settled(std::move(done)); }};
  BackendSessions backend_sessions_{
      io_, backend_options(setup_.config),
      BackendSession::Options{.certified = setup_.security.backends.context != nullptr},
      backend_buffers_, owner_of_backends()};
  std::unique_ptr<net::Listener> client_listener_;
  std::unique_ptr<net::Listener> backend_listener_;
  StatusService status_{io_, core_, started_, status_callbacks()};
  HeapTrimmer trimmer_{io_, status_.background(), {&buffers_, &backend_buffers_}, setup_.memory};
  TraceLog traces_;
  CoreHost host_;
  std::string cause_;  // address of the backend whose event is being handled; empty: none
  Administration administration_;
  std::unique_ptr<Endpoints> endpoints_;
  // Last: their threads are joined before the members that they use are destroyed.
  CoreWorkers workers_{io_, setup_.policy,
                       [this](serve::FrontendEvent event) { deliver(std::move(event)); }};
  ServedFiles files_{io_, std::move(setup_.model_files), [this] { catalogue_.reload(); }};
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
void FrontendDaemon::stop(std::function<void()> done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::frontend
