#include "gpulet/config/daemon_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "config/address.h"
#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr double kMostCores = 4096;
constexpr double kHighestPole = 0.999;
constexpr double kHighestGain = 1000;  // cores per second
constexpr double kLongestOverheadS = 60;
constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53U;
constexpr std::uint32_t kLargestCount = 1U << 30U;
constexpr std::uint32_t kMostBufferedMegabytes = 1U << 20U;
constexpr std::uint32_t kMostWarmProxies = 64;
constexpr double kLongestSeconds = 86400;
constexpr double kLongestGraceMs = 60000;
constexpr double kLongestGraceSeconds = 300;
constexpr double kLongestBudgetMs = 60000;
constexpr NumberRange kSeconds = up_to(kLongestSeconds);
constexpr NumberRange kPeriod = up_to(3600);
constexpr std::string_view kEndpointFix =
    "write host:port, for example 127.0.0.1:7000 or [::1]:7000";

// Mutual TLS needs the authority of the peers, too.
Reader tls(std::optional<TlsFiles>& field, bool mutual) {
  return [&field, mutual](const JsonCursor& cursor) {
    TlsFiles& files = field.emplace();
    ObjectReader reader(cursor);
    reader
        .required("certificate", path(files.certificate,
                                      "the path of a certificate in PEM form, its chain after it"))
        .required("key", path(files.key, "the path of the certificate's private key in PEM form"));
    if (mutual) {
      reader.required("authority",
                      path(files.authority,
                           "the path of the PEM file with the certificate authority of the peers"));
    }
    reader.read();
  };
}

TokenFiles read_tokens(const JsonCursor& cursor) {
  constexpr std::string_view kTokens = "the path of a file of tokens, one a line";
  TokenFiles files;
  ObjectReader(cursor)
      .optional("admin", path(files.admin, kTokens))
      .optional("inference", path(files.inference, kTokens))
      .optional("observe", path(files.observe, kTokens))
      .read();
  if (files == TokenFiles{})
    cursor.fail("names no file", "give \"admin\", \"inference\" or \"observe\", or leave it out");
  return files;
}

ClientLimits read_client_limits(const JsonCursor& cursor) {
  constexpr NumberRange kRate = up_to(1e9);
  ClientLimits limits;
  ObjectReader(cursor)
      .optional("requests_per_s", number(limits.requests_per_s, kRate))
      .optional("device_ms_per_s", number(limits.device_ms_per_s, kRate))
      .optional("max_requests", count(limits.max_requests, 1, kLargestCount))
      .read();
  if (!limits.any()) cursor.fail("limits nothing", "give one of its keys, or leave it out");
  return limits;
}

control::Options read_control(const JsonCursor& cursor) {
  control::Options options;
  const auto read_window = [](const JsonCursor& window) {
    return from_seconds(window.number(kPeriod));
  };
  const auto read_gains = [](const JsonCursor& gains) {
    control::PiGains read;
    ObjectReader(gains)
        .required("cores_per_s", number(read.gain_cores_per_s, up_to(kHighestGain)))
        .required("zero", number(read.zero, between(0, kHighestPole)))
        .read();
    return read;
  };
  const auto read_seed = [](const JsonCursor& seed) {
    return static_cast<std::uint64_t>(seed.integer(0, kLargestSeed));
  };
  ObjectReader(cursor)
      .optional("gpu", choice(options.gpu, {"need", "round-robin"}))
      .optional("cores", choice(options.cores, {"feedback", "steps", "all", "least"}))
      .optional("set_point", number(options.set_point, up_to(1)))
      .optional("queued_weight", number(options.queued_weight, between(0, 1)))
      .optional("surplus", number(options.surplus, between(0, 1)))
      .optional("gpu_cores", number(options.gpu_cores, between(0, kMostCores)))
      .optional("least_cores", number(options.least_cores, up_to(kMostCores)))
      .optional("pole", number(options.pole, between(0, kHighestPole)))
      .optional("period_s", seconds(options.period, kPeriod))
      .optional("window_s", into(options.window, read_window))
      .optional("overhead_s", seconds(options.overhead, between(0, kLongestOverheadS)))
      .optional("gains", into(options.gains, read_gains))
      .optional("steps_period_s", seconds(options.steps_period, kPeriod))
      .optional("percentile", number(options.percentile, up_to(kHighestPole)))
      .optional("patience_s", seconds(options.patience, kSeconds))
      .optional("seed", into(options.seed, read_seed))
      .optional("spill", into(options.spill, std::mem_fn(&JsonCursor::boolean)))
      .read();
  if (options.window && *options.window < options.period) {
    cursor.fail("has a window_s shorter than period_s", "raise window_s, or leave it out");
  }
  return options;
}

