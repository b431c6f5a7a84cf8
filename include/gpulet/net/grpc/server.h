// GrpcServer: the Open Inference Protocol over gRPC (proto/kserve.proto) with health checks and
// reflection, over HTTP/2 (libnghttp2) with or without TLS. The server's own threads receive, send
// and decompress messages; the host is called on the io_context's thread only.
//
// A call is cancelled when its client disconnects. A stream has a limited number of calls in flight
// and returns their responses in order; errors of its calls are part of its messages and do not end
// it. Every failure has a message, also that of an unknown method. A call without the required
// token in `authorization` ends with UNAUTHENTICATED before its message is received, one with a
// token for other models with PERMISSION_DENIED; the messages of a stream are checked one by one.
// Whatever a peer can make the server hold or do is bounded (docs/security.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/stream.h"
#include "gpulet/net/tls.h"

namespace gpulet::net::grpc_api {

struct GrpcServerOptions {
  std::string version;                         // of this server
  std::size_t max_message_bytes = 64U << 20U;  // a longer one fails: RESOURCE_EXHAUSTED
  std::size_t max_calls_of_stream = 64;        // in flight
  // In flight on one connection; client libraries hold further calls back.
  std::size_t max_calls_of_connection = 1024;
  // Of messages being received, in progress or being sent, over all connections.
  std::size_t max_buffered_bytes = 2048ULL << 20U;
  std::size_t threads = 0;  // for connections; 0: by the machine's processors
  ConnectionLimits connections{};
  int last_descriptor = std::numeric_limits<int>::max();  // as of ListenerOptions
  // For the TLS and HTTP/2 handshakes; without a call.
  Duration handshake_timeout = std::chrono::seconds(10);
  Duration idle_timeout = std::chrono::minutes(10);
  Duration write_timeout = std::chrono::seconds(30);  // without progress of a write
  PaceLimits pace{};                                  // of messages that are received
  // Clients may ping this often on average; in a burst more often.
  Duration min_ping_interval = std::chrono::milliseconds(100);
  TlsTexts tls{};  // empty: plain
  std::shared_ptr<access::Gate> gate = std::make_shared<access::Gate>();
};

class GrpcServer {
 public:
  // Binds and serves. Port 0: any free port. Fails as Listener::listen, or with unavailable.
  // Large messages are received into `buffers`. REQUIRES: buffers, host and shared memory outlive
  // the server. The last two are used on the executor thread only, which also makes all calls to
  // this class.
  [[nodiscard]] static Result<std::unique_ptr<GrpcServer>> listen(
      const asio::io_context::executor_type& executor, const std::string& host, std::uint16_t port,
      const GrpcServerOptions& options, BufferPool& buffers, kserve::ProtocolHost& protocol_host,
      kserve::SharedMemory& regions);

  [[nodiscard]] std::uint16_t port() const;

  // Sets the certificate for new connections. REQUIRES: listens with TLS.
  void use_certificate(TlsTexts tls);
  // The gate's tokens were replaced: ends streams with a revoked token with UNAUTHENTICATED.
  void tokens_changed();

  // Raises the message limit to at least `bytes` for calls from now on.
  void take_messages_up_to(std::size_t bytes);

  // Reports NOT_SERVING to health watches, so that clients with health checks go elsewhere, and
  // ends calls without an end. Other calls are served on.
  void start_leaving();
  // Accepts no connections and asks clients to close theirs (GOAWAY). Calls that arrive before a
  // client knows are served. Cancels those in progress after `patience`.
  void drain(Duration patience);
  [[nodiscard]] std::size_t connections() const;
  [[nodiscard]] const ConnectionSlots& slots() const;

  // Calls in progress fail with UNAVAILABLE; responses are sent for up to a second.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::net::grpc_api
