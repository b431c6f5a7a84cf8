#include "frontend/cluster/peers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "frontend/frames/certificate_role.h"
#include "gpulet/access/tokens.h"
#include "gpulet/base/text.h"
#include "gpulet/observe/log_limiter.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::frontend {
namespace {

constexpr std::uint32_t kMostStatusBytes = 64U << 20U;  // thousands of models have megabytes
constexpr std::uint32_t kMostStrangersBytes = 4U << 10U;
constexpr Duration kFirstReminder = std::chrono::seconds(10);
constexpr Duration kLongestReminder = std::chrono::minutes(10);
// Before the next attempt with a member that refused, or is not the one that it should be.
constexpr Duration kAfterRefusal = std::chrono::seconds(5);

// Why the other side is not `expected` (any other member where that is empty); ok: it is.
Status check_introduction(const PeersOptions& self, const std::string& cluster,
                          const std::string& member, const std::string& expected) {
  if (cluster != self.cluster) {
    return {StatusCode::invalid,
            fmt::format("it belongs to cluster {}, this frontend to {}; check cluster.name and "
                        "cluster.peer_address",
                        cluster, self.cluster)};
  }
  if (member.empty() || member == self.member) {
    return {StatusCode::invalid,
            fmt::format("it calls itself {}, as this frontend does; give each frontend a "
                        "cluster.member of its own",
                        self.member)};
  }
  if (expected.empty() || member == expected) return {};
  return {StatusCode::invalid,
          fmt::format("it is member {}, not {}; check the cluster.peer_address "
                      "of both",
                      member, expected)};
}

Status check_certificate(const net::Connection& connection, const std::string& member) {
  const std::vector<std::string> names = connection.peer_names();
  if (!permits_role(names, kFrontendRole, member)) {
    return {
        StatusCode::unauthenticated,
        fmt::format("it calls itself member {}, but its certificate has another role: {}; issue "
                    "one with scripts/make-certificates --frontend {}",
                    member, joined(names), member)};
  }
  if (connection.peer_certifies(member)) return {};
  return {
      StatusCode::unauthenticated,
      fmt::format("it calls itself member {}, but its certificate is for {}; give each frontend "
                  "a certificate with its member name",
                  member, joined(names))};
}

}  // namespace

// ---- Link

class Peers::Link final : private net::ConnectionHandler {
 public:
  // Empty: no answer.
  using OnOwnStatistics = std::function<void(std::optional<std::vector<InferenceStatistics>>)>;

  Link(Peers& peers, cluster::Member member, const config::Endpoint& endpoint)
      : peers_(peers),
        member_(std::move(member)),
        connector_(peers.io_.get_executor(), endpoint.host, endpoint.port,
                   {.longest_pause = std::chrono::seconds(1), .tls = peers.options_.client_tls}) {
    connect({});
  }

  [[nodiscard]] const cluster::Member& member() const { return member_; }
  [[nodiscard]] bool welcomed() const { return welcomed_; }
  [[nodiscard]] bool connected() const { return connection_ != nullptr; }

  void send(const PeerRequest& message) {
    if (connection_ != nullptr) connection_->send(protocol::encode(message));
  }
  // Replies come in the order of the requests.
  void ask_status(OnStatus done) {
    asked_.push_back({net::now() + kStatusTimeout, std::move(done)});
    send(StatusRequest{true});
  }
  void change(ModelsChange change, std::vector<NamedFile> files, OnChanged done) {
    const std::uint64_t tag = ++last_tag_;
    changing_.emplace(tag, Changing{net::now() + kChangeTimeout, std::move(done)});
    send(ChangeModels{tag, std::move(change), std::move(files)});
  }
  void ask_statistics(const std::string& model, OnOwnStatistics done) {
    const std::uint64_t tag = ++last_tag_;
    counting_.emplace(tag, Counting{net::now() + kStatisticsTimeout, std::move(done)});
    send(StatisticsRequest{tag, model});
  }
  void request(const ModelPieceRequest& piece, OnPiece done) {
    requested_ = {piece.sha256, net::now() + kPieceTimeout, std::move(done)};
    send(piece);
  }
  [[nodiscard]] bool answers_requests() const {
    return welcomed_ && level_ >= kLevelOfPeerRequests;
  }
  void answer_overdue(Time now) {
    if (requested_.done != nullptr && now >= requested_.until)
      answer_request(Status(StatusCode::timeout, "no piece of a model file in time"));
    std::vector<OnChanged> late;
    std::erase_if(changing_, [&](auto& one) {
      const bool over = now >= one.second.until;
      if (over) late.push_back(std::move(one.second.done));
      return over;
    });
    for (const OnChanged& done : late) done({no_answer(StatusCode::timeout)});
    std::vector<OnOwnStatistics> silent;
    std::erase_if(counting_, [&](auto& one) {
      const bool over = now >= one.second.until;
      if (over) silent.push_back(std::move(one.second.done));
      return over;
    });
    for (const OnOwnStatistics& done : silent) done(std::nullopt);
    for (Asked& one : asked_) {
      if (one.done == nullptr || now < one.until) continue;
      std::exchange(one.done, nullptr)({{}, no_status(StatusCode::timeout)});
    }
  }

