#include "frontend/frames/sessions.h"

#include <fmt/format.h>

#include <utility>

#include "frontend/frames/certificate_role.h"
#include "gpulet/base/text.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::frontend {

Session::Session(net::Stream stream, net::ConnectionSlotPointer slot,
                 const net::ConnectionOptions& options, net::BufferPool& buffers)
    : buffers_(buffers),
      executor_(stream.get_executor()),
      connection_(net::Connection::start(std::move(stream), options, *this)),
      place_(std::move(slot), executor_, connection_) {}

Session::Place::Place(net::ConnectionSlotPointer slot, net::asio::any_io_executor executor,
                      std::shared_ptr<net::Connection> connection)
    : executor_(std::move(executor)), connection_(std::move(connection)), slot_(std::move(slot)) {
  slot_->set_holder(*this);
}

net::ConnectionSlot::Holder::Activity Session::Place::activity() const {
  const bool busy = busy_.load(std::memory_order_relaxed);
  const State state = connection_->silent() ? State::silent : busy ? State::busy : State::idle;
  return {state, connection_->last_frame()};
}

void Session::Place::evict() {
  net::asio::post(executor_, [evicted = std::weak_ptr(connection_)] {
    if (const auto connection = evicted.lock()) {
      connection->close(
          {StatusCode::overloaded, "the connection was closed in favour of another one"});
    }
  });
}

Result<MutableBytes> Session::pooled_memory(std::size_t bytes) {
  GPULET_TRY(net::IncomingBytes taken, buffers_.take_incoming(bytes));
  payload_ = std::move(taken);
  return payload_.take_memory();
}

ClientSession::ClientSession(net::Stream stream, net::ConnectionSlotPointer slot,
                             const Options& options, std::shared_ptr<access::Gate> gate,
                             net::BufferPool& buffers, Owner& owner)
    : Session(std::move(stream), std::move(slot), options.connection, buffers),
      gate_(std::move(gate)),
      id_(options.id),
      port_(options.port),
      owner_(owner),
      peer_{connection().peer_address()} {
  peer_.protocol = "own";
}

void ClientSession::reply(InferReply reply) {
  reply.leaving = leaving_;
  if (in_flight_ > 0) --in_flight_;
  set_busy(in_flight_ > 0);
  const auto held = permits_.find(reply.tag);
  if (held != permits_.end()) permits_.erase(held);
  answer(std::move(reply));
}

void ClientSession::on_closed(const Status& reason) { owner_.on_closed(id_, reason); }

void ClientSession::tokens_changed() {
  if (!gate_->revoked(peer_)) return;
  close({StatusCode::unauthenticated, "the token was revoked"});
}

access::CallNeeds needs_of(const ModelsChange& change) {
  const bool loads = change.kind == ModelsChange::Kind::load;
  return {access::Right::admin, loads ? "model_load" : "model_unload", change.name};
}

void ClientSession::answer(const FrontendReply& reply) {
  connection().send(protocol::encode(reply));
}

Result<MutableBytes> ClientSession::payload_memory(const protocol::FrameHeader& header,
                                                   std::span<const std::byte> message) {
  if (header.payload_bytes > kMaxUncheckedPayloadBytes) {
    const Result<const ClientMessage*> announced = decoder_.announce(header, message);
    if (!announced.ok()) return announced.status();
    access_ = may_send(*announced.value(), header.payload_bytes);
    if (!access_->status.ok()) return MutableBytes();
  }
  return pooled_memory(header.payload_bytes);
}