std::optional<Endpoint> split_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view forbidden =
      bracketed ? "[] \t" : ":[] \t";  // an unbracketed ':' is part of an IPv6 address
  if (host.empty() || host.find_first_of(forbidden) != std::string_view::npos) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  if (!port) return std::nullopt;
  return Endpoint{std::string(host), *port};
}

Endpoint read_endpoint(const JsonCursor& cursor) {
  const std::string text = cursor.text("host:port in quotes, for example \"127.0.0.1:7000\"");
  const std::optional<Endpoint> endpoint = split_endpoint(text);
  if (!endpoint) cursor.fail(in_quotes(text) + " is not an endpoint", kEndpointFix);
  return endpoint.value_or(Endpoint{});
}

// An address to listen on. A name could mean another address at every start, or several.
Endpoint read_listen(const JsonCursor& cursor) {
  Endpoint endpoint = read_endpoint(cursor);
  if (endpoint.host == "localhost") endpoint.host = "127.0.0.1";
  if (cursor.valid() && !is_ip_address(endpoint.host)) {
    cursor.fail(in_quotes(endpoint.host) + " is a name, and a daemon listens on addresses",
                "write a numeric address of this machine, such as 127.0.0.1, 0.0.0.0 or [::]; "
                "\"localhost\" is 127.0.0.1");
  }
  return endpoint;
}

std::optional<Endpoint> read_listen_or_off(const JsonCursor& cursor) {
  const std::string text = cursor.text("host:port in quotes, or \"off\"");
  if (text == "off") return std::nullopt;
  return read_listen(cursor);
}

void read_limits(const JsonCursor& cursor, FrontendConfig& config) {
  ObjectReader(cursor)
      .optional("max_queue", count(config.max_queue, 1, kLargestCount))
      .optional("max_requests", count(config.max_requests, 1, kLargestCount))
      .optional("max_buffered_mb", count(config.max_buffered_mb, 1, kMostBufferedMegabytes))
      .optional("max_connections", count(config.max_connections, 1, kLargestCount))
      .optional("max_connections_per_address",
                count(config.max_connections_per_address, 1, kLargestCount))
      .optional("max_payload_bytes", count(config.max_payload_bytes, 1, kLargestCount))
      .optional("min_bytes_per_second", count(config.min_bytes_per_second, 1, kLargestCount))
      .optional("receive_grace_s", seconds(config.receive_grace, kSeconds))
      .optional("max_receive_s", seconds(config.max_receive, kSeconds))
      .optional("first_message_s", seconds(config.first_message, kSeconds))
      .optional("per_address", into(config.per_address, read_client_limits))
      .read();
  if (config.max_payload_bytes.value_or(0) > std::uint64_t{config.max_buffered_mb} << 20U) {
    cursor.fail(fmt::format("max_payload_bytes ({}) of one request is more than max_buffered_mb "
                            "({}) of all",
                            *config.max_payload_bytes, config.max_buffered_mb),
                "raise max_buffered_mb, or lower max_payload_bytes");
  }
}

