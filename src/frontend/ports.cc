#include "frontend/ports.h"

#include <utility>

#include "frontend/frames/connection_options.h"
#include "frontend/options.h"

namespace gpulet::frontend {

Ports::Ports(net::asio::io_context& io, const Setup& setup, PortBuffers& buffers,
             const EngineLink& engine, PeerLog& log, const std::vector<ConnectionPlace>& places)
    : io_(io),
      setup_(setup),
      buffers_(buffers),
      client_port_(places, setup.config, setup.security.gate, buffers.clients),
      backend_sessions_(io,
                        {.connection = backend_options(setup.config),
                         .certified = setup.security.backends.context != nullptr},
                        buffers.backends, engine, log) {}

Ports::~Ports() = default;

Status Ports::listen(net::kserve::ProtocolHost& host, const Endpoints::Sources& sources) {
  const config::FrontendConfig& config = setup_.config;
  const Security& security = setup_.security;
  auto clients = net::Listener::listen(io_.get_executor(), config.listen.host, config.listen.port,
                                       client_listener_options(config, security.clients.context),
                                       client_port_.receivers());
  if (!clients.ok()) return clients.status();
  auto backends = net::Listener::listen(
      io_.get_executor(), config.backend_listen.host, config.backend_listen.port,
      backend_listener_options(security.backends.context),
      [this](net::Stream stream, net::ConnectionSlotPointer slot) {
        backend_sessions_.accept(std::move(stream), std::move(slot));
      });
  if (!backends.ok()) return backends.status();
  auto endpoints = Endpoints::listen(io_, config, security, host, buffers_.clients, sources);
  if (!endpoints.ok()) return endpoints.status();
  client_listener_ = std::move(clients).value();
  backend_listener_ = std::move(backends).value();
  if (config.local_socket) backend_sessions_.open_local_door(buffers_.clients);
  endpoints_ = std::move(endpoints).value();
  return {};
}

void Ports::open() {
  client_port_.open(port(FramePort::Peers::clients));
  backend_sessions_.open(port(FramePort::Peers::backends));
}

FramePort Ports::port(FramePort::Peers peers) const {
  return {peers, client_listener_->port(), backend_listener_->port(), endpoints_->http_port(),
          endpoints_->grpc_port()};
}

std::size_t Ports::client_connections() const {
  return client_port_.size() + (endpoints_ ? endpoints_->connections() : 0);
}

void Ports::take_messages_of(const serve::Catalogue& catalogue) {
  endpoints_->raise_message_limit(largest_message(setup_.config, catalogue));
}

void Ports::start_leaving() {
  endpoints_->start_leaving();
  client_port_.start_leaving();
}

void Ports::stop_listening() {
  client_listener_->close();
  endpoints_->stop_listening();
}

void Ports::drain(Duration timeout) {
  client_listener_->close();
  backend_listener_->close();
  endpoints_->drain(timeout);
}

void Ports::hurry() { endpoints_->drain(Duration::zero()); }

void Ports::close(const Status& reason) {
  client_port_.close_after_sending();
  backend_sessions_.close_all(reason);
}

void Ports::tokens_changed() {
  client_port_.tokens_changed();
  endpoints_->tokens_changed(*setup_.security.gate);
}

void Ports::use_client_tls(const PortTls& tls) {
  client_listener_->use_tls(tls.context);
  endpoints_->use_tls(tls);
}

void Ports::use_backend_tls(const PortTls& tls) { backend_listener_->use_tls(tls.context); }

}  // namespace gpulet::frontend