 private:
  struct Asked {
    Time until{};
    OnStatus done;  // null: it was told that there is no reply
  };

  struct Changing {
    Time until{};
    OnChanged done;
  };
  struct Counting {
    Time until{};
    OnOwnStatistics done;
  };
  struct Requested {
    std::string sha256;
    Time until{};
    OnPiece done;  // null: it was told the outcome
  };

  void answer_request(Result<ModelPiece> piece) {
    std::exchange(requested_.done, nullptr)(std::move(piece));
  }
  [[nodiscard]] Status no_answer(StatusCode code) const {
    return {code,
            "frontend " + member_.name +
                ", which leads the cluster, did not answer: look at the list of models before "
                "you try again"};
  }
  [[nodiscard]] Status no_status(StatusCode code) const {
    return {code, "no status from frontend " + member_.name +
                      ", which leads the cluster; --local shows that of the frontend asked"};
  }

  void connect(Duration at_least) {
    connector_.connect_with_retry(
        [this](net::Stream stream) {
          connection_ =
              net::Connection::start(std::move(stream), peers_.options_.connection, *this);
          send(PeerHello{peers_.options_.cluster, peers_.options_.member, kProtocolLevel,
                         peers_.secret_});
        },
        [this](const Status& failure, Duration /*pause*/) {
          if (reminder_.due(net::now()))
            spdlog::warn("frontend {} cannot be reached: {}", member_.name, failure.message());
        },
        at_least);
  }

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    GPULET_TRY(net::IncomingBytes taken, peers_.buffers_.take_incoming(header.payload_bytes));
    payload_ = std::move(taken);
    return payload_.take_memory();
  }
  Status payload_received(std::size_t bytes) override { return payload_.filled(bytes); }

  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    auto decoded = protocol::decode<PeerReply>(header, message, std::move(payload).freeze());
    if (!decoded.ok()) return connection_->close(decoded.status());
    if (!welcomed_ && !std::holds_alternative<PeerWelcome>(decoded.value()) &&
        !std::holds_alternative<Refused>(decoded.value())) {
      return connection_->close(
          {StatusCode::invalid,
           fmt::format("received a {} before PeerWelcome", to_string(header.type))});
    }
    std::visit([this](auto& one) { this->take(one); }, decoded.value());
  }

  void take(PeerWelcome& welcome) {
    // With TLS, the certificate is for the host of the member's address.
    Status wrong =
        check_introduction(peers_.options_, welcome.cluster, welcome.member, member_.name);
    if (wrong.ok() && !permits_role(connection_->peer_names(), kFrontendRole, member_.name))
      wrong = {StatusCode::unauthenticated, "its certificate is not that of a frontend"};
    if (wrong.ok() && !member_.secret.empty() &&
        !access::same_secret(welcome.secret, member_.secret)) {
      wrong = {StatusCode::unauthenticated,
               fmt::format("it does not have the secret of member {} in etcd", member_.name)};
    }
    if (!wrong.ok()) return connection_->close(wrong);
    if (std::exchange(welcomed_, true)) return;
    level_ = welcome.level;
    reminder_.reset();
    spdlog::info("connected to frontend {} at {}", member_.name, member_.peer);
    peers_.engine_.events.deliver(serve::PeerConnected{member_.name, welcome.level});
  }
  void take(ForwardReply& reply) {
    peers_.engine_.events.deliver(serve::PeerReplied{member_.name, std::move(reply)});
  }
  void take(RowsWanted& wanted) {
    peers_.engine_.events.deliver(serve::PeerWantsRows{member_.name, std::move(wanted)});
  }
  void take(ServedModels& served) {
    peers_.engine_.events.deliver(serve::PeerServes{member_.name, std::move(served)});
  }
  void take(StatusReply& reply) {
    if (asked_.empty()) return connection_->close({StatusCode::invalid, "an unexpected status"});
    const OnStatus done = std::move(asked_.front().done);
    asked_.pop_front();
    if (done != nullptr) done(std::move(reply));
  }
  void take(ChangeResult& result) {
    auto found = changing_.extract(result.tag);
    if (!found.empty()) found.mapped().done(std::move(result.changed));
  }
  void take(StatisticsReply& reply) {
    auto found = counting_.extract(reply.tag);
    if (!found.empty()) found.mapped().done(std::move(reply.models));
  }
  void take(ModelPiece& piece) {
    if (piece.sha256 != requested_.sha256)
      return connection_->close({StatusCode::invalid, "an unexpected piece of a model file"});
    if (requested_.done != nullptr) answer_request(std::move(piece));  // else: it comes too late
  }
  void take(CatalogueState& state) {
    peers_.catalogue_.on_catalogue(member_.name, std::move(state));
  }
  void take(Heartbeat& /*alive*/) {}  // its arrival is what counts
  void take(Refused& refused) { connection_->close(refused.why.within("refused")); }

  void on_closed(const Status& reason) override {
    const bool was_welcome = std::exchange(welcomed_, false);
    if (was_welcome || reminder_.due(net::now()))
      spdlog::warn("the connection to frontend {} ended: {}", member_.name, reason.message());
    connection_.reset();
    for (Asked& one : std::exchange(asked_, {})) {
      if (one.done != nullptr) one.done({{}, no_status(StatusCode::unavailable)});
    }
    for (auto& [tag, one] : std::exchange(changing_, {}))
      one.done({no_answer(StatusCode::unavailable)});
    for (auto& [tag, one] : std::exchange(counting_, {})) one.done(std::nullopt);
    if (requested_.done != nullptr)
      answer_request(Status(StatusCode::unavailable, reason.message()));
    if (was_welcome) peers_.engine_.events.deliver(serve::PeerDisconnected{member_.name});
    if (peers_.closed_) return;
    const auto now = peers_.members_.find(member_.name);
    if (now == peers_.members_.end() || now->second != member_)
      return peers_.link_ended(member_.name);
    connect(was_welcome ? Duration{} : kAfterRefusal);
  }

  Peers& peers_;
  const cluster::Member member_;
  net::Connector connector_;
  observe::LogBackoff reminder_{kFirstReminder, kLongestReminder};
  net::IncomingBytes payload_;
  std::shared_ptr<net::Connection> connection_;
  bool welcomed_ = false;
  std::deque<Asked> asked_;  // status requests without a reply
  std::uint64_t last_tag_ = 0;
  std::map<std::uint64_t, Changing> changing_;  // by tag
  std::map<std::uint64_t, Counting> counting_;  // by tag
  Requested requested_;
  std::uint32_t level_ = 0;  // of the member
};