ExclusionTimes read_exclusions(const JsonCursor& cursor) {
  ExclusionTimes times;
  ObjectReader(cursor)
      .optional("first_s", seconds(times.first, kSeconds))
      .optional("longest_s", seconds(times.longest, kSeconds))
      .read();
  if (times.longest < times.first)
    cursor.fail("longest_s is shorter than first_s", "raise longest_s, or lower first_s");
  return times;
}

// True if only one of them can be listened on. "::" includes IPv4.
bool overlap(const Endpoint& one, const Endpoint& other) {
  if (one.port == 0 || one.port != other.port) return false;
  const auto includes = [](const std::string& all, const std::string& host) {
    return all == "::" || (all == "0.0.0.0" && host.find(':') == std::string::npos);
  };
  return one.host == other.host || includes(one.host, other.host) || includes(other.host, one.host);
}

// Two ports cannot share an endpoint.
void check_endpoints(const JsonCursor& root, const FrontendConfig& config) {
  std::vector<std::pair<std::string_view, std::optional<Endpoint>>> all{
      {"listen", config.listen},
      {"backend_listen", config.backend_listen},
      {"http", config.http},
      {"grpc", config.grpc},
      {"metrics", config.metrics}};
  if (config.cluster) all.emplace_back("cluster.peer_listen", config.cluster->peer_listen);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [key, endpoint] = all[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (!endpoint || !all[j].second || !overlap(*endpoint, *all[j].second)) continue;
      root.fail(fmt::format("{} and {} share the endpoint {}", in_quotes(all[j].first),
                            in_quotes(key), to_string(*endpoint)),
                "give them different ports");
      return;
    }
  }
}

// The name of a policy, or its name and file: "inss:FILE".
std::string read_policy(const JsonCursor& cursor) {
  std::string text = cursor.text("a policy's name");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  return text.substr(0, colon + 1) + cursor.resolved(text.substr(colon + 1)).string();
}

// TLS to a server that may do without a certificate of this side.
TlsFiles read_client_tls(const JsonCursor& cursor) {
  TlsFiles files;
  ObjectReader(cursor)
      .required(
          "authority",
          path(files.authority, "the path of the PEM file with the server's certificate authority"))
      .optional("certificate",
                path(files.certificate, "the path of this side's certificate in PEM form"))
      .optional("key", path(files.key, "the path of the certificate's private key in PEM form"))
      .read();
  if (files.certificate.empty() != files.key.empty())
    cursor.fail("has a certificate without a key, or a key without a certificate",
                "give both or neither");
  return files;
}

// At least one, each once.
std::vector<Endpoint> read_endpoints(const JsonCursor& cursor) {
  constexpr std::size_t kMostEndpoints = 64;
  std::vector<Endpoint> endpoints;
  for (const auto& element : cursor.elements("a list of HOST:PORT", 1)) {
    endpoints.push_back(read_endpoint(element));
    if (std::count(endpoints.begin(), endpoints.end(), endpoints.back()) > 1)
      element.fail("is in the list twice", "remove it");
  }
  if (endpoints.size() > kMostEndpoints) {
    cursor.fail(fmt::format("has more than {} endpoints", kMostEndpoints),
                "name a few of them: they belong to one cluster");
  }
  return endpoints;
}

std::string read_address(const JsonCursor& cursor) { return to_string(read_endpoint(cursor)); }

