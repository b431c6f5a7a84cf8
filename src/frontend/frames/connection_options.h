// Options of the frontend's connections and listeners, from its configuration. Any thread.
#pragma once

#include <cstddef>

#include "gpulet/config/daemon_config.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/tls.h"

namespace gpulet::frontend {

// `reserved`: for a connection on a reserved slot, which it may hold only briefly.
[[nodiscard]] net::ConnectionOptions client_options(const config::FrontendConfig& config,
                                                    bool reserved);
[[nodiscard]] net::ConnectionOptions backend_options(const config::FrontendConfig& config);
// The minimum speed of frames and bodies that clients and backends send.
[[nodiscard]] net::PaceLimits pace_limits(const config::FrontendConfig& config);
// The longest frame or body of a client: max_payload_bytes, or all that may be buffered.
[[nodiscard]] std::size_t largest_payload(const config::FrontendConfig& config);
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

}  // namespace gpulet::frontend
