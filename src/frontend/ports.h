// Ports: the ports of clients and backends, and the connections on them. Belongs to the thread of
// the io_context, which must have stopped before it is destroyed, and so must the I/O threads.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "frontend/administration.h"
#include "frontend/endpoints/endpoints.h"
#include "frontend/frames/client_port.h"
#include "frontend/frames/engine_link.h"
#include "frontend/frames/peer_log.h"
#include "frontend/frames/security.h"
#include "frontend/frames/sessions.h"
#include "frontend/setup.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/listener.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// Memory for what the peers of a port send.
struct PortBuffers {
  explicit PortBuffers(const net::BufferPoolOptions& options)
      : clients(options), backends(options) {}

  net::BufferPool clients;
  // Separate, so that clients that exhaust their buffers do not disconnect nodes.
  net::BufferPool backends;
};

class Ports final : public SecurityUser {
 public:
  // `places`: where connections of clients run. The references, those of `engine` and `places`
  // among them, must outlive this object.
  Ports(net::asio::io_context& io, const Setup& setup, PortBuffers& buffers,
        const EngineLink& engine, PeerLog& log, const std::vector<ConnectionPlace>& places);
  ~Ports();
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  // Binds all ports. Fails with the first error, which names the address. REQUIRES: `host` and what
  // `sources` refers to outlive this object.
  [[nodiscard]] Status listen(net::kserve::ProtocolHost& host, const Endpoints::Sources& sources);

  // ---- after listen()
  [[nodiscard]] const net::Listener& clients() const { return *client_listener_; }
  [[nodiscard]] const net::Listener& backends() const { return *backend_listener_; }
  [[nodiscard]] const Endpoints& endpoints() const { return *endpoints_; }
  // Connections may arrive from now on.
  void open();
  [[nodiscard]] BackendSessions& backend_sessions() { return backend_sessions_; }
  // Connections of clients, over all protocols; also before listen().
  [[nodiscard]] std::size_t client_connections() const;
  // Takes messages as large as the models of the catalogue need.
  void take_messages_of(const serve::Catalogue& catalogue);

  // Asks clients to go elsewhere.
  void start_leaving();
  // Accepts no more clients.
  void stop_listening();
  // Accepts nothing new, and answers the calls in flight within `timeout`. A second call has no
  // effect.
  void drain(Duration timeout);
  // Ends the calls in flight.
  void hurry();
  // Sends what is queued, then closes the connections of gpulet's own protocol.
  void close(const Status& reason);

  void tokens_changed() override;
  void use_client_tls(const PortTls& tls) override;
  void use_backend_tls(const PortTls& tls) override;

 private:
  [[nodiscard]] FramePort port(FramePort::Peers peers) const;

  net::asio::io_context& io_;
  const Setup& setup_;
  PortBuffers& buffers_;
  ClientPort client_port_;
  BackendSessions backend_sessions_;
  std::unique_ptr<net::Listener> client_listener_;
  std::unique_ptr<net::Listener> backend_listener_;
  std::unique_ptr<Endpoints> endpoints_;
};

}  // namespace gpulet::frontend
