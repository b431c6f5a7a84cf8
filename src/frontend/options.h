// Options of the frontend's parts, from its configuration; core_options() is in
// gpulet/frontend/setup.h. Any thread.
#pragma once

#include <cstddef>

#include "frontend/setup.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/listener.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// `reserved`: for a connection on a reserved slot, which it may hold only briefly.
[[nodiscard]] net::ConnectionOptions client_options(const config::FrontendConfig& config,
                                                    bool reserved);
[[nodiscard]] net::ConnectionOptions backend_options(const config::FrontendConfig& config);
// The minimum speed of frames and bodies that clients and backends send.
[[nodiscard]] net::PaceLimits pace_limits(const config::FrontendConfig& config);
// The longest frame or body of a client: max_payload_bytes, or all that may be buffered.
[[nodiscard]] std::size_t largest_payload(const config::FrontendConfig& config);
// The longest gRPC message: max_payload_bytes, or the largest full batch, at least 64 MB.
[[nodiscard]] std::size_t largest_message(const config::FrontendConfig& config,
                                          const serve::Catalogue& catalogue);
[[nodiscard]] net::BufferPoolOptions buffer_options(const Setup& setup);
// Connections kept in reserve on each port for clients.
inline constexpr std::size_t kReservedConnections = 64;
[[nodiscard]] net::ConnectionLimits client_connection_limits(const config::FrontendConfig& config);
// The highest descriptors of clients and of the metrics port; the rest is for backends and files.
struct DescriptorBounds {
  int clients = 0;
  int metrics = 0;
};
[[nodiscard]] DescriptorBounds descriptor_bounds();
// How many connections a port may hold, so that the connections of one port cannot take the
// descriptors of others.
struct ConnectionShares {
  std::size_t of_client_port = 0;  // listen, http, grpc
  std::size_t of_server_port = 0;  // backend_listen, cluster.peer_listen
};
// Of a process that may have that many descriptors open.
[[nodiscard]] ConnectionShares connection_shares(std::size_t descriptors);
[[nodiscard]] net::ListenerOptions client_listener_options(const config::FrontendConfig& config,
                                                           net::TlsContextPointer tls);
[[nodiscard]] net::ListenerOptions backend_listener_options(net::TlsContextPointer tls);

[[nodiscard]] net::kserve::TraceSampling trace_sampling(const config::FrontendConfig& config);

// The current time of the engine's clock and of the machine's clock.
[[nodiscard]] observe::WallClock wall_clock();

}  // namespace gpulet::frontend
