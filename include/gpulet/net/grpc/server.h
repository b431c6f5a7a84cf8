// GrpcServer: the Open Inference Protocol over gRPC (proto/kserve.proto), and the standard health
// check. gRPC's own threads read, write and compress; whatever asks the server behind happens on
// the io_context's thread.
//
// A call whose client goes away is cancelled. A stream takes a bounded number of calls at a time,
// answers them in their order, and reads on as the answers leave; errors of its calls travel in its
// messages, and it goes on. Every failure has a text, also that of a method which is not there.
// A call without the token that it needs in its `authorization` ends with UNAUTHENTICATED, one
// whose token is good for other models with PERMISSION_DENIED. Messages of a stream are judged one
// by one. Connections are accepted on the executor, within bounds, and handed over to gRPC.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/shared_memory.h"
#include "gpulet/net/places.h"
#include "gpulet/net/tls.h"

namespace gpulet::net::grpc_api {

struct GrpcServerOptions {
  std::string version;                         // of this server, for its metadata
  std::size_t max_message_bytes = 64U << 20U;  // a longer one ends its call: RESOURCE_EXHAUSTED
  std::size_t max_calls_of_stream = 64;        // under way at once
  // Of one connection; its client's library holds back what is more.
  std::size_t max_calls_of_connection = 1024;
  // Of what gRPC itself keeps: messages that it reads or writes, buffers of connections.
  std::size_t max_buffered_bytes = 2048ULL << 20U;
  PlaceLimits places{};                                   // of its connections
  int last_descriptor = std::numeric_limits<int>::max();  // as of ListenerOptions
  // For TLS and HTTP/2 to begin, and without a call.
  Duration handshake_timeout = std::chrono::seconds(10);
  Duration idle_timeout = std::chrono::minutes(10);
  TlsTexts tls{};  // empty: plain
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
};

class GrpcServer {
 public:
  // Binds and serves. Port 0: any free one. Fails as Listener::listen, or with unavailable. The
  // host and the shared memory outlive the server; both are asked on the executor's thread alone,
  // which is the one that calls this class.
  [[nodiscard]] static Result<std::unique_ptr<GrpcServer>> listen(
      const asio::io_context::executor_type& executor, const std::string& host, std::uint16_t port,
      const GrpcServerOptions& options, kserve::ProtocolHost& protocol_host,
      kserve::SharedMemory& regions);

  [[nodiscard]] std::uint16_t port() const;

  // Connections that begin from now on are shown this certificate. REQUIRES: listens with TLS.
  void use_certificate(TlsTexts tls);
  // The gate has other tokens: streams of one that was revoked end with UNAUTHENTICATED.
  void tokens_changed();

  // Raises the limit of messages, if it is lower. The library cannot change it in place: clients
  // are asked to connect again for their next call, and calls under way go on where they are. Fails
  // as listen(); then nothing has changed.
  [[nodiscard]] Status take_messages_up_to(std::size_t bytes);

  // Takes no new calls; those under way are answered within `patience`, then cancelled.
  // Destroying the server before that is over waits for it.
  void drain(Duration patience);

  // Calls under way fail with UNAVAILABLE.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::net::grpc_api
