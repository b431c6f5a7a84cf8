#include "frontend/endpoints/endpoints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/endpoints/infer_http.h"
#include "frontend/endpoints/kserve_http.h"
#include "frontend/endpoints/regions_http.h"
#include "frontend/frames/connection_options.h"

namespace gpulet::frontend {

namespace http = net::http;

Endpoints::~Endpoints() = default;

Result<std::unique_ptr<Endpoints>> Endpoints::listen(
    net::asio::io_context& io, const config::FrontendConfig& config, const Security& security,
    net::kserve::ProtocolHost& host, net::BufferPool& buffers, const Sources& sources) {
  std::unique_ptr<Endpoints> endpoints(new Endpoints(config.shared_memory));
  const Parts parts{io, config, security, host, buffers, sources};
  Status status;
  if (config.http) status = endpoints->listen_http(parts).within("HTTP");
  if (status.ok() && config.metrics) status = endpoints->listen_metrics(parts).within("metrics");
  if (status.ok() && config.grpc) status = endpoints->listen_grpc(parts).within("gRPC");
  if (!status.ok()) return status;
  return endpoints;
}

http::HttpServerOptions Endpoints::http_options(const Parts& parts) {
  http::HttpServerOptions options;
  options.tls = parts.security.clients.context;
  options.first_timeout = parts.config.first_message;
  options.header_timeout = std::min(options.header_timeout, parts.config.first_message);
  return options;
}

Status Endpoints::listen_http(const Parts& parts) {
  const config::FrontendConfig& config = parts.config;
  http_handler_ = std::make_unique<EndpointRouter>(*parts.security.gate, kserve_error);
  traces_ = &http_handler_->add(
      std::make_unique<TraceHandler>(parts.io, parts.sources.traces, kserve_error));
  http_handler_->add(std::make_unique<RegionsHttp>(regions_));
  add_remote_parts(parts);
  if (remote_parts_.empty())
    http_handler_->add(std::make_unique<InferHttp>(parts.host, regions_, parts.security.gate));
  http_handler_->add(std::make_unique<KserveHttp>(parts.host, regions_, GPULET_VERSION));
  http::HttpServerOptions options = http_options(parts);
  options.connections = client_connection_limits(config);
  options.last_descriptor = descriptor_bounds().clients;
  options.max_body_bytes = largest_payload(config);
  options.pace = pace_limits(config);
  std::vector<http::HttpServer::Place> places;
  for (std::size_t i = 0; i < remote_parts_.size(); ++i)
    places.push_back({parts.sources.places[i].io.get_executor(), *remote_parts_[i].handler});
  if (places.empty()) places.push_back({parts.io.get_executor(), *http_handler_});
  auto server = http::HttpServer::listen(parts.io.get_executor(), config.http->host,
                                         config.http->port, options, parts.buffers, places);
  if (server.ok()) http_ = std::move(server.value());
  return server.status();
}

void Endpoints::add_remote_parts(const Parts& parts) {
  for (const ConnectionPlace& place : parts.sources.places) {
    if (place.remote == nullptr) return;
    RemotePart& part = remote_parts_.emplace_back();
    part.host = std::make_unique<RemoteHost>(*place.remote);
    part.handler = std::make_unique<EndpointRouter>(*parts.security.gate, kserve_error);
    part.handler->add(std::make_unique<InferHttp>(*part.host, regions_, parts.security.gate));
    part.requests = std::make_unique<RemoteRequests>(*place.remote);
    part.handler->add_endpoints_of(*http_handler_, *part.requests);
  }
}

Status Endpoints::listen_metrics(const Parts& parts) {
  const config::Endpoint& address = *parts.config.metrics;
  metrics_handler_ = std::make_unique<EndpointRouter>(*parts.security.gate, metrics_error);
  dashboard_ = &metrics_handler_->add(
      std::make_unique<DashboardHandler>(parts.io, parts.sources.snapshots, dashboard_assets()));
  metrics_handler_->add(std::make_unique<MetricsHandler>(parts.sources.metrics));
  http::HttpServerOptions options = http_options(parts);
  // A browser opens several connections for each page.
  options.connections = {.general = 4 * DashboardHandler::kMaxPages,
                         .reserve = kReservedConnections};
  options.last_descriptor = descriptor_bounds().metrics;
  // Read and left unused: some probes send a body with their GET.
  options.max_body_bytes = http::RequestHandler::kUnaskedBodyBytes;
  auto server = http::HttpServer::listen(parts.io.get_executor(), address.host, address.port,
                                         options, parts.buffers, *metrics_handler_);
  if (server.ok()) metrics_ = std::move(server.value());
  return server.status();
}

Status Endpoints::listen_grpc(const Parts& parts) {
  const config::FrontendConfig& config = parts.config;
  net::grpc_api::GrpcServerOptions options;
  options.version = GPULET_VERSION;
  options.max_message_bytes = parts.sources.largest_message;
  options.max_buffered_bytes = std::size_t{config.max_buffered_mb} << 20U;
  options.connections = client_connection_limits(config);
  options.last_descriptor = descriptor_bounds().clients;
  options.handshake_timeout = config.first_message;
  options.pace = pace_limits(config);
  options.tls = parts.security.clients.texts;
  options.gate = parts.security.gate;
  auto server = net::grpc_api::GrpcServer::listen(parts.io.get_executor(), config.grpc->host,
                                                  config.grpc->port, options, parts.buffers,
                                                  parts.host, regions_);
  if (server.ok()) grpc_ = std::move(server.value());
  return server.status();
}

void Endpoints::raise_message_limit(std::size_t bytes) {
  if (grpc_) grpc_->take_messages_up_to(bytes);
}

void Endpoints::use_tls(const PortTls& tls) {
  if (http_) http_->use_tls(tls.context);
  if (metrics_) metrics_->use_tls(tls.context);
  if (grpc_) grpc_->use_certificate(tls.texts);
}

void Endpoints::tokens_changed(const access::Gate& gate) {
  const auto revoked = [&gate](const access::PeerIdentity& peer) { return gate.revoked(peer); };
  if (http_) http_->close_matching(revoked);
  if (metrics_) metrics_->close_matching(revoked);
  if (grpc_) grpc_->tokens_changed();
}

void Endpoints::start_leaving() {
  if (http_) http_->start_leaving();
  if (grpc_) grpc_->start_leaving();
}

void Endpoints::stop_listening() {
  if (http_) http_->stop_listening();
}

void Endpoints::drain(Duration timeout) {
  if (traces_ != nullptr) traces_->stop();
  if (http_) http_->drain();
  if (dashboard_ != nullptr) dashboard_->stop();
  if (metrics_) metrics_->drain();
  if (grpc_) grpc_->drain(timeout);
}

}  // namespace gpulet::frontend