void ClientSession::on_frame(const protocol::FrameHeader& header,
                             std::span<const std::byte> message, MutableBytes payload) {
  const std::optional<access::Access> announced = std::exchange(access_, std::nullopt);
  if (auto wrong = check_port(port_, header.type)) {
    connection().send(std::move(wrong->goodbye));
    return connection().close_after_sending();
  }
  Result<ClientMessage> decoded = decoder_.finish(header, message, std::move(payload).freeze());
  if (!decoded.ok()) return close(decoded.status());
  if (take_token(decoded.value())) return;
  if (const auto* const request = std::get_if<InferRequest>(&decoded.value())) {
    access::Access access = admit(*request, announced);
    if (!access.status.ok()) return refuse(request->tag, std::move(access));
    if (access.permit) permits_.emplace(request->tag, std::move(access.permit));
    ++in_flight_;
    set_busy(true);
  } else {
    Status may =
        announced && !announced->status.ok() ? announced->status : permission(decoded.value());
    if (!may.ok()) return refuse(decoded.value(), std::move(may));
  }
  owner_.on_message(id_, std::move(decoded).value());
}

bool ClientSession::take_token(const ClientMessage& message) {
  const auto* const own = std::get_if<Authenticate>(&message);
  if (own == nullptr) return false;
  peer_.token_shown = !own->token.empty();
  peer_.token = gate_->tokens()->find(own->token);
  return true;
}

access::Access ClientSession::admit(const InferRequest& request,
                                    const std::optional<access::Access>& announced) {
  if (announced && !announced->status.ok()) return *announced;
  const bool guarded = gate_->guards_inference();
  if (guarded && !announced) {
    access::Access access = gate_->announce(peer_, request.model);
    if (!access.status.ok()) return access;
  }
  if (reserved()) {
    return {{StatusCode::overloaded,
             "the server has reached its limit of connections (max_connections); try again later"}};
  }
  return guarded ? gate_->enter(peer_, request.model, 1) : access::Access{};
}

Status ClientSession::permission(const ClientMessage& message) {
  if (const auto* const change = std::get_if<ModelsChange>(&message))
    return gate_->check(needs_of(*change), peer_);
  if (std::holds_alternative<StatusRequest>(message))
    return gate_->check({access::Right::observe, "observe"}, peer_);
  return {};
}

// REQUIRES: payload_bytes > kMaxUncheckedPayloadBytes.
access::Access ClientSession::may_send(const ClientMessage& message, std::size_t payload_bytes) {
  if (const auto* const request = std::get_if<InferRequest>(&message)) {
    access::Access access;
    if (gate_->guards_inference()) access = gate_->announce(peer_, request->model);
    if (access.status.ok()) access.status = owner_.accepts(*request, payload_bytes);
    return access;
  }
  if (Status may = permission(message); !may.ok()) return {std::move(may)};
  const std::size_t most = std::holds_alternative<ModelsChange>(message) ? kMaxModelsText : 0;
  if (payload_bytes <= most) return {};
  return {{StatusCode::invalid, fmt::format("the payload of this message may have at most {} "
                                            "bytes; it has {}",
                                            most, payload_bytes)}};
}

void ClientSession::refuse(std::uint64_t tag, access::Access why) {
  InferReply reply;
  reply.tag = tag;
  reply.status = std::move(why.status);
  reply.retry_after = why.retry_after;
  answer(std::move(reply));
}

void ClientSession::refuse(const ClientMessage& message, Status why) {
  if (std::holds_alternative<ModelsChange>(message)) return answer(ModelsChanged{std::move(why)});
  if (std::holds_alternative<StatusRequest>(message))
    return answer(StatusReply{{}, std::move(why)});
  close(why);
}

void ClientSession::close(const Status& why) {
  connection().send(goodbye_frame(port_, why, protocol::Dialect::frames));
  connection().close_after_sending();
}

std::optional<protocol::OutgoingFrame> ClientSession::goodbye(const Status& failure,
                                                              protocol::Dialect spoken) {
  return goodbye_frame(port_, failure, spoken);
}

BackendSession::BackendSession(const net::asio::any_io_executor& executor, net::Stream stream,
                               net::ConnectionSlotPointer slot, const Options& options,
                               net::BufferPool& buffers, Owner& owner)
    : Session(std::move(stream), std::move(slot), options.connection, buffers),
      id_(options.id),
      address_(connection().peer_address()),
      certified_(options.certified),
      port_(options.port),
      owner_(owner),
      hello_deadline_(executor) {
  hello_deadline_.expires_after(options.hello_within);
  hello_deadline_.async_wait(
      [this, watch = alive_.watch()](const boost::system::error_code& error) {
        if (error || !watch.alive() || introduced_ || broken_) return;
        static_cast<void>(report({serve::PeerViolation::no_hello,
                                  {StatusCode::timeout, "no Hello was received in time"}}));
      });
}

