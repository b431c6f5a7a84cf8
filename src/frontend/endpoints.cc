#include "endpoints.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "kserve_http.h"
#include "options.h"
#include "token_handler.h"

namespace gpulet::frontend {

namespace http = net::http;

Endpoints::~Endpoints() = default;

Result<std::unique_ptr<Endpoints>> Endpoints::listen(net::asio::io_context& io,
                                                     const config::FrontendConfig& config,
                                                     const Security& security,
                                                     net::kserve::ProtocolHost& host,
                                                     net::BufferPool& buffers, Daemon daemon) {
  std::unique_ptr<Endpoints> made(new Endpoints(config.shared_memory));
  if (config.http) {
    if (const Status status = made->listen_http(io, config, security, host, buffers, daemon);
        !status.ok())
      return status.within("HTTP");
  }
  if (config.metrics) {
    if (const Status status = made->listen_metrics(io, config, security, buffers, daemon);
        !status.ok())
      return status.within("metrics");
  }
  if (config.grpc) {
    if (const Status status = made->listen_grpc(io, config, security, host, daemon); !status.ok())
      return status.within("gRPC");
  }
  return made;
}

Status Endpoints::listen_http(net::asio::io_context& io, const config::FrontendConfig& config,
                              const Security& security, net::kserve::ProtocolHost& host,
                              net::BufferPool& buffers, const Daemon& daemon) {
  auto traces = std::make_unique<TraceHandler>(
      io, daemon.trace,
      std::make_unique<KserveHttp>(host, regions_,
                                   KserveHttpOptions{GPULET_VERSION, security.gate}));
  traces_ = traces.get();
  http_handler_ =
      std::make_unique<TokenHandler>(*security.gate, needs_of_protocol, std::move(traces));
  http::HttpServerOptions options;
  options.tls = security.clients.context;
  options.places = client_places(config);
  options.last_descriptor = descriptor_bounds().clients;
  options.first_timeout = config.first_message;
  options.header_timeout = std::min(options.header_timeout, config.first_message);
  options.max_body_bytes = largest_payload(config);
  options.pace = pace_limits(config);
  auto server = http::HttpServer::listen(io.get_executor(), config.http->host, config.http->port,
                                         options, buffers, *http_handler_);
  if (server.ok()) http_ = std::move(server.value());
  return server.status();
}

Status Endpoints::listen_metrics(net::asio::io_context& io, const config::FrontendConfig& config,
                                 const Security& security, net::BufferPool& buffers,
                                 const Daemon& daemon) {
  auto dashboard = std::make_unique<DashboardHandler>(
      io, daemon.dashboard, dashboard_assets(), std::make_unique<MetricsHandler>(daemon.metrics));
  dashboard_ = dashboard.get();
  metrics_handler_ =
      std::make_unique<TokenHandler>(*security.gate, needs_of_metrics, std::move(dashboard));
  http::HttpServerOptions options;
  options.tls = security.clients.context;
  // A browser opens several for each page.
  options.places = {.general = 4 * DashboardHandler::kMostPages, .reserve = kReservedPlaces};
  options.last_descriptor = descriptor_bounds().metrics;
  options.first_timeout = config.first_message;
  options.header_timeout = std::min(options.header_timeout, config.first_message);
  options.max_body_bytes = 0;
  auto server = http::HttpServer::listen(io.get_executor(), config.metrics->host,
                                         config.metrics->port, options, buffers, *metrics_handler_);
  if (server.ok()) metrics_ = std::move(server.value());
  return server.status();
}

Status Endpoints::listen_grpc(net::asio::io_context& io, const config::FrontendConfig& config,
                              const Security& security, net::kserve::ProtocolHost& host,
                              const Daemon& daemon) {
  net::grpc_api::GrpcServerOptions options;
  options.version = GPULET_VERSION;
  options.max_message_bytes = daemon.largest_message;
  options.max_buffered_bytes = std::size_t{config.max_buffered_mb} << 20U;
  options.places = client_places(config);
  options.places.reserve = 0;  // the library does not let calls be told apart before they begin
  options.places.part_that_gives_way = 8;  // a look at each costs system calls
  options.last_descriptor = descriptor_bounds().clients;
  options.handshake_timeout = config.first_message;
  options.tls = security.clients.texts;
  options.gate = security.gate;
  auto server = net::grpc_api::GrpcServer::listen(io.get_executor(), config.grpc->host,
                                                  config.grpc->port, options, host, regions_);
  if (server.ok()) grpc_ = std::move(server.value());
  return server.status();
}

void Endpoints::take_messages_up_to(std::size_t bytes) {
  if (!grpc_) return;
  if (const Status taken = grpc_->take_messages_up_to(bytes); !taken.ok())
    spdlog::warn("gRPC takes no longer messages: {}", taken.message());
}

void Endpoints::use_tls(const PortTls& tls) {
  if (http_) http_->use_tls(tls.context);
  if (metrics_) metrics_->use_tls(tls.context);
  if (grpc_) grpc_->use_certificate(tls.texts);
}

void Endpoints::tokens_changed(const net::Gate& gate) {
  const auto revoked = [&gate](const net::PeerIdentity& peer) { return gate.revoked(peer); };
  if (http_) http_->close_those(revoked);
  if (metrics_) metrics_->close_those(revoked);
  if (grpc_) grpc_->tokens_changed();
}

void Endpoints::drain(Duration patience) {
  if (traces_ != nullptr) traces_->stop();
  if (http_) http_->drain();
  if (dashboard_ != nullptr) dashboard_->stop();
  if (metrics_) metrics_->drain();
  if (grpc_) grpc_->drain(patience);
}

}  // namespace gpulet::frontend
