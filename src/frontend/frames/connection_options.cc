#include "frontend/frames/connection_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <limits>
#include <utility>

namespace gpulet::frontend {

net::ConnectionOptions client_options(const config::FrontendConfig& config, bool reserved) {
  constexpr Duration kReservedTimeout = std::chrono::seconds(5);
  net::ConnectionOptions options;
  options.limits.max_message_bytes = 64U << 10U;
  options.limits.max_payload_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(largest_payload(config), std::numeric_limits<std::uint32_t>::max()));
  options.pace = pace_limits(config);
  options.pause_above_bytes = options.max_queued_bytes / 2;
  options.first_timeout = config.first_message;
  if (reserved) options.read_timeout = kReservedTimeout;
  return options;
}

net::PaceLimits pace_limits(const config::FrontendConfig& config) {
  return {.bytes_per_second = config.min_bytes_per_second,
          .window = config.receive_grace,
          .longest = config.max_receive};
}

net::ConnectionOptions backend_options(const config::FrontendConfig& config) {
  net::ConnectionOptions options;
  options.pace = pace_limits(config);
  options.first_timeout = config.first_message;
  options.max_queued_bytes = 1024U << 20U;
  return options;
}

std::size_t largest_payload(const config::FrontendConfig& config) {
  if (config.max_payload_bytes) return *config.max_payload_bytes;
  return std::size_t{config.max_buffered_mb} << 20U;
}

namespace {

// That the process may have open.
std::size_t descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT_MAX;
  return std::min<rlim_t>(limit.rlim_cur, INT_MAX);
}

// For the metrics port, backends and files.
std::size_t reserved_descriptors(std::size_t all) {
  constexpr std::size_t kLeast = 16;
  constexpr std::size_t kMost = 256;
  constexpr std::size_t kPart = 8;
  return std::clamp(all / kPart, kLeast, kMost);
}

}  // namespace

net::ConnectionLimits client_connection_limits(const config::FrontendConfig& config) {
  const std::size_t share = connection_shares(descriptors()).of_client_port;
  const std::size_t reserve = std::min(kReservedConnections, share / 4);
  const std::size_t general = std::min<std::size_t>(config.max_connections, share - reserve);
  return {.general = general,
          .reserve = reserve,
          .per_address = std::min<std::size_t>(config.max_connections_per_address, general)};
}

DescriptorBounds descriptor_bounds() {
  const std::size_t all = descriptors();
  const std::size_t reserve = reserved_descriptors(all);
  if (all <= reserve) return {INT_MAX, INT_MAX};
  return {static_cast<int>(all - reserve), static_cast<int>(all - reserve / 2)};
}

ConnectionShares connection_shares(std::size_t descriptors) {
  constexpr std::size_t kMostForFiles = 128;
  constexpr std::size_t kParts = 8;  // 2 for each of listen, http and grpc, 1 for the others
  const std::size_t others =
      reserved_descriptors(descriptors) + std::min(descriptors / kParts, kMostForFiles);
  const std::size_t shared = descriptors - std::min(descriptors, others);
  return {.of_client_port = std::max<std::size_t>(2 * shared / kParts, 1),
          .of_server_port = std::max<std::size_t>(shared / kParts, 1)};
}

net::ListenerOptions client_listener_options(const config::FrontendConfig& config,
                                             net::TlsContextPointer tls) {
  net::ListenerOptions options;
  options.connections = client_connection_limits(config);
  options.last_descriptor = descriptor_bounds().clients;
  options.tls = std::move(tls);
  return options;
}

net::ListenerOptions backend_listener_options(net::TlsContextPointer tls) {
  net::ListenerOptions options;
  options.connections.general =
      std::min(options.connections.general, connection_shares(descriptors()).of_server_port);
  options.tls = std::move(tls);
  return options;
}

}  // namespace gpulet::frontend