void BackendSession::send(const BackendCommand& command) {
  const auto* const batch = std::get_if<Batch>(&command);
  if (batch != nullptr && shared_ != nullptr) {
    if (std::optional<Batch> named = shared_->share(*batch))
      return connection().send(protocol::encode(BackendCommand(*std::move(named))));
  }
  connection().send(protocol::encode(command));
}

void BackendSession::go_on_over(net::StreamSocket socket,
                                std::shared_ptr<net::SharedMemory> memory) {
  if (broken_ || !introduced_ || shared_ != nullptr) return;
  FileDescriptor reader;
  if (memory != nullptr) {
    Result<FileDescriptor> opened = memory->reader();
    if (opened.ok()) reader = std::move(opened).value();
  }
  if (!net::send_descriptor(socket, reader.get())) return;
  if (reader.valid()) shared_ = std::make_unique<SharedBatches>(std::move(memory));
  connection().move_to(net::Stream(std::move(socket)));
}

void BackendSession::refuse(const Status& why) {
  broken_ = true;
  connection().send(goodbye_ ? std::move(*goodbye_)
                             : goodbye_frame(port_, why, protocol::Dialect::frames));
  connection().close_after_sending();
}

Status BackendSession::report(const serve::PeerBreach& breach) {
  if (!std::exchange(broken_, true)) owner_.on_breach(id_, breach);
  return breach.why;
}

Result<MutableBytes> BackendSession::payload_memory(const protocol::FrameHeader& header,
                                                    std::span<const std::byte> message) {
  using serve::PeerViolation;
  if (!introduced_) return report_early(header.type);
  if (header.type != protocol::MessageType::batch_result) {
    return report({PeerViolation::malformed,
                   {StatusCode::invalid,
                    fmt::format("received a {} with a payload; only batch results may have one",
                                protocol::to_string(header.type))}});
  }
  const auto announced = decoder_.announce(header, message);
  if (!announced.ok()) return report({PeerViolation::malformed, announced.status()});
  const BatchId batch = std::get<BatchResult>(*announced.value()).id;
  if (const auto breach = owner_.breach_of_result(id_, batch)) return report(*breach);
  result_began_ = net::now();
  return pooled_memory(header.payload_bytes);
}

void BackendSession::on_frame(const protocol::FrameHeader& header,
                              std::span<const std::byte> message, MutableBytes payload) {
  using serve::PeerViolation;
  if (broken_) return;
  if (!introduced_ && header.type != protocol::MessageType::hello) {
    static_cast<void>(report_early(header.type));
    return;
  }
  if (header.type == protocol::MessageType::moved) {
    if (connection().follow()) return;
    static_cast<void>(
        report({PeerViolation::malformed,
                {StatusCode::invalid, "received a moved without a Unix socket to move to"}}));
    return;
  }
  Result<BackendMessage> decoded = decoder_.finish(header, message, std::move(payload).freeze());
  if (!decoded.ok()) {
    static_cast<void>(report({PeerViolation::malformed, decoded.status()}));
    return;
  }
  if (const auto breach = breach_of_introduction(decoded.value())) {
    static_cast<void>(report(*breach));
    return;
  }
  if (auto* const result = std::get_if<BatchResult>(&decoded.value())) {
    result->returning = std::exchange(result_began_, Time());
    if (shared_ != nullptr) shared_->answered(result->id);
  }
  owner_.on_message(id_, std::move(decoded).value());
}

Status BackendSession::report_early(protocol::MessageType type) {
  std::string why = "received a " + std::string(protocol::to_string(type)) + " before Hello";
  if (auto wrong = check_port(port_, type)) {
    why += ": " + wrong->reason;
    goodbye_ = std::move(wrong->goodbye);
  }
  return report({serve::PeerViolation::before_hello, {StatusCode::invalid, std::move(why)}});
}