ClusterConfig read_cluster(const JsonCursor& cursor) {
  constexpr double kShortestLeaseS = 2;  // etcd's own limit
  constexpr double kLongestLeaseS = 600;
  ClusterConfig config;
  ObjectReader(cursor)
      .optional("name", name(config.name))
      .optional("member", name(config.member))
      .optional("address", into(config.address, read_address))
      .optional("peer_listen", into(config.peer_listen, read_listen))
      .optional("peer_address", into(config.peer_address, read_address))
      .optional("peer_tls", tls(config.peer_tls, true))
      .required("etcd", into(config.etcd, read_endpoints))
      .optional("prefix",
                into(config.prefix,
                     [](const JsonCursor& prefix) {
                       return prefix.text("the prefix of keys, such as \"/gpulet/main/\"");
                     }))
      .optional("lease_s", seconds(config.lease, between(kShortestLeaseS, kLongestLeaseS)))
      .optional("settling_s", seconds(config.settling, between(0, kLongestLeaseS)))
      .optional("max_group_rate", number(config.max_group_rate, at_least(1)))
      .optional("model_store",
                path(config.model_store, "the path of a folder for model files of other frontends"))
      .optional("user", name(config.user))
      .optional("password_file", path(config.password_file, "the path of a file with the password"))
      .optional("tls", into(config.tls, read_client_tls))
      .read();
  if (config.user.empty() != config.password_file.empty())
    cursor.fail("has \"user\" without \"password_file\", or the other way round", "give both");
  if (config.peer_listen.port == 0)
    cursor.fail("has a peer_listen with port 0", "name a port: the other frontends connect to it");
  if (!config.prefix.empty() && !config.prefix.ends_with('/'))
    cursor.fail("has a prefix that does not end with '/'",
                "end it with '/': other keys could begin with it");
  return config;
}

RemoteStoresConfig read_remote_stores(const JsonCursor& cursor) {
  constexpr std::uint32_t kMostRedirects = 20;
  constexpr double kShortestPollS = 0.1;
  RemoteStoresConfig config;
  ObjectReader(cursor)
      .optional("cache", path(config.cache, "the path of a folder for model files of stores"))
      .optional("cache_mb", count(config.cache_mb, 1, kLargestCount))
      .optional("largest_file_mb", count(config.largest_file_mb, 1, kMostBufferedMegabytes))
      .optional("poll_s", seconds(config.poll, between(kShortestPollS, kLongestSeconds)))
      .optional("connect_s", seconds(config.connect, kSeconds))
      .optional("stall_s", seconds(config.stall, between(1, kLongestSeconds)))
      .optional("min_bytes_per_second", count(config.min_bytes_per_second, 1, kLargestCount))
      .optional("fetch_s", seconds(config.fetch, between(1, kLongestSeconds)))
      .optional("retry_s", seconds(config.first_retry, between(kShortestPollS, kLongestSeconds)))
      .optional("longest_retry_s",
                seconds(config.longest_retry, between(kShortestPollS, kLongestSeconds)))
      .optional("redirects", count(config.redirects, 0, kMostRedirects))
      .optional("authority", path(config.authority,
                                  "the path of the PEM file with the authorities of the stores"))
      .read();
  if (config.longest_retry < config.first_retry)
    cursor.fail("has a longest_retry_s below retry_s", "raise it, or lower retry_s");
  return config;
}

