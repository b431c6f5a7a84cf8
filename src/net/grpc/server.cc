#include "gpulet/net/grpc/server.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/tls.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"
#include "net/grpc/socket_facts.h"

namespace gpulet::net::grpc_api {
namespace {

// ---- TLS

// The server's certificate. New connections get the one that replaced it. Any thread.
class ServerCertificate {
 public:
  // REQUIRES: the key matches the certificate, as TlsContext::server checks.
  explicit ServerCertificate(TlsTexts texts) : texts_(std::move(texts)) {}
  void replace(TlsTexts texts) {
    const std::lock_guard lock(mutex_);
    texts_ = std::move(texts);
    ++number_;
  }

  struct Version {
    TlsTexts texts;
    std::uint64_t number = 0;
  };
  [[nodiscard]] Version current() const {
    const std::lock_guard lock(mutex_);
    return {texts_, number_};
  }

 private:
  mutable std::mutex mutex_;
  TlsTexts texts_;
  std::uint64_t number_ = 1;
};

// Fetches the certificate for every new connection, which only gRPC's C interface supports.
class ReloadedCredentials final : public ::grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::shared_ptr<const ServerCertificate> certificate)
      : certificate_(std::move(certificate)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, &ReloadedCredentials::fetch, this))) {}
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }
  ReloadedCredentials(const ReloadedCredentials&) = delete;
  ReloadedCredentials& operator=(const ReloadedCredentials&) = delete;

  void SetAuthMetadataProcessor(
      const std::shared_ptr<::grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<ReloadedCredentials*>(self)->fetch(config);
  }

  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config** config) {
    const ServerCertificate::Version version = certificate_->current();
    const std::lock_guard lock(mutex_);
    if (version.number == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{version.texts.key.c_str(),
                                          version.texts.certificate.c_str()};
    // The library aborts without client roots, although no client certificate is requested.
    *config = grpc_ssl_server_certificate_config_create(pair.cert_chain, &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    fetched_ = version.number;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const ServerCertificate> certificate_;
  std::mutex mutex_;
  std::uint64_t fetched_ = 0;
  grpc_server_credentials* const credentials_;
};

// ---- connections

// The library does not report the end of a connection, so that all are polled.
constexpr Duration kSweepPeriod = std::chrono::milliseconds(500);
// Nor does it report calls in progress: without a byte for this long a connection counts as idle.
constexpr std::chrono::seconds kIdleAfter{60};

// A connection that the library owns, identified by descriptor and socket cookie, because the
// descriptor may have been reused.
class AcceptedConnection final : private ConnectionSlot::Holder {
 public:
  AcceptedConnection(int descriptor, std::uint64_t cookie, ConnectionSlotPointer slot)
      : descriptor_(descriptor), cookie_(cookie), slot_(std::move(slot)) {
    slot_->set_holder(this);
  }

  [[nodiscard]] bool ended() const { return cookie_of(descriptor_) != cookie_; }

 private:
  [[nodiscard]] Activity activity() const override {
    const std::optional<Traffic> traffic = traffic_of(descriptor_, cookie_);
    if (!traffic) return {State::busy, since_};
    if (!traffic->any_received) return {State::silent, since_};
    if (traffic->since_last < kIdleAfter) return {State::busy, since_};
    return {State::idle, std::chrono::steady_clock::now() - traffic->since_last};
  }
  void evict() override { end_connection(descriptor_, cookie_); }

  const int descriptor_;
  const std::uint64_t cookie_;
  const ConnectionSlot::TimePoint since_ = std::chrono::steady_clock::now();
  ConnectionSlotPointer slot_;
};

// Accepts connections and passes them to the library as descriptors. The library's own listener has
// no limit and stops accepting for good once the process runs out of descriptors. Executor thread.
class Acceptor {
 public:
  // Takes ownership of the descriptor.
  using HandOver = std::function<void(int descriptor)>;

  Acceptor(const asio::any_io_executor& executor, HandOver hand_over)
      : hand_over_(std::move(hand_over)), sweep_timer_(executor) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Called once. Fails as Listener::listen.
  [[nodiscard]] Status listen(const std::string& host, std::uint16_t port,
                              const ListenerOptions& options) {
    auto listener = Listener::listen(sweep_timer_.get_executor(), host, port, options,
                                     [this](Stream stream, ConnectionSlotPointer slot) {
                                       on_socket(std::move(stream), std::move(slot));
                                     });
    if (listener.ok()) listener_ = std::move(listener).value();
    return listener.status();
  }

  // REQUIRES for both: listens.
  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }
  // Stops accepting. Existing connections stay.
  void close() {
    listener_->close();
    sweep_timer_.cancel();
    sweeps_ = true;  // for good
  }

 private:
  void on_socket(Stream stream, ConnectionSlotPointer slot) {
    stream.prepare();
    const int descriptor = stream.release();
    if (const std::optional<std::uint64_t> cookie = cookie_of(descriptor)) {
      connections_.emplace_back(descriptor, *cookie, std::move(slot));
      if (!sweeps_) sweep_later();
    }
    hand_over_(descriptor);
  }

  void sweep_later() {
    sweeps_ = true;
    sweep_timer_.set_after(kSweepPeriod, [this] {
      connections_.remove_if([](const auto& connection) { return connection.ended(); });
      sweeps_ = false;
      if (!connections_.empty()) sweep_later();
    });
  }

  HandOver hand_over_;
  std::unique_ptr<Listener> listener_;
  std::list<AcceptedConnection> connections_;
  Alarm sweep_timer_;
  bool sweeps_ = false;
};

// ---- a server of the library

int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

int as_int(std::size_t value) {
  return static_cast<int>(
      std::min<std::size_t>(value, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

// One server of the gRPC library with all services. Its limits are fixed at its start.
class LibraryServer {
 public:
  explicit LibraryServer(const ServerStatePointer& state)
      : state_(state),
        inference_(make_inference_service(state)),
        health_(state),
        reflection_(state) {}
  // Cancels the calls in progress.
  ~LibraryServer() {
    if (server_) end_by(std::chrono::system_clock::now());
  }
  LibraryServer(const LibraryServer&) = delete;
  LibraryServer& operator=(const LibraryServer&) = delete;

  // Called once. `memory` is shared by all servers that get it.
  [[nodiscard]] Status start(std::size_t max_message_bytes, const ::grpc::ResourceQuota& memory,
                             const std::shared_ptr<::grpc::ServerCredentials>& credentials) {
    const GrpcServerOptions& options = state_->options;
    ::grpc::ServerBuilder builder;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterService(inference_.get());
    builder.RegisterService(&health_);
    builder.RegisterService(&reflection_v1_);
    builder.RegisterService(&reflection_v1alpha_);
    builder.RegisterCallbackGenericService(&unknown_);
    builder.SetMaxReceiveMessageSize(as_int(max_message_bytes));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               as_int(options.max_calls_of_connection));
    builder.SetResourceQuota(memory);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               milliseconds(options.handshake_timeout));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.idle_timeout));
    server_ = builder.BuildAndStart();
    if (!server_) return {StatusCode::unavailable, "the gRPC library did not start a server"};
    return {};
  }

  // Takes over a connection. REQUIRES: started.
  void take(int descriptor) {
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters one;
    one.fd = descriptor;
    connections_->HandleNewConnection(&one);
  }
  // Makes its clients reconnect for their next call, and returns. Calls in progress continue,
  // except health watches and reflection, which end with UNAVAILABLE.
  void retire() {
    health_.end_watches();
    reflection_.drain();
    retiring_ = std::async(std::launch::async, [this] { server_->Shutdown(); });
  }
  // Reports NOT_SERVING to health watches and ends the calls without an end.
  void end_long_calls() {
    health_.drain();
    reflection_.drain();
  }

  // Waits for calls in progress; cancels them at the deadline. After retire() also another thread.
  void end_by(std::chrono::system_clock::time_point deadline) {
    if (!retiring_.valid()) {
      server_->Shutdown(deadline);
      return;
    }
    if (retiring_.wait_until(deadline) == std::future_status::ready) return;
    ::grpc_server_cancel_all_calls(server_->c_server());
    retiring_.wait();
  }

 private:
  ServerStatePointer state_;
  std::unique_ptr<::grpc::Service> inference_;
  HealthService health_;
  Reflection reflection_;
  ReflectionService<::grpc::reflection::v1::ServerReflection::CallbackService> reflection_v1_{
      reflection_};
  ReflectionService<::grpc::reflection::v1alpha::ServerReflection::CallbackService>
      reflection_v1alpha_{reflection_};
  UnknownMethods unknown_;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<::grpc::Server> server_;
  std::future<void> retiring_;  // valid after retire()
};

}  // namespace

