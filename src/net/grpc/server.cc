#include "gpulet/net/grpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "acceptor.h"
#include "credentials.h"
#include "library_server.h"

namespace gpulet::net::grpc_api {

class GrpcServer::Impl {
 public:
  explicit Impl(SitePointer site)
      : site_(std::move(site)),
        certificate_(std::make_shared<ServerCertificate>(site_->options.tls)),
        memory_("gpulet"),
        max_message_bytes_(site_->options.max_message_bytes) {
    memory_.Resize(site_->options.max_buffered_bytes);
  }

  ~Impl() {
    site_->open = false;
    if (acceptor_) acceptor_->close();
    if (draining_.joinable()) draining_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen(const std::string& host, std::uint16_t port) {
    if (Status started = start_server(max_message_bytes_); !started.ok()) return started;
    return accept(host, port);
  }

  [[nodiscard]] std::uint16_t port() const { return acceptor_->port(); }

  Status take_messages_up_to(std::size_t bytes) {
    constexpr std::size_t kMost = std::numeric_limits<int>::max();  // that the library knows
    if (std::min(bytes, kMost) <= max_message_bytes_ || draining_.joinable()) return {};
    // Rounded up, so that few servers follow each other however models grow.
    const std::size_t wanted = std::min(std::bit_ceil(std::min(bytes, kMost)), kMost);
    std::unique_ptr<LibraryServer> before = std::move(server_);
    if (Status started = start_server(wanted); !started.ok()) {
      server_ = std::move(before);
      return started;
    }
    max_message_bytes_ = wanted;
    before->leave();
    leaving_.push_back(std::move(before));
    return {};
  }

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
    acceptor_->close();
    server_->end_lasting_calls();
    draining_ = std::jthread([this, patience] {
      const auto deadline = std::chrono::system_clock::now() + patience;
      for (const auto& server : leaving_) server->end_by(deadline);
      server_->end_by(deadline);
    });
  }

 private:
  Status start_server(std::size_t max_message_bytes) {
    auto server = std::make_unique<LibraryServer>(site_);
    if (Status started = server->start(max_message_bytes, memory_, credentials()); !started.ok())
      return started;
    server_ = std::move(server);
    return {};
  }

  [[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials() const {
    if (site_->options.tls.certificate.empty()) return ::grpc::InsecureServerCredentials();
    return credentials_of(certificate_);
  }

  // Not before the server has started: it would drop what is handed over.
  Status accept(const std::string& host, std::uint16_t port) {
    ListenerOptions options;
    options.places = site_->options.places;
    options.last_descriptor = site_->options.last_descriptor;
    Result<std::unique_ptr<Acceptor>> acceptor =
        Acceptor::listen(site_->executor, host, port, options,
                         [this](int descriptor) { server_->take(descriptor); });
    if (acceptor.ok()) acceptor_ = std::move(acceptor).value();
    return acceptor.status();
  }

  SitePointer site_;
  std::shared_ptr<ServerCertificate> certificate_;
  ::grpc::ResourceQuota memory_;  // of all servers together
  std::size_t max_message_bytes_;
  std::unique_ptr<LibraryServer> server_;                // takes new connections
  std::vector<std::unique_ptr<LibraryServer>> leaving_;  // with lower limits; a few
  std::unique_ptr<Acceptor> acceptor_;
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
Status GrpcServer::take_messages_up_to(std::size_t bytes) {
  return impl_->take_messages_up_to(bytes);
}
void GrpcServer::drain(Duration patience) { impl_->drain(patience); }

}  // namespace gpulet::net::grpc_api
