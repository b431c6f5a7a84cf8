// What the frontend's file says, as its parts take it; core_options() is in
// gpulet/frontend/daemon.h.
#pragma once

#include <cstddef>

#include "gpulet/config/daemon_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/kserve/settings.h"
#include "gpulet/net/listener.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/catalogue.h"

namespace gpulet::frontend {

// `reserved`: of a place that is kept back, which must not be held for long.
[[nodiscard]] net::ConnectionOptions client_options(const config::FrontendConfig& config,
                                                    bool reserved);
[[nodiscard]] net::ConnectionOptions backend_options(const config::FrontendConfig& config);
// Of frames and bodies, of clients and backends.
[[nodiscard]] net::PaceLimits pace_limits(const config::FrontendConfig& config);
// The longest frame or body of a client: what is configured, or what may be buffered at all. What a
// request's model takes is checked as well.
[[nodiscard]] std::size_t largest_payload(const config::FrontendConfig& config);
// The longest gRPC message: what is configured, or enough for a full batch of each model and
// application, 64 MB at least.
[[nodiscard]] std::size_t largest_message(const config::FrontendConfig& config,
                                          const serve::Catalogue& catalogue);
// Of what clients send, and of what backends do.
[[nodiscard]] net::BufferPoolOptions buffer_options(const config::FrontendConfig& config);
// Places that are kept back on each port that clients speak to.
inline constexpr std::size_t kReservedPlaces = 64;
[[nodiscard]] net::PlaceLimits client_places(const config::FrontendConfig& config);
// The last descriptor that connections of clients may have, and those of whoever asks for metrics:
// the rest is for backends and files.
struct DescriptorBounds {
  int clients = 0;
  int metrics = 0;
};
[[nodiscard]] DescriptorBounds descriptor_bounds();
[[nodiscard]] net::ListenerOptions client_listener_options(const config::FrontendConfig& config,
                                                           net::TlsContextPointer tls);
[[nodiscard]] net::ListenerOptions backend_listener_options(net::TlsContextPointer tls);

// What is sampled from the start.
[[nodiscard]] net::kserve::TraceSampling trace_sampling(const config::FrontendConfig& config);

// The time of the engine and of the machine, now.
[[nodiscard]] observe::WallClock wall_clock();

}  // namespace gpulet::frontend