// ---- Inbound

class Peers::Inbound final : public Session, public ReplySink {
 public:
  Inbound(Peers& peers, ClientId client, net::Stream stream, net::ConnectionSlotPointer slot)
      : Session(std::move(stream), std::move(slot), peers.options_.connection, peers.buffers_),
        peers_(peers),
        client_(client),
        deadline_(peers.io_) {
    connection().limit_messages(kMostStrangersBytes);
    deadline_.set_after(kHelloTimeout, [this] {
      refuse({StatusCode::timeout, "no PeerHello arrived in time"});
    });
  }

  [[nodiscard]] bool introduced() const { return introduced_; }
  // The records of members have changed: perhaps the one that it waits for is among them.
  void members_changed() {
    if (hello_) admit();
  }
  void send(const PeerReply& message) { connection().send(protocol::encode(message)); }
  void send(const protocol::OutgoingFrame& answer) override { connection().send(answer); }
  void reply(InferReply reply) override { send(ForwardReply{std::move(reply), false}); }
  void reply_elsewhere(std::uint64_t tag) override {
    ForwardReply reply;
    reply.reply.tag = tag;
    reply.elsewhere = true;
    send(std::move(reply));
  }
  void close(const Status& reason) { connection().close(reason); }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override {
    if (!introduced_) {
      return Status(StatusCode::invalid,
                    fmt::format("received a {} before PeerHello", to_string(header.type)));
    }
    if (header.payload_bytes > ClientSession::kMaxUncheckedPayloadBytes) {
      const auto announced = decoder_.announce(header, message);
      if (!announced.ok()) return announced.status();
      if (const auto* const forward = std::get_if<Forward>(announced.value())) {
        refused_ = peers_.engine_.payloads.accepts(forward->request, header.payload_bytes);
        if (!refused_.ok()) return MutableBytes();
      } else if (!std::holds_alternative<ChangeModels>(*announced.value()) ||
                 header.payload_bytes > ClientSession::kMaxModelsText) {
        return Status(StatusCode::invalid, "a message with a payload that is too long");
      }
    }
    return pooled_memory(header.payload_bytes);
  }

  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    const Status refused = std::exchange(refused_, Status());
    auto decoded = decoder_.finish(header, message, std::move(payload).freeze());
    if (!decoded.ok()) return refuse(decoded.status());
    if (auto* const hello = std::get_if<PeerHello>(&decoded.value())) return take(*hello);
    if (hello_ && std::holds_alternative<Heartbeat>(decoded.value())) return;
    if (!introduced_) {
      return refuse({StatusCode::invalid,
                     fmt::format("received a {} before PeerHello", to_string(header.type))});
    }
    if (auto* const forward = std::get_if<Forward>(&decoded.value())) {
      if (!refused.ok()) {
        ForwardReply reply;
        reply.reply.tag = forward->request.tag;
        reply.reply.status = refused;
        return send(std::move(reply));
      }
      peers_.engine_.events.deliver(serve::RequestReceived{client_, std::move(forward->request),
                                                           forward->age, true, forward->delayed,
                                                           member_, forward->kept_bytes});
    } else if (auto* const change = std::get_if<ChangeModels>(&decoded.value())) {
      peers_.catalogue_.on_change(client_, member_, std::move(*change));
    } else if (const auto* const counted = std::get_if<StatisticsRequest>(&decoded.value())) {
      peers_.questions_.on_statistics_request(client_, *counted);
    } else if (const auto* const piece = std::get_if<ModelPieceRequest>(&decoded.value())) {
      if (!peers_.catalogue_.on_piece_request(client_, *piece))
        refuse({StatusCode::invalid, "too many pieces of model files requested at once"});
    } else if (const auto* const adopted = std::get_if<CatalogueAdopted>(&decoded.value())) {
      peers_.catalogue_.on_adopted(client_, adopted->stamp);
    } else if (auto* const routes = std::get_if<SetRoutes>(&decoded.value())) {
      peers_.engine_.events.deliver(serve::RoutesReceived{member_, std::move(*routes)});
    } else if (auto* const report = std::get_if<OwnerReport>(&decoded.value())) {
      peers_.engine_.events.deliver(serve::OwnerReported{member_, std::move(*report)});
    } else if (std::holds_alternative<StatusRequest>(decoded.value())) {
      peers_.questions_.on_status_request(client_);
    } else if (auto* const cancelled = std::get_if<CancelForward>(&decoded.value())) {
      peers_.engine_.events.deliver(
          serve::RequestCancelled{client_, cancelled->tag, std::move(cancelled->model)});
    }
  }

  void take(PeerHello& hello) {
    if (introduced_ || hello_) return refuse({StatusCode::invalid, "received a second PeerHello"});
    Status wrong = check_introduction(peers_.options_, hello.cluster, hello.member, {});
    if (wrong.ok() && peers_.options_.listener.tls != nullptr)
      wrong = check_certificate(connection(), hello.member);
    if (!wrong.ok()) return refuse(wrong);
    hello_ = std::move(hello);
    deadline_.set_after(kRecordTimeout, [this] {
      refuse({StatusCode::unauthenticated,
              fmt::format(
                  "it does not have the secret of a member {} in etcd: see that both frontends "
                  "use one etcd and one cluster.prefix, and reach it",
                  hello_->member)});
    });
    admit();
  }

  // Takes it in if its record has arrived.
  void admit() {
    // Without its own record, this frontend could not prove itself to the other one.
    if (peers_.secret_.empty() || !peers_.has_secret(hello_->member, hello_->secret)) return;
    deadline_.cancel();
    introduced_ = true;
    set_busy(true);
    member_ = std::move(hello_->member);
    hello_.reset();
    connection().limit_messages(kMostStatusBytes);
    send(PeerWelcome{peers_.options_.cluster, peers_.options_.member, kHeartbeat, kProtocolLevel,
                     peers_.secret_});
    send(peers_.told_);
    if (const CatalogueState& state = peers_.catalogue_.catalogue(); state.stamp.number > 0)
      send(state);
  }

  void refuse(const Status& why) {
    deadline_.cancel();
    hello_.reset();
    spdlog::warn("refused a frontend at {}: {}", connection().peer_address(), why.message());
    send(Refused{why});
    connection().close_after_sending();
  }

  std::optional<protocol::OutgoingFrame> goodbye(const Status& failure,
                                                 protocol::Dialect /*spoken*/) override {
    return protocol::encode(PeerReply(Refused{failure}));
  }
  void on_closed(const Status& reason) override {
    spdlog::debug("a frontend disconnected: {}", reason.message());
    peers_.forget_inbound(client_);
  }

  Peers& peers_;
  const ClientId client_;
  net::Alarm deadline_;             // until it is introduced
  std::optional<PeerHello> hello_;  // whose record has not arrived
  bool introduced_ = false;
  std::string member_;
  protocol::FrameDecoder<PeerRequest> decoder_;
  Status refused_;  // the request whose payload is being discarded
};