class GrpcServer::Impl {
 public:
  explicit Impl(ServerStatePointer state)
      : state_(std::move(state)),
        certificate_(std::make_shared<ServerCertificate>(state_->options.tls)),
        memory_("gpulet"),
        max_message_bytes_(state_->options.max_message_bytes) {
    memory_.Resize(state_->options.max_buffered_bytes);
  }

  ~Impl() {
    state_->open = false;
    if (acceptor_) acceptor_->close();
    if (draining_.joinable()) draining_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen(const std::string& host, std::uint16_t port) {
    // Connections that arrive before the server has started are dropped.
    if (Status started = start_server(max_message_bytes_); !started.ok()) return started;
    ListenerOptions options;
    options.connections = state_->options.connections;
    options.last_descriptor = state_->options.last_descriptor;
    auto acceptor = std::make_unique<Acceptor>(
        state_->executor, [this](int descriptor) { server_->take(descriptor); });
    const Status listening = acceptor->listen(host, port, options);
    if (listening.ok()) acceptor_ = std::move(acceptor);
    return listening;
  }

  [[nodiscard]] std::uint16_t port() const { return acceptor_->port(); }

  Status take_messages_up_to(std::size_t bytes) {
    constexpr std::size_t kMost = std::numeric_limits<int>::max();  // the library's limit
    if (std::min(bytes, kMost) <= max_message_bytes_ || draining_.joinable()) return {};
    // Rounded up, so that growing models need few new servers.
    const std::size_t limit = std::min(std::bit_ceil(std::min(bytes, kMost)), kMost);
    std::unique_ptr<LibraryServer> before = std::move(server_);
    if (Status started = start_server(limit); !started.ok()) {
      server_ = std::move(before);
      return started;
    }
    max_message_bytes_ = limit;
    before->retire();
    retiring_.push_back(std::move(before));
    return {};
  }

  void use_certificate(TlsTexts tls) { certificate_->replace(std::move(tls)); }
  void tokens_changed() {
    std::erase_if(state_->streams, [](const auto& stream) { return stream.expired(); });
    const auto streams = state_->streams;  // a copy: an ending stream may change the list
    for (const auto& one : streams) {
      if (const auto stream = one.lock()) stream->tokens_changed();
    }
  }

  void start_leaving() { server_->end_long_calls(); }

  // Waits on another thread, because this one has to complete the calls.
  void drain(Duration patience) {
    if (draining_.joinable()) return;
    acceptor_->close();
    server_->end_long_calls();
    draining_ = std::jthread([this, patience] {
      const auto deadline = std::chrono::system_clock::now() + patience;
      for (const auto& server : retiring_) server->end_by(deadline);
      server_->end_by(deadline);
    });
  }

 private:
  Status start_server(std::size_t max_message_bytes) {
    auto server = std::make_unique<LibraryServer>(state_);
    if (Status started = server->start(max_message_bytes, memory_, credentials()); !started.ok())
      return started;
    server_ = std::move(server);
    return {};
  }

  [[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials() const {
    if (state_->options.tls.certificate.empty()) return ::grpc::InsecureServerCredentials();
    return std::make_shared<ReloadedCredentials>(certificate_);
  }

  ServerStatePointer state_;
  std::shared_ptr<ServerCertificate> certificate_;
  ::grpc::ResourceQuota memory_;  // shared by all servers
  std::size_t max_message_bytes_;
  std::unique_ptr<LibraryServer> server_;                 // accepts new connections
  std::vector<std::unique_ptr<LibraryServer>> retiring_;  // with lower limits; few
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
      std::make_shared<ServerState>(ServerState{executor, options, protocol_host, regions}));
  if (const Status listening = impl->listen(host, port); !listening.ok()) return listening;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

std::uint16_t GrpcServer::port() const { return impl_->port(); }
void GrpcServer::use_certificate(TlsTexts tls) { impl_->use_certificate(std::move(tls)); }
void GrpcServer::tokens_changed() { impl_->tokens_changed(); }
Status GrpcServer::take_messages_up_to(std::size_t bytes) {
  return impl_->take_messages_up_to(bytes);
}
void GrpcServer::start_leaving() { impl_->start_leaving(); }
void GrpcServer::drain(Duration patience) { impl_->drain(patience); }

}  // namespace gpulet::net::grpc_api
