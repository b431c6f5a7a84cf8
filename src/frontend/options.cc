#include "frontend/options.h"

#include <algorithm>

#include "frontend/cluster/cluster_link.h"
#include "frontend/frames/connection_options.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {

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

net::BufferPoolOptions buffer_options(const Setup& setup) {
  net::BufferPoolOptions options;
  options.max_used_bytes = std::size_t{setup.config.max_buffered_mb} << 20U;
  options.reserve = setup.memory;
  return options;
}

net::kserve::TraceSampling trace_sampling(const config::FrontendConfig& config) {
  net::kserve::TraceSampling sampling;
  sampling.on = config.trace_every > 0;
  if (sampling.on) sampling.every = config.trace_every;
  return sampling;
}

serve::FrontendOptions core_options(const Setup& setup) {
  serve::FrontendOptions options;
  options.run = setup.run;
  options.clustered = setup.config.cluster.has_value();
  if (setup.config.cluster) {
    options.member = member_name(*setup.config.cluster);
    options.owner_settling = setup.config.cluster->settling;
    options.max_group_rate = setup.config.cluster->max_group_rate;
  }
  options.policy = setup.policy->name();
  options.margin = setup.config.margin;
  options.headroom = setup.headroom;
  options.use_spare = setup.config.use_spare;
  options.verify = setup.config.verify;
  options.plan_budget_ms = setup.config.plan_budget_ms;
  options.feedback = setup.config.feedback;
  options.estimates = setup.config.estimates;
  options.period = setup.config.period;
  options.synthetic_inputs = setup.config.synthetic_inputs;
  options.max_queue_per_model = setup.config.max_queue;
  options.inflight = {setup.config.max_requests,
                      std::uint64_t{setup.config.max_buffered_mb} << 20U};
  options.demands.idle_after = setup.config.idle_after;
  options.load_timeout = setup.config.load_timeout;
  options.wake_within = setup.config.wake_within;
  options.late_grace = setup.config.late_grace;
  options.control = setup.config.control;
  options.trace_every = setup.config.trace_every;
  options.exclusions.first = setup.config.exclusions.first;
  options.exclusions.longest = setup.config.exclusions.longest;
  return options;
}

}  // namespace gpulet::frontend