// ---- Peers

Peers::Peers(net::asio::io_context& io, PeersOptions options, net::BufferPool& buffers,
             const EngineLink& engine, PeerCatalogue& catalogue, PeerQuestions& questions)
    : io_(io),
      options_(std::move(options)),
      buffers_(buffers),
      engine_(engine),
      catalogue_(catalogue),
      questions_(questions),
      heartbeat_(io) {
  options_.connection.read_timeout = kMissedHeartbeats * kHeartbeat;
  options_.connection.limits.max_message_bytes = kMostStatusBytes;
}

Peers::~Peers() = default;

Status Peers::listen() {
  GPULET_TRY(auto listener,
             net::Listener::listen(io_.get_executor(), options_.listen.host, options_.listen.port,
                                   options_.listener,
                                   [this](net::Stream stream, net::ConnectionSlotPointer slot) {
                                     accept(std::move(stream), std::move(slot));
                                   }));
  listener_ = std::move(listener);
  beat();
  return {};
}

void Peers::accept(net::Stream stream, net::ConnectionSlotPointer slot) {
  std::size_t strangers = 0;
  Inbound* oldest = nullptr;
  for (const auto& [client, session] : inbound_) {
    if (session->introduced()) continue;
    if (oldest == nullptr) oldest = session.get();
    ++strangers;
  }
  if (strangers >= kMostStrangers) {
    oldest->close({StatusCode::overloaded, "too many connections without a PeerHello"});
  }
  const ClientId client = engine_.replies.new_client();
  auto session = std::make_unique<Inbound>(*this, client, std::move(stream), std::move(slot));
  engine_.replies.add(client, *session);
  inbound_.emplace(client, std::move(session));
}

