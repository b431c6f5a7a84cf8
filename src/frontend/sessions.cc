#include "sessions.h"

#include <utility>

#include "gpulet/net/clock.h"
#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {

Session::Session(net::Stream stream, net::ConnectionSlot slot,
                 const net::ConnectionOptions& options, net::BufferPool& buffers,
                 OnClosed on_closed)
    : slot_(std::move(slot)),
      buffers_(buffers),
      on_closed_(std::move(on_closed)),
      connection_(net::Connection::start(std::move(stream), options, *this)) {
  slot_->set_holder(this);
}

net::Place::Holder::Standing Session::standing() const {
  const State state = connection_->silent() ? State::silent : busy() ? State::busy : State::idle;
  return {state, connection_->last_frame()};
}

void Session::give_way() {
  connection_->close({StatusCode::overloaded, "its place was needed for another connection"});
}

Result<MutableBytes> Session::pooled_memory(std::size_t bytes) {
  Result<net::IncomingBytes> taken = buffers_.take_incoming(bytes);
  if (!taken.ok()) return taken.status();
  payload_ = std::move(taken).value();
  return payload_.take_memory();
}

void Session::on_closed(const Status& reason) { on_closed_(reason); }

ClientSession::ClientSession(net::Stream stream, net::ConnectionSlot slot,
                             const net::ConnectionOptions& options, std::shared_ptr<net::Gate> gate,
                             net::BufferPool& buffers, const FramePort& port, Takes takes,
                             OnMessage on_message, OnClosed on_closed)
    : Session(std::move(stream), std::move(slot), options, buffers, std::move(on_closed)),
      gate_(std::move(gate)),
      port_(port),
      takes_(std::move(takes)),
      on_message_(std::move(on_message)),
      peer_{connection().peer_address()} {
  peer_.protocol = "own";
}

void ClientSession::send(const serve::FrontendReply& reply) {
  if (const auto* const inferred = std::get_if<serve::InferReply>(&reply)) {
    if (under_way_ > 0) --under_way_;
    const auto held = permits_.find(inferred->tag);
    if (held != permits_.end()) permits_.erase(held);
  }
  answer(reply);
}

void ClientSession::tokens_changed() {
  if (!gate_->revoked(peer_)) return;
  end({StatusCode::unauthenticated, "the token was revoked"});
}

net::CallNeeds needs_of(const serve::ModelsChange& change) {
  const bool loads = change.kind == serve::ModelsChange::Kind::load;
  return {net::Right::admin, loads ? "model_load" : "model_unload", change.name};
}

void ClientSession::answer(const serve::FrontendReply& reply) {
  connection().send(net::encode(reply));
}

Result<MutableBytes> ClientSession::payload_memory(const net::FrameHeader& header,
                                                   std::span<const std::byte> message) {
  if (header.payload_bytes > kUnaskedPayloadBytes) {
    const Result<serve::ClientMessage> announced = net::decode_client_message(header, message, {});
    if (!announced.ok()) return announced.status();
    admission_ = may_send(announced.value(), header.payload_bytes);
    if (!admission_->status.ok()) return MutableBytes();
  }
  return pooled_memory(header.payload_bytes);
}

void ClientSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                             MutableBytes payload) {
  const std::optional<net::Admission> announced = std::exchange(admission_, std::nullopt);
  if (auto wrong = misdirected(port_, header.type)) {
    connection().send(std::move(wrong->farewell));
    return connection().close_after_sending();
  }
  Result<serve::ClientMessage> decoded =
      net::decode_client_message(header, message, std::move(payload).freeze());
  if (!decoded.ok()) {
    // The frame's bounds held, so the next one can be read; but whoever sends such bytes does not
    // speak the protocol.
    return end(decoded.status());
  }
  if (take_token(decoded.value())) return;
  if (const auto* const request = std::get_if<serve::InferRequest>(&decoded.value())) {
    net::Admission admission = admit(*request, announced);
    if (!admission.status.ok()) return refuse(request->tag, std::move(admission));
    if (admission.permit) permits_.emplace(request->tag, std::move(admission.permit));
    ++under_way_;
  } else {
    Status may =
        announced && !announced->status.ok() ? announced->status : permission(decoded.value());
    if (!may.ok()) return refuse(decoded.value(), std::move(may));
  }
  on_message_(std::move(decoded).value());
}

