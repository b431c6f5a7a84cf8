// Endpoints: the frontend's HTTP and gRPC servers: the Open Inference Protocol, traces, metrics and
// the dashboard. Belongs to the thread of the io_context. HTTP connections of the protocol run at
// the places of the sources; inferences are read and answered there, and all other requests on the
// thread of the io_context. No I/O thread may run any more when this object is destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "frontend/endpoints/dashboard.h"
#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/endpoints/remote_exchange.h"
#include "frontend/endpoints/remote_host.h"
#include "frontend/frames/client_port.h"
#include "frontend/frames/security.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::frontend {

class Endpoints {
 public:
  struct Sources {
    MetricsSource& metrics;
    TraceHandler::Source& traces;
    SnapshotSource& snapshots;
    const std::vector<ConnectionPlace>& places;
    std::size_t largest_message = 64U << 20U;  // of gRPC, in bytes
  };

  // Opens the enabled ports; fails with the first error. The references must outlive this.
  [[nodiscard]] static Result<std::unique_ptr<Endpoints>> listen(
      net::asio::io_context& io, const config::FrontendConfig& config, const Security& security,
      net::kserve::ProtocolHost& host, net::BufferPool& buffers, const Sources& sources);

  // 0: off.
  [[nodiscard]] std::uint16_t http_port() const { return http_ ? http_->port() : 0; }
  [[nodiscard]] std::uint16_t grpc_port() const { return grpc_ ? grpc_->port() : 0; }
  [[nodiscard]] std::uint16_t metrics_port() const { return metrics_ ? metrics_->port() : 0; }
  // HTTP and gRPC connections.
  [[nodiscard]] std::size_t connections() const {
    return (http_ ? http_->connections() : 0) + (grpc_ ? grpc_->connections() : 0);
  }

  // Raises the limit of gRPC messages; never lowers it.
  void raise_message_limit(std::size_t bytes);
  // For new connections.
  void use_tls(const PortTls& tls);
  // Closes the connections and streams whose tokens the gate has revoked.
  void tokens_changed(const access::Gate& gate);

  // Asks clients to go elsewhere; serves them until they do.
  void start_leaving();
  // Accepts no more HTTP connections.
  void stop_listening();
  // Accepts nothing new, and answers the requests in flight within `timeout`.
  void drain(Duration timeout);

  ~Endpoints();
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

 private:
  explicit Endpoints(bool shared_memory) : regions_(shared_memory) {}
  struct Parts {  // the arguments of listen()
    net::asio::io_context& io;
    const config::FrontendConfig& config;
    const Security& security;
    net::kserve::ProtocolHost& host;
    net::BufferPool& buffers;
    const Sources& sources;
  };
  [[nodiscard]] Status listen_http(const Parts& parts);
  [[nodiscard]] Status listen_metrics(const Parts& parts);
  [[nodiscard]] Status listen_grpc(const Parts& parts);
  [[nodiscard]] static net::http::HttpServerOptions http_options(const Parts& parts);

  // An I/O thread's part of the protocol.
  struct RemotePart {
    std::unique_ptr<RemoteHost> host;
    std::unique_ptr<RemoteRequests> requests;
    std::unique_ptr<EndpointRouter> handler;
  };
  // One for each I/O thread of the places.
  void add_remote_parts(const Parts& parts);

  net::kserve::SharedMemory regions_;
  std::unique_ptr<EndpointRouter> http_handler_;
  std::vector<RemotePart> remote_parts_;
  TraceHandler* traces_ = nullptr;  // inside http_handler_
  std::unique_ptr<EndpointRouter> metrics_handler_;
  DashboardHandler* dashboard_ = nullptr;  // inside metrics_handler_
  std::unique_ptr<net::http::HttpServer> http_;
  std::unique_ptr<net::http::HttpServer> metrics_;
  std::unique_ptr<net::grpc_api::GrpcServer> grpc_;
};

}  // namespace gpulet::frontend