void Peers::set_members(const std::vector<cluster::Member>& members) {
  members_.clear();
  for (const cluster::Member& member : members) {
    if (member.name == options_.member) {
      secret_ = member.secret;
    } else {
      members_.emplace(member.name, member);
    }
  }
  for (const auto& [client, session] : inbound_) session->members_changed();
  if (secret_.empty()) return;  // the others do not know this one yet
  for (const auto& [name, member] : members_) {
    const auto link = links_.find(member.name);
    if (link != links_.end() && (link->second->member() == member || link->second->welcomed()))
      continue;
    link_to(member);
  }
  std::erase_if(links_, [this](const auto& one) {
    return !members_.contains(one.first) && !one.second->connected();
  });
}

bool Peers::has_secret(const std::string& member, const std::string& secret) const {
  const auto found = members_.find(member);
  // A record without one is of a version before there were any.
  return found != members_.end() &&
         (found->second.secret.empty() || access::same_secret(found->second.secret, secret));
}

void Peers::forget_inbound(ClientId client) {
  const auto found = inbound_.find(client);
  if (found == inbound_.end()) return;
  const bool introduced = found->second->introduced();
  engine_.replies.remove(client);
  // Posted, because the session may be on the stack.
  net::asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
  inbound_.erase(found);
  if (!introduced) return;
  engine_.events.deliver(serve::ClientDisconnected{client});
  catalogue_.on_gone(client);
}

