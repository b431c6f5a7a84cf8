#include "frontend/setup.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "frontend/administration.h"
#include "frontend/catalogue.h"
#include "frontend/cluster_link.h"
#include "frontend/options.h"
#include "gpulet/base/text.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/kserve/http_api.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/research/research.h"
#include "gpulet/store/model_store.h"
#include "gpulet/store/remote/remote_files.h"

namespace gpulet::frontend {
namespace {

// A folder for copies of model files: below that which systemd gives to the service, or in the
// user's cache. Empty: there is none.
std::filesystem::path default_folder(const char* in_state, const char* in_cache) {
  const auto below = [](const char* variable, const char* folder) {
    const char* const value = std::getenv(variable);
    return value == nullptr || *value == 0 ? std::filesystem::path()
                                           : std::filesystem::path(value) / folder;
  };
  const std::string cache = std::string("gpulet/") + in_cache;
  for (const auto& [variable, folder] :
       {std::pair<const char*, std::string>("STATE_DIRECTORY", in_state),
        std::pair<const char*, std::string>("XDG_CACHE_HOME", cache),
        std::pair<const char*, std::string>("HOME", ".cache/" + cache)}) {
    if (std::filesystem::path found = below(variable, folder.c_str()); !found.empty()) return found;
  }
  return {};
}

std::filesystem::path model_store_of(const config::ClusterConfig& cluster) {
  return cluster.model_store.empty() ? default_folder("models-of-cluster", "models")
                                     : cluster.model_store;
}

store::remote::RemoteFilesOptions remote_options(const config::FrontendConfig& config) {
  store::remote::RemoteFilesOptions options{config.remote_stores, {}};
  if (options.stores.cache.empty())
    options.stores.cache = default_folder("models-of-stores", "stores");
  if (config.model_format != config::ModelFormat::any) {
    options.check = [allowed = config.model_format](int descriptor) {
      return config::check_file_of(allowed, descriptor);
    };
  }
  return options;
}

// Fails if the configured folder cannot be used.
Result<std::optional<store::ModelStore>> open_store(const config::FrontendConfig& config) {
  using Store = std::optional<store::ModelStore>;
  if (!config.cluster) return Store();
  const std::filesystem::path folder = model_store_of(*config.cluster);
  Result<store::ModelStore> opened =
      folder.empty() ? Status(StatusCode::unavailable, "no folder for model files of others")
                     : store::ModelStore::open(folder);
  if (opened.ok()) return Store(std::move(opened).value());
  if (!config.cluster->model_store.empty()) return opened.status().within("cluster");
  spdlog::warn(
      "{}; files of models that clients load must be readable at the same paths on all frontends, "
      "or set \"model_store\" of \"cluster\"",
      opened.status().message());
  return Store();
}

}  // namespace

Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run) {
  Setup setup;
  setup.config = config;
  setup.run = run;
  const Result<schedule::Headroom> headroom = planning::parse_headroom(config.headroom);
  if (!headroom.ok()) return headroom.status().within("headroom");
  setup.headroom = headroom.value();
  Result<Security> security = read_security(config);
  if (!security.ok()) return security.status();
  setup.security = std::move(security).value();
  Result<std::unique_ptr<AuditLog>> audit = AuditLog::open(config.audit_log);
  if (!audit.ok()) return audit.status();
  setup.audit = std::move(audit).value();
  Result<std::optional<store::ModelStore>> store = open_store(config);
  if (!store.ok()) return store.status();
  setup.remote_files = std::make_shared<store::remote::RemoteFiles>(remote_options(config));
  setup.remote_versions = std::make_shared<RemoteVersions>(!config.cluster.has_value());
  setup.loader = std::make_shared<CatalogueLoader>(
      config, std::move(store).value(), RemoteSource{setup.remote_files, setup.remote_versions});
  Result<LoadedCatalogue> loaded = setup.loader->load();
  if (!loaded.ok()) return loaded.status();
  setup.catalogue = std::move(loaded.value().catalogue);
  setup.model_files = std::move(loaded.value().model_files);
  setup.remote_models = std::move(loaded.value().remote_models);
  Result<std::unique_ptr<schedule::Policy>> policy = research::policies().make(config.policy);
  if (!policy.ok()) return policy.status();
  setup.policy = std::move(policy).value();
  return setup;
}

