#include "gpulet/net/grpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "credentials.h"
#include "services.h"

namespace gpulet::net::grpc_api {
namespace {

std::string address_of(const std::string& host, std::uint16_t port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

int as_int(std::size_t value) {
  return static_cast<int>(
      std::min<std::size_t>(value, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

}  // namespace

class GrpcServer::Impl {
 public:
  explicit Impl(SitePointer site)
      : site_(std::move(site)),
        certificate_(std::make_shared<ServerCertificate>(site_->options.tls)),
        inference_(site_),
        health_(site_) {}

  ~Impl() {
    site_->open = false;
    if (draining_.joinable()) draining_.join();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen(const std::string& host, std::uint16_t port) {
    ::grpc::ServerBuilder builder;
    int bound = 0;
    builder.AddListeningPort(address_of(host, port), credentials(), &bound);
    builder.RegisterService(&inference_);
    builder.RegisterService(&health_);
    builder.SetMaxReceiveMessageSize(as_int(site_->options.max_message_bytes));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               as_int(site_->options.max_calls_of_connection));
    ::grpc::ResourceQuota memory("gpulet");
    memory.Resize(site_->options.max_buffered_bytes);
    builder.SetResourceQuota(memory);
    // Two servers must not share a port without knowing of each other.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    if (!server_ || bound == 0) {
      return {StatusCode::unavailable, "cannot listen on " + address_of(host, port) +
                                           " for gRPC: is it in use, or not permitted?"};
    }
    port_ = static_cast<std::uint16_t>(bound);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }

  void use_certificate(TlsTexts tls) { certificate_->replace(std::move(tls)); }
  void tokens_changed() {
    std::erase_if(site_->streams, [](const auto& stream) { return stream.expired(); });
    const auto streams = site_->streams;  // one that ends may be the last to hold others
    for (const auto& one : streams) {
      if (const auto stream = one.lock()) stream->tokens_changed();
    }
  }

  // Shutting down waits for calls that this thread has to answer: so another one waits.
  void drain(Duration patience) {
    if (draining_.joinable()) return;
    draining_ = std::jthread(
        [this, patience] { server_->Shutdown(std::chrono::system_clock::now() + patience); });
  }

 private:
  [[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials() const {
    if (site_->options.tls.certificate.empty()) return ::grpc::InsecureServerCredentials();
    return credentials_of(certificate_);
  }

  SitePointer site_;
  std::shared_ptr<ServerCertificate> certificate_;
  InferenceService inference_;
  HealthService health_;
  std::unique_ptr<::grpc::Server> server_;
  std::uint16_t port_ = 0;
  std::jthread draining_;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::listen(
    const asio::io_context::executor_type& executor, const std::string& host, std::uint16_t port,
    const GrpcServerOptions& options, kserve::ProtocolHost& protocol_host,
    kserve::SharedMemory& regions) {
  auto impl = std::make_unique<Impl>(
      std::make_shared<Site>(Site{executor, options, protocol_host, regions}));
  if (const Status listening = impl->listen(host, port); !listening.ok()) return listening;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

std::uint16_t GrpcServer::port() const { return impl_->port(); }
void GrpcServer::use_certificate(TlsTexts tls) { impl_->use_certificate(std::move(tls)); }
void GrpcServer::tokens_changed() { impl_->tokens_changed(); }
void GrpcServer::drain(Duration patience) { impl_->drain(patience); }

}  // namespace gpulet::net::grpc_api
