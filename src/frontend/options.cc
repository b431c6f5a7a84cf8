#include "options.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <limits>
#include <utility>

#include "gpulet/frontend/daemon.h"
#include "gpulet/net/clock.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {

net::ConnectionOptions client_options(const config::FrontendConfig& config, bool reserved) {
  constexpr Duration kReservedFor = std::chrono::seconds(5);
  net::ConnectionOptions options;
  options.limits.max_message_bytes = 64U << 10U;
  options.limits.max_payload_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(largest_payload(config), std::numeric_limits<std::uint32_t>::max()));
  options.pace = pace_limits(config);
  options.first_timeout = config.first_message;
  if (reserved) options.read_timeout = kReservedFor;
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

std::size_t largest_message(const config::FrontendConfig& config,
                            const serve::Catalogue& catalogue) {
  if (config.max_payload_bytes) return *config.max_payload_bytes;
  std::size_t bytes = 64U << 20U;
  const auto take = [&bytes](const serve::ServedModel& model) {
    bytes = std::max(bytes, net::kserve::largest_infer_message(model.inputs, model.max_batch));
  };
  for (const serve::ServedModel& model : catalogue.models) take(model);
  for (const auto& application : catalogue.applications) take(application->front);
  return std::min(bytes, largest_payload(config));
}

net::BufferPoolOptions buffer_options(const config::FrontendConfig& config) {
  net::BufferPoolOptions options;
  options.max_used_bytes = std::size_t{config.max_buffered_mb} << 20U;
  return options;
}

net::PlaceLimits client_places(const config::FrontendConfig& config) {
  return {.general = config.max_connections,
          .reserve = kReservedPlaces,
          .per_address = config.max_connections_per_address};
}

DescriptorBounds descriptor_bounds() {
  constexpr rlim_t kLeastReserve = 16;
  constexpr rlim_t kMostReserve = 256;
  constexpr rlim_t kReservePart = 8;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {INT_MAX, INT_MAX};
  const rlim_t all = std::min<rlim_t>(limit.rlim_cur, INT_MAX);
  const rlim_t reserve = std::clamp(all / kReservePart, kLeastReserve, kMostReserve);
  if (all <= reserve) return {INT_MAX, INT_MAX};
  return {static_cast<int>(all - reserve), static_cast<int>(all - reserve / 2)};
}

net::ListenerOptions client_listener_options(const config::FrontendConfig& config,
                                             net::TlsContextPointer tls) {
  net::ListenerOptions options;
  options.places = client_places(config);
  options.last_descriptor = descriptor_bounds().clients;
  options.tls = std::move(tls);
  return options;
}

net::ListenerOptions backend_listener_options(net::TlsContextPointer tls) {
  net::ListenerOptions options;
  options.tls = std::move(tls);
  return options;
}

net::kserve::TraceSampling trace_sampling(const config::FrontendConfig& config) {
  net::kserve::TraceSampling sampling;
  sampling.on = config.trace_every > 0;
  if (sampling.on) sampling.every = config.trace_every;
  return sampling;
}

observe::WallClock wall_clock() {
  return {net::now(), std::chrono::system_clock::now().time_since_epoch()};
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
  options.late_grace = setup.config.late_grace;
  options.control = setup.config.control;
  options.trace_every = setup.config.trace_every;
  options.exclusions.first = setup.config.exclusions.first;
  options.exclusions.longest = setup.config.exclusions.longest;
  return options;
}

}  // namespace gpulet::frontend