FrontendConfig read_frontend(const JsonCursor& root) {
  FrontendConfig config;
  const auto limits = [&config](const JsonCursor& cursor) { read_limits(cursor, config); };
  ObjectReader(root)
      .optional("listen", into(config.listen, read_listen))
      .optional("backend_listen", into(config.backend_listen, read_listen))
      .optional("http", into(config.http, read_listen_or_off))
      .optional("grpc", into(config.grpc, read_listen_or_off))
      .optional("metrics", into(config.metrics, read_listen_or_off))
      .optional("shared_memory", choice(config.shared_memory, {"off", "on"}))
      .required("models", path(config.models, "the path of the models file"))
      .required("profiles", path(config.profiles, "the path of the folder of profiles"))
      .optional("policy", into(config.policy, read_policy))
      .optional("plan_budget_ms", number(config.plan_budget_ms, between(0, kLongestBudgetMs)))
      .optional("margin", number(config.margin, between(1, 10)))
      .optional("interference",
                choice(config.interference, {"linear", "learned", "measured", "inss", "none"}))
      .optional("feedback", choice(config.feedback, {"off", "on"}))
      .optional("estimates", choice(config.estimates, {"off", "on"}))
      .optional("headroom", choice(config.headroom, {"poisson", "none"}))
      .optional("use_spare", into(config.use_spare, std::mem_fn(&JsonCursor::boolean)))
      .optional("verify", into(config.verify, std::mem_fn(&JsonCursor::boolean)))
      .optional("period_s", seconds(config.period, kSeconds))
      .optional("drain_timeout_s", seconds(config.drain_timeout, kSeconds))
      .optional("drain_grace_s", seconds(config.drain_grace, between(0, kLongestGraceSeconds)))
      .optional("idle_after_s", seconds(config.idle_after, between(0, kLongestSeconds)))
      .optional("load_timeout_s", seconds(config.load_timeout, kSeconds))
      .optional("wake_within_s", seconds(config.wake_within, kSeconds))
      .optional("trace_every", count(config.trace_every, 0, kLargestCount))
      .optional("tls", tls(config.tls, false))
      .optional("backend_tls", tls(config.backend_tls, true))
      .optional("tokens", into(config.tokens, read_tokens))
      .optional("control", into(config.control, read_control))
      .optional("limits", limits)
      .optional("exclusions", into(config.exclusions, read_exclusions))
      .optional("model_root", path(config.model_root, "the path of a folder of model files"))
      .optional("model_format",
                choice(config.model_format, {"known", "torchscript", "native", "any"}))
      .optional("late_grace_ms", milliseconds(config.late_grace, between(0, kLongestGraceMs)))
      .optional("audit_log", path(config.audit_log, "the path of the audit log"))
      .optional("summary_latencies", choice(config.summary_latencies, {"off", "on"}))
      .optional("cluster", into(config.cluster, read_cluster))
      .optional("remote_stores", into(config.remote_stores, read_remote_stores))
      .read();
  check_endpoints(root, config);
  config.named_files = root.named_files();
  return config;
}

// A daemon must know more about its devices than a plan needs.
void check_devices(const JsonCursor& root, const BackendConfig& config) {
  if (!root.status().ok()) return;
  const std::vector<JsonCursor> places = root.required("devices").elements("a list of devices");
  const auto on_gpus = std::count_if(config.devices.begin(), config.devices.end(), is_on_gpu);
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    const DeviceConfig& device = config.devices[i];
    // The only CPU device of a node has all cores by default.
    if (device.partitioning == "cpu_quota" && device.cores.empty() && config.devices.size() > 1) {
      places[i].fail(
          "a device partitioned by cpu_quota has no cores, and the node has other devices",
          "add \"cores\", for example \"cores\":[0]");
    }
    // The only GPU entry of a node stands for its first GPUs.
    if (is_on_gpu(device) && device.gpu.empty() && on_gpus > 1) {
      places[i].fail(fmt::format("a device partitioned by {} does not say which GPU it is, and the "
                                 "node has other GPU entries",
                                 device.partitioning),
                     "add \"gpu\", for example \"gpu\":0");
    }
    if (device.partitioning == "simulated" && config.profiles.empty()) {
      places[i].fail(fmt::format("a simulated device needs the profile {}, and this file names no "
                                 "profiles",
                                 in_quotes(device.type)),
                     "add \"profiles\", the folder with that profile, at the top level");
    }
  }
}

std::vector<std::string> read_variables(const JsonCursor& cursor) {
  std::vector<std::string> names;
  for (const auto& element : cursor.elements("a list of names of environment variables")) {
    names.push_back(element.text("the name of an environment variable"));
    if (names.back().empty() || names.back().find('=') != std::string::npos)
      element.fail(in_quotes(names.back()) + " is not the name of a variable",
                   "write the name alone, for example \"HTTP_PROXY\"");
  }
  return names;
}