void Peers::link_ended(const std::string& member) {
  const auto found = links_.find(member);
  if (found == links_.end()) return;
  // Posted, because the link is on the stack.
  net::asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
  links_.erase(found);
  // The member may have another address now.
  if (members_.contains(member)) link_to(members_.at(member));
}

void Peers::link_to(const cluster::Member& member) {
  const Result<config::Endpoint> endpoint = config::parse_endpoint(member.peer);
  if (!endpoint.ok()) return;  // of a version without forwarding
  links_.insert_or_assign(member.name, std::make_unique<Link>(*this, member, endpoint.value()));
}

void Peers::close(const Status& reason) {
  closed_ = true;
  heartbeat_.cancel();
  if (listener_ != nullptr) listener_->close();
  links_.clear();
  for (auto& [client, session] : inbound_) session->close(reason);
}

void Peers::send(const std::string& member, const PeerRequest& message) {
  const auto found = links_.find(member);
  if (found != links_.end() && found->second->welcomed()) found->second->send(message);
}

void Peers::ask_status(const std::string& member, OnStatus done) {
  const auto found = links_.find(member);
  if (found == links_.end() || !found->second->welcomed())
    return done({{}, {StatusCode::unavailable, "frontend " + member + " is not connected"}});
  found->second->ask_status(std::move(done));
}

void Peers::tell(ServedModels served) {
  told_ = std::move(served);
  for (auto& [client, session] : inbound_) {
    if (session->introduced()) session->send(told_);
  }
}

void Peers::tell(const CatalogueState& state) {
  for (auto& [client, session] : inbound_) {
    if (session->introduced()) session->send(state);
  }
}

void Peers::ask_statistics(const std::string& model, const OnStatistics& done) {
  struct Gathered {
    Statistics all;
    std::size_t missing = 0;
  };
  std::vector<Link*> asked;
  for (const auto& [member, link] : links_) {
    if (link->answers_requests()) asked.push_back(link.get());
  }
  if (asked.empty()) return done({});
  const auto gathered = std::make_shared<Gathered>();
  gathered->missing = asked.size();
  for (Link* const link : asked) {
    link->ask_statistics(model, [gathered, done](auto statistics) {
      if (statistics) gathered->all.push_back(std::move(*statistics));
      if (--gathered->missing == 0) done(std::move(gathered->all));
    });
  }
}

void Peers::reply_statistics(ClientId client, StatisticsReply reply) {
  const auto found = inbound_.find(client);
  if (found != inbound_.end()) found->second->send(std::move(reply));
}

void Peers::request(const std::string& member, const ModelPieceRequest& piece, OnPiece done) {
  const auto found = links_.find(member);
  if (found == links_.end() || !found->second->answers_requests())
    return done(Status(StatusCode::unavailable, "frontend " + member + " is not connected"));
  found->second->request(piece, std::move(done));
}

void Peers::reply_piece(ClientId client, ModelPiece piece) {
  const auto found = inbound_.find(client);
  if (found != inbound_.end()) found->second->send(std::move(piece));
}

std::vector<std::string> Peers::members_with_files() const {
  std::vector<std::string> found;
  for (const auto& [member, link] : links_) {
    if (link->answers_requests()) found.push_back(member);
  }
  return found;
}

void Peers::change(const std::string& member, ModelsChange change, std::vector<NamedFile> files,
                   OnChanged done) {
  const auto found = links_.find(member);
  if (found == links_.end() || !found->second->welcomed())
    return done({{StatusCode::unavailable, "frontend " + member + " is not connected"}});
  found->second->change(std::move(change), std::move(files), std::move(done));
}

void Peers::reply_change(ClientId client, ChangeResult result) {
  const auto found = inbound_.find(client);
  if (found != inbound_.end()) found->second->send(std::move(result));
}

std::set<ClientId> Peers::listeners() const {
  std::set<ClientId> found;
  for (const auto& [client, session] : inbound_) {
    if (session->introduced()) found.insert(client);
  }
  return found;
}

void Peers::beat() {
  for (auto& [name, link] : links_) {
    link->send(Heartbeat{});
    link->answer_overdue(net::now());
  }
  for (auto& [client, session] : inbound_) {
    if (session->introduced()) session->send(Heartbeat{});
  }
  heartbeat_.set_after(kHeartbeat, [this] { beat(); });
}

}  // namespace gpulet::frontend