std::optional<protocol::OutgoingFrame> BackendSession::goodbye(const Status& failure,
                                                               protocol::Dialect spoken) {
  return goodbye_frame(port_, failure, spoken);
}

std::optional<serve::PeerBreach> BackendSession::breach_of_introduction(
    const BackendMessage& message) {
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr) return std::nullopt;
  if (certified_ && !(connection().peer_certifies(hello->node) &&
                      permits_role(connection().peer_names(), kNodeRole, hello->node))) {
    const std::string names = joined(connection().peer_names());
    return serve::PeerBreach{
        serve::PeerViolation::other_node,
        {StatusCode::unauthenticated, "the backend calls itself node " + hello->node +
                                          ", but its certificate is for " + names +
                                          "; give the node a certificate with its own name"}};
  }
  introduced_ = true;
  set_busy(true);
  hello_deadline_.cancel();
  return std::nullopt;
}

// ---- BackendSessions

BackendSessions::BackendSessions(net::asio::io_context& io, BackendSession::Options options,
                                 net::BufferPool& buffers, const EngineLink& engine, PeerLog& log)
    : io_(io), options_(options), buffers_(buffers), engine_(engine), log_(log) {}

void BackendSessions::accept(net::Stream stream, net::ConnectionSlotPointer slot) {
  BackendSession::Owner& owner = *this;
  BackendSession::Options options = options_;
  options.id = BackendId{engine_.replies.new_connection()};
  sessions_[options.id] = std::make_unique<BackendSession>(
      io_.get_executor(), std::move(stream), std::move(slot), options, buffers_, owner);
}

void BackendSessions::on_message(BackendId from, BackendMessage message) {
  const auto found = sessions_.find(from);
  if (found == sessions_.end()) return;
  // A copy: the event may end the session.
  const std::string address = found->second->address();
  engine_.events.deliver_from(address, serve::BackendMessageReceived{from, std::move(message)});
}

std::optional<serve::PeerBreach> BackendSessions::breach_of_result(BackendId from,
                                                                   BatchId batch) const {
  return engine_.payloads.breach_of_result(from, batch);
}

void BackendSessions::on_breach(BackendId backend, const serve::PeerBreach& breach) {
  const auto found = sessions_.find(backend);
  const std::string address = found == sessions_.end() ? std::string() : found->second->address();
  engine_.events.deliver_from(address, serve::BackendViolatedProtocol{backend, breach});
}

void BackendSessions::open_local_door(net::BufferPool& requests) {
  LocalDoor::Owner& owner = *this;
  auto door = LocalDoor::open(io_.get_executor(), owner);
  if (!door.ok()) {
    return log_.warn({}, "warning", "backends of this machine use TCP: " + door.status().message());
  }
  door_ = std::move(door).value();
  requests_ = &requests;
}

void BackendSessions::on_local(BackendId backend, net::StreamSocket socket) {
  const auto found = sessions_.find(backend);
  if (found == sessions_.end()) return;
  const std::string& address = found->second->address();
  log_.info(address, "local", "the backend at " + address + " goes on over a Unix socket");
  Result<std::shared_ptr<net::SharedMemory>> memory = requests_->share();
  if (!memory.ok())
    log_.warn(address, "warning", "requests are sent: " + memory.status().message());
  found->second->go_on_over(std::move(socket), memory.ok() ? std::move(memory).value() : nullptr);
}

void BackendSessions::send(BackendId id, const BackendCommand& command) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const auto* const welcome = std::get_if<Welcome>(&command);
  if (welcome == nullptr || door_ == nullptr) return found->second->send(command);
  Welcome with_offer = *welcome;
  with_offer.local = door_->offer(id);
  found->second->send(with_offer);
}

void BackendSessions::refuse(BackendId id, const Status& why) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  found->second->refuse(why);
  refused_.insert(sessions_.extract(found));
}