bool ClientSession::take_token(const serve::ClientMessage& message) {
  const auto* const own = std::get_if<serve::Authenticate>(&message);
  if (own == nullptr) return false;
  peer_.token_shown = !own->token.empty();
  peer_.token = gate_->tokens()->find(own->token);
  return true;
}

net::Admission ClientSession::announce(const serve::InferRequest& request) {
  return gate_->guards_inference() ? gate_->announce(peer_, request.model) : net::Admission{};
}

net::Admission ClientSession::admit(const serve::InferRequest& request,
                                    const std::optional<net::Admission>& announced) {
  if (announced && !announced->status.ok()) return *announced;
  const bool guarded = gate_->guards_inference();
  if (guarded && !announced) {
    net::Admission admission = gate_->announce(peer_, request.model);
    if (!admission.status.ok()) return admission;
  }
  if (reserved()) {
    return {{StatusCode::overloaded,
             "this server has as many connections as it may have (max_connections); try again "
             "later"}};
  }
  return guarded ? gate_->enter(peer_, request.model, 1) : net::Admission{};
}

Status ClientSession::permission(const serve::ClientMessage& message) {
  if (const auto* const change = std::get_if<serve::ModelsChange>(&message))
    return gate_->check(needs_of(*change), peer_);
  if (std::holds_alternative<serve::StatusRequest>(message))
    return gate_->check({net::Right::observe, "observe"}, peer_);
  return {};
}

// REQUIRES: more than kUnaskedPayloadBytes.
net::Admission ClientSession::may_send(const serve::ClientMessage& message,
                                       std::size_t payload_bytes) {
  if (const auto* const request = std::get_if<serve::InferRequest>(&message)) {
    net::Admission admission = announce(*request);
    if (admission.status.ok()) admission.status = takes_(*request, payload_bytes);
    return admission;
  }
  if (Status may = permission(message); !may.ok()) return {std::move(may)};
  const std::size_t most =
      std::holds_alternative<serve::ModelsChange>(message) ? kMaxModelsText : 0;
  if (payload_bytes <= most) return {};
  return {{StatusCode::invalid, "this message may have a payload of " + std::to_string(most) +
                                    " bytes; it has " + std::to_string(payload_bytes)}};
}

void ClientSession::refuse(std::uint64_t tag, net::Admission why) {
  serve::InferReply reply;
  reply.tag = tag;
  reply.status = std::move(why.status);
  reply.retry_after = why.retry_after;
  answer(std::move(reply));
}

void ClientSession::refuse(const serve::ClientMessage& message, Status why) {
  if (std::holds_alternative<serve::ModelsChange>(message))
    return answer(serve::ModelsChanged{std::move(why)});
  if (std::holds_alternative<serve::StatusRequest>(message))
    return answer(serve::StatusReply{{}, std::move(why)});
  end(why);
}

void ClientSession::end(const Status& why) {
  connection().send(farewell(port_, why, net::Dialect::frames));
  connection().close_after_sending();
}

std::optional<net::OutgoingFrame> ClientSession::goodbye(const Status& failure,
                                                         net::Dialect spoken) {
  return farewell(port_, failure, spoken);
}

