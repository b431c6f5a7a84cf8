#include "endpoints.h"

#include <utility>

#include "http_pages.h"
#include "kserve_http.h"

namespace gpulet::frontend {

namespace http = net::http;

Endpoints::~Endpoints() = default;

Result<std::unique_ptr<Endpoints>> Endpoints::listen(net::asio::io_context& io,
                                                     const config::FrontendConfig& config,
                                                     net::kserve::ProtocolHost& host,
                                                     net::BufferPool& buffers, Daemon daemon) {
  std::unique_ptr<Endpoints> made(new Endpoints(config.shared_memory));
  if (config.http) {
    if (const Status status = made->listen_http(io, config, host, buffers, daemon); !status.ok())
      return status.within("HTTP");
  }
  if (config.metrics) {
    if (const Status status = made->listen_metrics(io, config, buffers, daemon); !status.ok())
      return status.within("metrics");
  }
  if (config.grpc) {
    if (const Status status = made->listen_grpc(io, config, host); !status.ok())
      return status.within("gRPC");
  }
  return made;
}

Status Endpoints::listen_http(net::asio::io_context& io, const config::FrontendConfig& config,
                              net::kserve::ProtocolHost& host, net::BufferPool& buffers,
                              const Daemon& daemon) {
  http_handler_ = std::make_unique<TraceHandler>(
      daemon.trace, daemon.wall_clock,
      std::make_unique<KserveHttp>(host, regions_, KserveHttpOptions{GPULET_VERSION}));
  http::HttpServerOptions options;
  options.max_connections = config.max_connections;
  options.max_body_bytes = config.max_payload_bytes;
  auto server = http::HttpServer::listen(io.get_executor(), config.http->host, config.http->port,
                                         options, buffers, *http_handler_);
  if (server.ok()) http_ = std::move(server.value());
  return server.status();
}

Status Endpoints::listen_metrics(net::asio::io_context& io, const config::FrontendConfig& config,
                                 net::BufferPool& buffers, const Daemon& daemon) {
  metrics_handler_ = std::make_unique<MetricsHandler>(daemon.metrics);
  http::HttpServerOptions options;
  options.max_connections = 64;
  options.max_body_bytes = 0;
  auto server = http::HttpServer::listen(io.get_executor(), config.metrics->host,
                                         config.metrics->port, options, buffers, *metrics_handler_);
  if (server.ok()) metrics_ = std::move(server.value());
  return server.status();
}

Status Endpoints::listen_grpc(net::asio::io_context& io, const config::FrontendConfig& config,
                              net::kserve::ProtocolHost& host) {
  net::grpc_api::GrpcServerOptions options;
  options.version = GPULET_VERSION;
  options.max_message_bytes = config.max_payload_bytes;
  auto server = net::grpc_api::GrpcServer::listen(io.get_executor(), config.grpc->host,
                                                  config.grpc->port, options, host, regions_);
  if (server.ok()) grpc_ = std::move(server.value());
  return server.status();
}

void Endpoints::drain(Duration patience) {
  if (http_) http_->drain();
  if (metrics_) metrics_->drain();
  if (grpc_) grpc_->drain(patience);
}

}  // namespace gpulet::frontend