std::optional<ProxyMemory> read_proxy_memory(const JsonCursor& cursor) {
  constexpr double kMostTimes = 100;
  if (cursor.is_text()) {
    static_cast<void>(cursor.choice({"off"}));
    return std::nullopt;
  }
  ProxyMemory memory;
  ObjectReader(cursor)
      .optional("factor", number(memory.factor, between(1, kMostTimes)))
      .optional("floor_mb", count(memory.floor_mb, 1, kLargestCount))
      .read();
  return memory;
}

Parking read_parking(const JsonCursor& cursor) {
  Parking parking;
  ObjectReader(cursor)
      .required("memory_mb", count(parking.memory_mb, 0, kLargestCount))
      .optional("load_ahead", choice(parking.load_ahead, {"off", "on"}))
      .read();
  return parking;
}

BackendConfig read_backend(const JsonCursor& root) {
  BackendConfig config;
  std::optional<Endpoint> frontend;
  std::optional<std::vector<Endpoint>> frontends;
  ObjectReader(root)
      .required("node", name(config.node))
      .optional("frontend", into(frontend, read_endpoint))
      .optional("frontends", into(frontends, read_endpoints))
      .required("model_store", path(config.model_store, "the path of the folder to keep models in"))
      .optional("profiles", path(config.profiles, "the path of the folder of profiles"))
      .optional("proxy", path(config.proxy, "the path of the gpulet-proxy program"))
      .optional("warm_proxies", count(config.warm_proxies, 0, kMostWarmProxies))
      .optional("proxy_user", name(config.proxy_user))
      .optional("load_timeout_s", seconds(config.load_timeout, kSeconds))
      .optional("hang_timeout_s", seconds(config.hang_timeout, kSeconds))
      .optional("hang_factor", number(config.hang_factor, between(1, 1000)))
      .optional("model_store_mb", count(config.model_store_mb, 1, kLargestCount))
      .optional("proxy_sandbox", choice(config.proxy_sandbox, {"off", "on"}))
      .optional("onnxruntime", path(config.onnxruntime, "the path of ONNX Runtime's library"))
      .optional("native_models", choice(config.native_models, {"off", "on"}))
      .optional("proxy_environment", into(config.proxy_environment, read_variables))
      .optional("proxy_memory", into(config.proxy_memory, read_proxy_memory))
      .optional("parking", into(config.parking, read_parking))
      .optional("tls", tls(config.tls, true))
      .required("devices", into(config.devices, read_devices))
      .read();
  if (frontend && frontends)
    root.fail("has both \"frontend\" and \"frontends\"", "remove \"frontend\"");
  if (frontend) config.frontends = {std::move(*frontend)};
  if (frontends) config.frontends = std::move(*frontends);
  check_devices(root, config);
  return config;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  std::optional<Endpoint> endpoint = split_endpoint(text);
  if (endpoint) return *std::move(endpoint);
  return Status(StatusCode::invalid,
                fmt::format("{} is not an endpoint; {}", in_quotes(text), kEndpointFix));
}

std::string to_string(const Endpoint& endpoint) {
  const bool needs_brackets = endpoint.host.find(':') != std::string::npos;
  return needs_brackets ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                        : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_loopback(const Endpoint& endpoint) {
  return endpoint.host.starts_with("127.") || endpoint.host == "::1" ||
         endpoint.host == "localhost";
}

Result<control::Options> parse_control(std::string_view text, const std::filesystem::path& file,
                                       std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_control);
}

Result<FrontendConfig> parse_frontend(std::string_view text, const std::filesystem::path& file,
                                      std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_frontend);
}

Result<BackendConfig> parse_backend(std::string_view text, const std::filesystem::path& file,
                                    std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_backend);
}

Result<control::Options> load_control(const std::filesystem::path& file) {
  return load_file(file, parse_control);
}

Result<FrontendConfig> load_frontend(const std::filesystem::path& file) {
  return load_file(file, parse_frontend);
}

Result<BackendConfig> load_backend(const std::filesystem::path& file) {
  return load_file(file, parse_backend);
}

}  // namespace gpulet::config
