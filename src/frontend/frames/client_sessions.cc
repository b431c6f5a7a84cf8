#include "frontend/frames/client_sessions.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <variant>

#include "frontend/frames/connection_options.h"

namespace gpulet::frontend {

ClientSessions::ClientSessions(net::asio::io_context& io, const config::FrontendConfig& config,
                               std::shared_ptr<access::Gate> gate, net::BufferPool& buffers,
                               const EngineLink& engine, ClientRequests& requests)
    : io_(io),
      config_(config),
      gate_(std::move(gate)),
      buffers_(buffers),
      engine_(engine),
      requests_(requests) {}

void ClientSessions::accept(net::Stream stream, net::ConnectionSlotPointer slot) {
  const ClientId id = engine_.replies.new_client();
  ClientSession::Owner& owner = *this;
  const ClientSession::Options options{id, client_options(config_, slot->reserved()), port_};
  auto session = std::make_unique<ClientSession>(std::move(stream), std::move(slot), options, gate_,
                                                 buffers_, owner);
  if (leaving_) session->start_leaving();
  engine_.replies.add(id, *session);
  sessions_.emplace(id, std::move(session));
  size_ = sessions_.size();
}

void ClientSessions::start_leaving() {
  leaving_ = true;
  for (auto& [id, session] : sessions_) session->start_leaving();
}

void ClientSessions::tokens_changed() {
  for (auto& [id, session] : sessions_) session->tokens_changed();
}

void ClientSessions::close_after_sending() {
  for (auto& [id, session] : sessions_) session->close_after_sending();
}

void ClientSessions::on_message(ClientId from, ClientMessage&& message) {
  std::visit([this, from](auto& one) { this->take(from, one); }, message);
}

void ClientSessions::take(ClientId from, InferRequest& request) {
  engine_.events.deliver(serve::RequestReceived{from, std::move(request)});
}

void ClientSessions::take(ClientId from, ModelsRequest& request) {
  requests_.on_models_request(from, request);
}

void ClientSessions::take(ClientId from, ModelsChange& change) {
  requests_.on_change(from, std::move(change), sessions_.at(from)->peer());
}

void ClientSessions::take(ClientId from, StatusRequest& request) {
  requests_.on_status_request(from, request);
}

void ClientSessions::take(ClientId /*from*/, Authenticate& /*token*/) {}  // the session handles it

void ClientSessions::on_closed(ClientId client, const Status& reason) {
  spdlog::debug("a client disconnected: {}", reason.to_string());
  const auto found = sessions_.find(client);
  if (found == sessions_.end()) return;
  engine_.replies.remove(client);
  // Posted, because the session may be on the stack.
  net::asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
  sessions_.erase(found);
  size_ = sessions_.size();
  requests_.on_gone(client);
  engine_.events.deliver(serve::ClientDisconnected{client});
}

Status ClientSessions::accepts(const InferRequest& request, std::size_t payload_bytes) const {
  return engine_.payloads.accepts(request, payload_bytes);
}

}  // namespace gpulet::frontend