void BackendSessions::close_all(const Status& reason) {
  door_.reset();  // an open one keeps the io_context running
  for (auto& [id, session] : sessions_) session->close(reason);
  for (auto& [id, session] : refused_) session->close(reason);
}

void BackendSessions::forget(Sessions& sessions, BackendId id) {
  const auto found = sessions.find(id);
  if (found == sessions.end()) return;
  // Posted, because the session may be on the stack.
  net::asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
  sessions.erase(found);
  if (door_ != nullptr) door_->withdraw(id);
}

void BackendSessions::on_closed(BackendId backend, const Status& reason) {
  forget(refused_, backend);
  const auto found = sessions_.find(backend);
  if (found == sessions_.end()) return;
  const bool introduced = found->second->introduced();
  const std::string address = found->second->address();
  forget(sessions_, backend);
  if (reason.code() == StatusCode::malformed || reason.code() == StatusCode::invalid) {
    return engine_.events.deliver_from(
        address,
        serve::BackendViolatedProtocol{backend, {serve::PeerViolation::malformed, reason}});
  }
  if (!introduced && reason.code() != StatusCode::cancelled)
    log_.warn(address, "warning", "refused a backend at " + address + ": " + reason.message());
  engine_.events.deliver_from(address, serve::BackendDisconnected{backend, reason});
}

namespace {

std::string port_text(std::uint16_t number) {
  return number == 0 ? std::string("none (it is off)") : std::to_string(number);
}

std::string this_port(const FramePort& here) {
  return here.peers == FramePort::Peers::clients
             ? fmt::format("this is the port for clients ({})", here.clients)
             : fmt::format("this is the port for backends ({})", here.backends);
}

bool is_from_backend(protocol::MessageType type) {
  return type >= protocol::MessageType::hello && type <= protocol::MessageType::device_report;
}

bool is_from_client(protocol::MessageType type) {
  return type == protocol::MessageType::infer_request ||
         type == protocol::MessageType::models_request ||
         type == protocol::MessageType::status_request ||
         type == protocol::MessageType::models_change ||
         type == protocol::MessageType::authenticate;
}

// Clients accept this reply for any request.
protocol::OutgoingFrame to_client(const Status& why) {
  InferReply reply;
  reply.status = why;
  return protocol::encode(FrontendReply(std::move(reply)));
}

protocol::OutgoingFrame to_backend(const Status& why) {
  return protocol::encode(BackendCommand(Refused{why}));
}

protocol::OutgoingFrame bad_request(const std::string& why) {
  const std::string body = json_error(why) + '\n';
  protocol::OutgoingFrame answer;
  answer.head = fmt::format(
      "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      body.size(), body);
  return answer;
}

}  // namespace

std::optional<WrongPort> check_port(const FramePort& here, protocol::MessageType type) {
  if (here.peers == FramePort::Peers::clients && is_from_backend(type)) {
    const std::string why = this_port(here) + "; backends connect to port " +
                            port_text(here.backends) + " (key \"frontend\" of the backend)";
    return WrongPort{why, to_backend({StatusCode::invalid, why})};
  }
  if (here.peers == FramePort::Peers::backends && is_from_client(type)) {
    const std::string why =
        this_port(here) + "; clients connect to port " + port_text(here.clients);
    return WrongPort{why, to_client({StatusCode::invalid, why})};
  }
  return std::nullopt;
}

protocol::OutgoingFrame goodbye_frame(const FramePort& here, const Status& failure,
                                      protocol::Dialect spoken) {
  switch (spoken) {
    case protocol::Dialect::http:
      return bad_request(this_port(here) + ", which uses gpulet's own protocol; HTTP is on port " +
                         port_text(here.http));
    case protocol::Dialect::http2:
      return bad_request(this_port(here) + ", which uses gpulet's own protocol; gRPC is on port " +
                         port_text(here.grpc));
    default:
      return here.peers == FramePort::Peers::clients ? to_client(failure) : to_backend(failure);
  }
}

}  // namespace gpulet::frontend
