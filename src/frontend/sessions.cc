#include "sessions.h"

#include <utility>

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
  return payload_.memory();
}

void Session::on_closed(const Status& reason) { on_closed_(reason); }

ClientSession::ClientSession(net::Stream stream, net::ConnectionSlot slot,
                             const net::ConnectionOptions& options,
                             std::shared_ptr<const net::Tokens> tokens, net::BufferPool& buffers,
                             Takes takes, OnMessage on_message, OnClosed on_closed)
    : Session(std::move(stream), std::move(slot), options, buffers, std::move(on_closed)),
      tokens_(std::move(tokens)),
      takes_(std::move(takes)),
      on_message_(std::move(on_message)) {}

void ClientSession::send(const serve::FrontendReply& reply) {
  if (std::holds_alternative<serve::InferReply>(reply) && under_way_ > 0) --under_way_;
  connection().send(net::encode(reply));
}

Result<MutableBytes> ClientSession::payload_memory(const net::FrameHeader& header,
                                                   std::span<const std::byte> message) {
  if (header.payload_bytes > kUnaskedPayloadBytes) {
    const Result<serve::ClientMessage> announced = net::decode_client_message(header, message, {});
    if (!announced.ok()) return announced.status();
    refusal_ = may_send(announced.value(), header.payload_bytes);
    if (!refusal_.ok()) return MutableBytes();
  }
  return pooled_memory(header.payload_bytes);
}

void ClientSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                             MutableBytes payload) {
  const Status refusal = std::exchange(refusal_, {});
  Result<serve::ClientMessage> decoded =
      net::decode_client_message(header, message, payload.freeze());
  if (decoded.ok()) {
    if (take_token(decoded.value())) return;
    Status may = refusal.ok() ? permission(decoded.value()) : refusal;
    if (may.ok()) may = may_be_here(decoded.value());
    if (std::holds_alternative<serve::InferRequest>(decoded.value())) ++under_way_;
    if (!may.ok()) return refuse(decoded.value(), std::move(may));
    return on_message_(std::move(decoded).value());
  }
  // The frame's bounds held, so the next one can be read; but whoever sends such bytes does not
  // speak the protocol.
  if (auto farewell = goodbye(decoded.status())) connection().send(std::move(*farewell));
  connection().close_after_sending();
}

bool ClientSession::take_token(const serve::ClientMessage& message) {
  const auto* const own = std::get_if<serve::Authenticate>(&message);
  if (own == nullptr) return false;
  token_shown_ = !own->token.empty();
  right_ = tokens_->right_of(own->token);
  return true;
}

Status ClientSession::permission(const serve::ClientMessage& message) const {
  if (!tokens_->guard_any()) return {};
  if (std::holds_alternative<serve::InferRequest>(message))
    return tokens_->check(net::Right::inference, token_shown_, right_);
  if (std::holds_alternative<serve::ModelsChange>(message))
    return tokens_->check(net::Right::admin, token_shown_, right_);
  return {};
}

Status ClientSession::may_be_here(const serve::ClientMessage& message) const {
  if (!reserved() || !std::holds_alternative<serve::InferRequest>(message)) return {};
  return {StatusCode::overloaded,
          "this server has as many connections as it may have (max_connections); try again later"};
}

// REQUIRES: more than kUnaskedPayloadBytes.
Status ClientSession::may_send(const serve::ClientMessage& message,
                               std::size_t payload_bytes) const {
  if (Status may = permission(message); !may.ok()) return may;
  if (const auto* const request = std::get_if<serve::InferRequest>(&message))
    return takes_(*request, payload_bytes);
  const std::size_t most =
      std::holds_alternative<serve::ModelsChange>(message) ? kMaxModelsText : 0;
  if (payload_bytes <= most) return {};
  return {StatusCode::invalid, "this message may have a payload of " + std::to_string(most) +
                                   " bytes; it has " + std::to_string(payload_bytes)};
}

void ClientSession::refuse(const serve::ClientMessage& message, Status why) {
  if (const auto* const request = std::get_if<serve::InferRequest>(&message)) {
    serve::InferReply reply;
    reply.tag = request->tag;
    reply.status = std::move(why);
    return send(std::move(reply));
  }
  if (std::holds_alternative<serve::ModelsChange>(message))
    return send(serve::ModelsChanged{std::move(why)});
  if (auto farewell = goodbye(why)) connection().send(std::move(*farewell));
  connection().close_after_sending();
}

std::optional<net::OutgoingFrame> ClientSession::goodbye(const Status& failure) {
  serve::InferReply reply;
  reply.status = failure;
  return net::encode(serve::FrontendReply(std::move(reply)));
}

BackendSession::BackendSession(net::Stream stream, net::ConnectionSlot slot,
                               const net::ConnectionOptions& options, bool certified,
                               net::BufferPool& buffers, OnMessage on_message, OnClosed on_closed)
    : Session(std::move(stream), std::move(slot), options, buffers, std::move(on_closed)),
      certified_(certified),
      on_message_(std::move(on_message)) {}

void BackendSession::send(const serve::BackendCommand& command) {
  connection().send(net::encode(command));
}

Result<MutableBytes> BackendSession::payload_memory(const net::FrameHeader& header,
                                                    std::span<const std::byte> /*message*/) {
  if (!introduced_) {
    return Status(StatusCode::unauthenticated,
                  "a payload came before the message that says which node this is");
  }
  if (header.type != net::MessageType::batch_result) {
    return Status(
        StatusCode::malformed,
        "a message of type " + std::string(net::to_string(header.type)) + " has no payload");
  }
  return pooled_memory(header.payload_bytes);
}

void BackendSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                              MutableBytes payload) {
  Result<serve::BackendMessage> decoded =
      net::decode_backend_message(header, message, payload.freeze());
  if (!decoded.ok()) return connection().close(decoded.status());
  if (const Status welcome = take_introduction(decoded.value()); !welcome.ok())
    return connection().close(welcome);
  on_message_(std::move(decoded).value());
}

Status BackendSession::take_introduction(const serve::BackendMessage& message) {
  const auto* const hello = std::get_if<serve::Hello>(&message);
  if (hello == nullptr) return {};
  if (certified_ && !connection().peer_certifies(hello->node)) {
    std::string names;
    for (const std::string& name : connection().peer_names())
      names += (names.empty() ? "" : ", ") + name;
    return {StatusCode::unauthenticated, "it says that it is node " + hello->node +
                                             ", but its certificate is for " + names +
                                             "; give the node one of its own name"};
  }
  introduced_ = true;
  return {};
}

}  // namespace gpulet::frontend