// ---- options

net::ConnectionOptions client_options(const config::FrontendConfig& config, bool reserved) {
  constexpr Duration kReservedTimeout = std::chrono::seconds(5);
  net::ConnectionOptions options;
  options.limits.max_message_bytes = 64U << 10U;
  options.limits.max_payload_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(largest_payload(config), std::numeric_limits<std::uint32_t>::max()));
  options.pace = pace_limits(config);
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

net::BufferPoolOptions buffer_options(const Setup& setup) {
  net::BufferPoolOptions options;
  options.max_used_bytes = std::size_t{setup.config.max_buffered_mb} << 20U;
  options.reserve = setup.memory;
  return options;
}

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

// ---- security

namespace {

struct Port {
  std::string_view key;
  std::optional<config::Endpoint> endpoint;
};

// The ports that other machines can reach; empty: none.
std::string reachable(const std::vector<Port>& ports) {
  std::vector<std::string> found;
  for (const Port& port : ports) {
    if (!port.endpoint || config::is_loopback(*port.endpoint)) continue;
    found.push_back(std::string(port.key) + " (" + config::to_string(*port.endpoint) + ")");
  }
  return joined(found);
}

}  // namespace

Result<PortTls> read_port_tls(const config::TlsFiles& files) {
  Result<net::TlsContextPointer> context = net::TlsContext::server(files);
  if (!context.ok()) return context.status();
  Result<net::TlsTexts> texts = net::read_tls_texts(files);
  if (!texts.ok()) return texts.status();
  return PortTls{std::move(context).value(), std::move(texts).value()};
}

Result<Security> read_security(const config::FrontendConfig& config) {
  Security security;
  if (config.tls) {
    Result<PortTls> clients = read_port_tls(*config.tls);
    if (!clients.ok()) return clients.status().within("tls");
    security.clients = std::move(clients).value();
  }
  if (config.backend_tls) {
    Result<PortTls> backends = read_port_tls(*config.backend_tls);
    if (!backends.ok()) return backends.status().within("backend_tls");
    security.backends = std::move(backends).value();
  }
  Result<net::Tokens> tokens = net::Tokens::read(config.tokens);
  if (!tokens.ok()) return tokens.status().within("tokens");
  security.gate = std::make_shared<net::Gate>(
      std::make_shared<const net::Tokens>(std::move(tokens).value()), config.per_address);
  return security;
}

std::vector<std::string> exposures(const config::FrontendConfig& config) {
  std::vector<std::string> found;
  const std::string served =
      reachable({{"listen", config.listen}, {"http", config.http}, {"grpc", config.grpc}});
  const std::string metrics = reachable({{"metrics", config.metrics}});
  const std::string both = served + (served.empty() || metrics.empty() ? "" : ", ") + metrics;
  const std::string backends = reachable({{"backend_listen", config.backend_listen}});
  if (!both.empty() && !config.tls)
    found.push_back("other machines can reach " + both + R"( without encryption; set "tls")");
  if (!served.empty() && config.tokens.admin.empty() && config.tokens.inference.empty()) {
    found.push_back(
        "any client that can reach " + served +
        R"( may load and unload models; set "tokens": {"admin": FILE} to prevent this)");
  }
  if (!served.empty() && config.tokens.inference.empty()) {
    found.push_back(
        "any client that can reach " + served +
        R"( may request inferences; set "tokens": {"inference": FILE} to prevent this)");
  }
  if (!backends.empty() && !config.backend_tls) {
    found.push_back(
        "any machine that can reach " + backends +
        R"( may pose as a backend and receive models and requests; set "backend_tls" to prevent this)");
  }
  if (config.cluster && !config.cluster->peer_tls &&
      !config::is_loopback(config.cluster->peer_listen)) {
    found.push_back("any machine that can reach cluster.peer_listen (" +
                    config::to_string(config.cluster->peer_listen) +
                    ") may pose as a frontend and send requests without a token; set "
                    "cluster.peer_tls to prevent this");
  }
  return found;
}

}  // namespace gpulet::frontend
