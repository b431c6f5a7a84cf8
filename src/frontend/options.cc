#include "options.h"

#include <utility>

#include "gpulet/frontend/daemon.h"

namespace gpulet::frontend {

net::ConnectionOptions client_options(const config::FrontendConfig& config) {
  net::ConnectionOptions options;
  options.limits.max_message_bytes = 64U << 10U;
  options.limits.max_payload_bytes = config.max_payload_bytes;
  options.pace = pace_limits(config);
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
  options.max_queued_bytes = 1024U << 20U;
  return options;
}

net::BufferPoolOptions buffer_options(const config::FrontendConfig& config) {
  net::BufferPoolOptions options;
  options.max_used_bytes = std::size_t{config.max_buffered_mb} << 20U;
  return options;
}

net::ListenerOptions listener_options(std::size_t max_connections, net::TlsContextPointer tls) {
  net::ListenerOptions options;
  options.max_connections = max_connections;
  options.tls = std::move(tls);
  return options;
}

serve::FrontendOptions core_options(const Setup& setup) {
  serve::FrontendOptions options;
  options.run = setup.run;
  options.policy = setup.policy->name();
  options.margin = setup.config.margin;
  options.headroom = setup.headroom;
  options.period = setup.config.period;
  options.max_queue_per_model = setup.config.max_queue;
  options.under_way = {setup.config.max_requests,
                       std::uint64_t{setup.config.max_buffered_mb} << 20U};
  options.demands.idle_after = setup.config.idle_after;
  options.wake_within = setup.config.wake_within;
  options.control = setup.config.control;
  options.trace_every = setup.config.trace_every;
  return options;
}

}  // namespace gpulet::frontend