BackendSession::BackendSession(const net::asio::any_io_executor& executor, net::Stream stream,
                               net::ConnectionSlot slot,
                               const net::ConnectionOptions& connection_options,
                               const Options& options, net::BufferPool& buffers, Owner owner)
    : Session(std::move(stream), std::move(slot), connection_options, buffers,
              std::move(owner.on_closed)),
      certified_(options.certified),
      port_(options.port),
      owner_(std::move(owner)),
      hello_deadline_(executor) {
  hello_deadline_.expires_after(options.hello_within);
  hello_deadline_.async_wait(
      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
        if (error || alive.expired() || introduced_ || broken_) return;
        static_cast<void>(report(
            {serve::PeerViolation::no_hello, {StatusCode::timeout, "it sent no Hello in time"}}));
      });
}

void BackendSession::send(const serve::BackendCommand& command) {
  connection().send(net::encode(command));
}

void BackendSession::refuse(const Status& why) {
  broken_ = true;
  connection().send(farewell_ ? std::move(*farewell_) : farewell(port_, why, net::Dialect::frames));
  connection().close_after_sending();
}

Status BackendSession::report(const serve::PeerBreach& breach) {
  if (!std::exchange(broken_, true)) owner_.on_breach(breach);
  return breach.why;
}

Result<MutableBytes> BackendSession::payload_memory(const net::FrameHeader& header,
                                                    std::span<const std::byte> message) {
  using serve::PeerViolation;
  const auto refused = [&](PeerViolation kind) {
    return report({kind,
                   {StatusCode::invalid, "it sent a " + std::string(net::to_string(header.type)) +
                                             " with a payload, which only results have"}});
  };
  if (!introduced_) return report_early(header.type);
  if (header.type != net::MessageType::batch_result) return refused(PeerViolation::malformed);
  const auto decoded = net::decode_backend_message(header, message, Bytes());
  if (!decoded.ok()) return report({PeerViolation::malformed, decoded.status()});
  if (const auto breach = owner_.breach_of_result(std::get<BatchResult>(decoded.value()).id)) {
    return report(*breach);
  }
  result_began_ = net::now();
  return pooled_memory(header.payload_bytes);
}

void BackendSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                              MutableBytes payload) {
  using serve::PeerViolation;
  if (broken_) return;
  if (!introduced_ && header.type != net::MessageType::hello) {
    static_cast<void>(report_early(header.type));
    return;
  }
  Result<serve::BackendMessage> decoded =
      net::decode_backend_message(header, message, std::move(payload).freeze());
  if (!decoded.ok()) {
    static_cast<void>(report({PeerViolation::malformed, decoded.status()}));
    return;
  }
  if (const auto breach = breach_of_introduction(decoded.value())) {
    static_cast<void>(report(*breach));
    return;
  }
  if (auto* const result = std::get_if<BatchResult>(&decoded.value()))
    result->returning = std::exchange(result_began_, Time());
  owner_.on_message(std::move(decoded).value());
}

Status BackendSession::report_early(net::MessageType type) {
  std::string why = "it sent a " + std::string(net::to_string(type)) + " before its Hello";
  if (auto wrong = misdirected(port_, type)) {
    why += ": " + wrong->why;
    farewell_ = std::move(wrong->farewell);
  }
  return report({serve::PeerViolation::before_hello, {StatusCode::invalid, std::move(why)}});
}

std::optional<net::OutgoingFrame> BackendSession::goodbye(const Status& failure,
                                                          net::Dialect spoken) {
  return farewell(port_, failure, spoken);
}

std::optional<serve::PeerBreach> BackendSession::breach_of_introduction(
    const serve::BackendMessage& message) {
  const auto* const hello = std::get_if<serve::Hello>(&message);
  if (hello == nullptr) return std::nullopt;
  if (certified_ && !connection().peer_certifies(hello->node)) {
    std::string names;
    for (const std::string& name : connection().peer_names())
      names += (names.empty() ? "" : ", ") + name;
    return serve::PeerBreach{
        serve::PeerViolation::other_node,
        {StatusCode::unauthenticated, "it says that it is node " + hello->node +
                                          ", but its certificate is for " + names +
                                          "; give the node one of its own name"}};
  }
  introduced_ = true;
  hello_deadline_.cancel();
  return std::nullopt;
}

}  // namespace gpulet::frontend
