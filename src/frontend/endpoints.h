// Endpoints: where the frontend speaks to others than its own clients and backends: the Open
// Inference Protocol over HTTP and gRPC, traces, metrics and the dashboard. Single-strand type, on
// the io_context's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "dashboard.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/frontend/security.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/shared_memory.h"
#include "http_pages.h"
#include "trace_handler.h"

namespace gpulet::frontend {

class Endpoints {
 public:
  // What is asked of the daemon besides inference.
  struct Daemon {
    MetricsHandler::Metrics metrics;
    TraceHandler::Source trace;
    DashboardHandler::Source dashboard;
    std::size_t largest_message = 64U << 20U;  // over gRPC
  };

  // Those that the configuration does not switch off. Fails with the first that cannot listen. Host
  // and buffers outlive the endpoints.
  [[nodiscard]] static Result<std::unique_ptr<Endpoints>> listen(
      net::asio::io_context& io, const config::FrontendConfig& config, const Security& security,
      net::kserve::ProtocolHost& host, net::BufferPool& buffers, Daemon daemon);

  // 0: off.
  [[nodiscard]] std::uint16_t http_port() const { return http_ ? http_->port() : 0; }
  [[nodiscard]] std::uint16_t grpc_port() const { return grpc_ ? grpc_->port() : 0; }
  [[nodiscard]] std::uint16_t metrics_port() const { return metrics_ ? metrics_->port() : 0; }
  // Of HTTP; how many gRPC has, it does not tell.
  [[nodiscard]] std::size_t connections() const { return http_ ? http_->connections() : 0; }

  // Over gRPC. Never less than before.
  void take_messages_up_to(std::size_t bytes);
  // Of connections that begin from now on.
  void use_tls(const PortTls& tls);
  // Ends the connections and streams of tokens that the gate does not know any more.
  void tokens_changed(const net::Gate& gate);

  // Nothing new; what is under way is answered within `patience`.
  void drain(Duration patience);

  ~Endpoints();
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

 private:
  explicit Endpoints(bool shared_memory) : regions_(shared_memory) {}
  [[nodiscard]] Status listen_http(net::asio::io_context& io, const config::FrontendConfig& config,
                                   const Security& security, net::kserve::ProtocolHost& host,
                                   net::BufferPool& buffers, const Daemon& daemon);
  [[nodiscard]] Status listen_metrics(net::asio::io_context& io,
                                      const config::FrontendConfig& config,
                                      const Security& security, net::BufferPool& buffers,
                                      const Daemon& daemon);
  [[nodiscard]] Status listen_grpc(net::asio::io_context& io, const config::FrontendConfig& config,
                                   const Security& security, net::kserve::ProtocolHost& host,
                                   const Daemon& daemon);

  net::kserve::SharedMemory regions_;
  std::unique_ptr<net::http::RequestHandler> http_handler_;
  TraceHandler* traces_ = nullptr;  // inside http_handler_
  std::unique_ptr<net::http::RequestHandler> metrics_handler_;
  DashboardHandler* dashboard_ = nullptr;  // inside metrics_handler_
  std::unique_ptr<net::http::HttpServer> http_;
  std::unique_ptr<net::http::HttpServer> metrics_;
  std::unique_ptr<net::grpc_api::GrpcServer> grpc_;
};

}  // namespace gpulet::frontend
