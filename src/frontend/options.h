// How the frontend's connections behave; core_options() is in gpulet/frontend/daemon.h.
#pragma once

#include <cstddef>

#include "gpulet/config/daemon_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"

namespace gpulet::frontend {

[[nodiscard]] net::ConnectionOptions client_options(const config::FrontendConfig& config);
[[nodiscard]] net::ConnectionOptions backend_options(const config::FrontendConfig& config);
// Of frames and bodies, of clients and backends.
[[nodiscard]] net::PaceLimits pace_limits(const config::FrontendConfig& config);
// Of what clients send, and of what backends do.
[[nodiscard]] net::BufferPoolOptions buffer_options(const config::FrontendConfig& config);
[[nodiscard]] net::ListenerOptions listener_options(std::size_t max_connections,
                                                    net::TlsContextPointer tls);

}  // namespace gpulet::frontend
