#include "gpulet/config/daemon_config.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/control_reading.h"
#include "config/devices.h"
#include "config/loading.h"
#include "config/security_reading.h"
#include "config/wording.h"

namespace gpulet::config {
namespace {

constexpr std::uint32_t kLargestCount = 1U << 30U;
constexpr std::uint32_t kMostBufferedMegabytes = 1U << 20U;
constexpr std::uint32_t kMostWarmProxies = 64;
constexpr double kLongestSeconds = 86400;
constexpr double kLongestGraceMs = 60000;
constexpr std::string_view kEndpointMend =
    "write host:port, for example 127.0.0.1:7000 or [::1]:7000";

std::optional<Endpoint> split_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view forbidden =
      bracketed ? "[] \t" : ":[] \t";  // an unbracketed ':' is part of an IPv6 address
  if (host.empty() || host.find_first_of(forbidden) != std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(colon + 1);
  Endpoint endpoint{std::string(host), 0};
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return endpoint;
}

Endpoint read_endpoint(const JsonCursor& cursor) {
  const std::string text = cursor.text("host:port in quotes, for example \"127.0.0.1:7000\"");
  const std::optional<Endpoint> endpoint = split_endpoint(text);
  if (!endpoint) cursor.fail(in_quotes(text) + " is not an endpoint", kEndpointMend);
  return endpoint.value_or(Endpoint{});
}

std::optional<Endpoint> read_endpoint_or_off(const JsonCursor& cursor) {
  const std::string text = cursor.text("host:port in quotes, or \"off\"");
  if (text == "off") return std::nullopt;
  return read_endpoint(cursor);
}

Duration read_seconds(const JsonCursor& cursor) {
  return from_seconds(cursor.number({.least = 0, .most = kLongestSeconds, .above_least = true}));
}

void read_limits(const JsonCursor& cursor, FrontendConfig& config) {
  cursor.allow_keys({"max_queue", "max_requests", "max_buffered_mb", "max_connections",
                     "max_connections_per_address", "max_payload_bytes", "min_bytes_per_second",
                     "receive_grace_s", "max_receive_s", "first_message_s", "per_address"});
  if (const auto address = cursor.find("per_address"))
    config.per_address = read_client_limits(*address);
  if (const auto queue = cursor.find("max_queue"))
    config.max_queue = queue->count(1, kLargestCount);
  if (const auto most = cursor.find("max_requests"))
    config.max_requests = most->count(1, kLargestCount);
  if (const auto most = cursor.find("max_buffered_mb"))
    config.max_buffered_mb = most->count(1, kMostBufferedMegabytes);
  if (const auto most = cursor.find("max_connections"))
    config.max_connections = most->count(1, kLargestCount);
  if (const auto most = cursor.find("max_connections_per_address"))
    config.max_connections_per_address = most->count(1, kLargestCount);
  if (const auto bytes = cursor.find("max_payload_bytes"))
    config.max_payload_bytes = bytes->count(1, kLargestCount);
  if (const auto bytes = cursor.find("min_bytes_per_second"))
    config.min_bytes_per_second = bytes->count(1, kLargestCount);
  if (const auto grace = cursor.find("receive_grace_s"))
    config.receive_grace = read_seconds(*grace);
  if (const auto longest = cursor.find("max_receive_s"))
    config.max_receive = read_seconds(*longest);
  if (const auto first = cursor.find("first_message_s"))
    config.first_message = read_seconds(*first);
  if (config.max_payload_bytes.value_or(0) > std::uint64_t{config.max_buffered_mb} << 20U) {
    cursor.fail("max_payload_bytes (" + std::to_string(*config.max_payload_bytes) +
                    ") of one request is more than max_buffered_mb (" +
                    std::to_string(config.max_buffered_mb) + ") of all",
                "raise max_buffered_mb, or lower max_payload_bytes");
  }
}

void read_exclusions(const JsonCursor& cursor, ExclusionTimes& times) {
  cursor.allow_keys({"first_s", "longest_s"});
  if (const auto first = cursor.find("first_s")) times.first = read_seconds(*first);
  if (const auto longest = cursor.find("longest_s")) times.longest = read_seconds(*longest);
  if (times.longest < times.first)
    cursor.fail("longest_s is shorter than first_s", "raise longest_s, or lower first_s");
}

// Nobody listens where another does.
void check_endpoints(const JsonCursor& root, const FrontendConfig& config) {
  struct Named {
    std::string_view key;
    std::optional<Endpoint> endpoint;
  };
  const std::vector<Named> all{{"listen", config.listen},
                               {"backend_listen", config.backend_listen},
                               {"http", config.http},
                               {"grpc", config.grpc},
                               {"metrics", config.metrics}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!all[i].endpoint || all[i].endpoint->port == 0 || all[i].endpoint != all[j].endpoint)
        continue;
      root.fail(in_quotes(all[j].key) + " and " + in_quotes(all[i].key) + " share the endpoint " +
                    to_string(*all[i].endpoint),
                "give them different ports");
      return;
    }
  }
}

std::string read_choice(const JsonCursor& cursor, const std::vector<std::string_view>& choices) {
  return std::string(choices[cursor.choice(choices)]);
}

// A name, or a name and the file that goes with it: "inss:FILE".
std::string read_policy(const JsonCursor& cursor, const std::filesystem::path& file) {
  std::string text = cursor.text("a policy's name");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  return text.substr(0, colon + 1) + resolve(file, text.substr(colon + 1)).string();
}

FrontendConfig read_frontend(const JsonCursor& root, const std::filesystem::path& file) {
  root.allow_keys({"listen",       "backend_listen",
                   "http",         "grpc",
                   "metrics",      "shared_memory",
                   "models",       "profiles",
                   "policy",       "margin",
                   "interference", "headroom",
                   "period_s",     "drain_timeout_s",
                   "idle_after_s", "wake_within_s",
                   "trace_every",  "tls",
                   "backend_tls",  "tokens",
                   "control",      "limits",
                   "exclusions",   "model_root",
                   "model_format", "late_grace_ms",
                   "audit_log",    "summary_latencies"});
  FrontendConfig config;
  if (const auto listen = root.find("listen")) config.listen = read_endpoint(*listen);
  if (const auto listen = root.find("backend_listen"))
    config.backend_listen = read_endpoint(*listen);
  if (const auto http = root.find("http")) config.http = read_endpoint_or_off(*http);
  if (const auto grpc = root.find("grpc")) config.grpc = read_endpoint_or_off(*grpc);
  if (const auto metrics = root.find("metrics")) config.metrics = read_endpoint_or_off(*metrics);
  if (const auto shared = root.find("shared_memory"))
    config.shared_memory = shared->choice({"off", "on"}) == 1;
  if (const auto summaries = root.find("summary_latencies"))
    config.summary_latencies = summaries->choice({"off", "on"}) == 1;
  if (const auto every = root.find("trace_every"))
    config.trace_every = every->count(0, kLargestCount);
  if (const auto tls = root.find("tls")) config.tls = read_tls(*tls, file);
  if (const auto tls = root.find("backend_tls")) config.backend_tls = read_mutual_tls(*tls, file);
  if (const auto tokens = root.find("tokens")) config.tokens = read_tokens(*tokens, file);
  if (const auto audit = root.find("audit_log"))
    config.audit_log = resolve(file, audit->text("the path of the audit log"));
  config.models = resolve(file, root.required("models").text("the path of the models file"));
  if (const auto folder = root.find("model_root"))
    config.model_root = resolve(file, folder->text("the path of a folder of model files"));
  if (const auto format = root.find("model_format"))
    config.model_format = static_cast<ModelFormat>(format->choice({"torchscript", "any"}));
  config.profiles =
      resolve(file, root.required("profiles").text("the path of the folder of profiles"));
  if (const auto policy = root.find("policy")) config.policy = read_policy(*policy, file);
  if (const auto margin = root.find("margin")) config.margin = margin->number(between(1, 10));
  if (const auto kind = root.find("interference")) {
    config.interference = read_choice(*kind, {"linear", "learned", "measured", "inss", "none"});
  }
  if (const auto headroom = root.find("headroom")) {
    config.headroom = read_choice(*headroom, {"poisson", "none"});
  }
  if (const auto period = root.find("period_s")) config.period = read_seconds(*period);
  if (const auto drain = root.find("drain_timeout_s")) config.drain_timeout = read_seconds(*drain);
  if (const auto idle = root.find("idle_after_s"))
    config.idle_after = from_seconds(idle->number(between(0, kLongestSeconds)));
  if (const auto wake = root.find("wake_within_s")) config.wake_within = read_seconds(*wake);
  if (const auto grace = root.find("late_grace_ms"))
    config.late_grace = from_ms(grace->number(between(0, kLongestGraceMs)));
  if (const auto control = root.find("control")) config.control = read_control(*control);
  if (const auto limits = root.find("limits")) read_limits(*limits, config);
  if (const auto times = root.find("exclusions")) read_exclusions(*times, config.exclusions);
  check_endpoints(root, config);
  return config;
}

// A daemon needs more of its devices than a plan does.
void check_devices(const JsonCursor& root, const BackendConfig& config) {
  if (!root.status().ok()) return;
  const std::vector<JsonCursor> places = root.required("devices").elements("a list of devices");
  const auto on_gpus = std::count_if(config.devices.begin(), config.devices.end(), is_on_gpu);
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    const DeviceConfig& device = config.devices[i];
    // Without a list, the one CPU device of a node has all the cores there are.
    if (device.partitioning == "cpu_quota" && device.cores.empty() && config.devices.size() > 1) {
      places[i].fail("a device partitioned by cpu_quota stands beside others and has no cores",
                     "add \"cores\", for example \"cores\":[0]");
    }
    // Likewise, the one entry of GPUs stands for the first of them.
    if (is_on_gpu(device) && device.gpu.empty() && on_gpus > 1) {
      places[i].fail("a device partitioned by " + device.partitioning +
                         " stands beside others on GPUs and says not which GPU it is",
                     "add \"gpu\", for example \"gpu\":0");
    }
    if (device.partitioning == "simulated" && config.profiles.empty()) {
      places[i].fail("a simulated device answers from the profile " + in_quotes(device.type) +
                         ", and this file names no profiles",
                     "add \"profiles\", the folder that holds it, at the top level");
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
  cursor.allow_keys({"factor", "floor_mb"});
  ProxyMemory memory;
  if (const auto factor = cursor.find("factor"))
    memory.factor = factor->number(between(1, kMostTimes));
  if (const auto floor = cursor.find("floor_mb")) memory.floor_mb = floor->count(1, kLargestCount);
  return memory;
}

BackendConfig read_backend(const JsonCursor& root, const std::filesystem::path& file) {
  root.allow_keys({"node", "frontend", "model_store", "profiles", "proxy", "warm_proxies",
                   "proxy_user", "hang_timeout_s", "hang_factor", "model_store_mb", "proxy_sandbox",
                   "proxy_environment", "proxy_memory", "tls", "devices"});
  BackendConfig config;
  config.node = root.required("node").name();
  if (const auto frontend = root.find("frontend")) config.frontend = read_endpoint(*frontend);
  config.model_store =
      resolve(file, root.required("model_store").text("the path of the folder to keep models in"));
  if (const auto profiles = root.find("profiles")) {
    config.profiles = resolve(file, profiles->text("the path of the folder of profiles"));
  }
  if (const auto proxy = root.find("proxy")) {
    config.proxy = resolve(file, proxy->text("the path of the gpulet-proxy program"));
  }
  if (const auto warm = root.find("warm_proxies"))
    config.warm_proxies = warm->count(0, kMostWarmProxies);
  if (const auto most = root.find("model_store_mb"))
    config.model_store_mb = most->count(1, kLargestCount);
  if (const auto user = root.find("proxy_user")) config.proxy_user = user->name();
  if (const auto hang = root.find("hang_timeout_s")) config.hang_timeout = read_seconds(*hang);
  if (const auto factor = root.find("hang_factor"))
    config.hang_factor = factor->number(between(1, 1000));
  if (const auto sandbox = root.find("proxy_sandbox"))
    config.proxy_sandbox = sandbox->choice({"off", "on"}) == 1;
  if (const auto names = root.find("proxy_environment"))
    config.proxy_environment = read_variables(*names);
  if (const auto memory = root.find("proxy_memory"))
    config.proxy_memory = read_proxy_memory(*memory);
  if (const auto tls = root.find("tls")) config.tls = read_mutual_tls(*tls, file);
  config.devices = read_devices(root.required("devices"));
  check_devices(root, config);
  return config;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  std::optional<Endpoint> endpoint = split_endpoint(text);
  if (endpoint) return *std::move(endpoint);
  return Status(StatusCode::invalid,
                in_quotes(text) + " is not an endpoint; " + std::string(kEndpointMend));
}

std::string to_string(const Endpoint& endpoint) {
  const bool needs_brackets = endpoint.host.find(':') != std::string::npos;
  const std::string host = needs_brackets ? '[' + endpoint.host + ']' : endpoint.host;
  return host + ':' + std::to_string(endpoint.port);
}

bool is_loopback(const Endpoint& endpoint) {
  return endpoint.host.starts_with("127.") || endpoint.host == "::1" ||
         endpoint.host == "localhost";
}

Result<FrontendConfig> parse_frontend(std::string_view text, const std::filesystem::path& file,
                                      std::vector<Status>* errors) {
  return parse_document(text, file, errors,
                        [&file](const JsonCursor& root) { return read_frontend(root, file); });
}

Result<BackendConfig> parse_backend(std::string_view text, const std::filesystem::path& file,
                                    std::vector<Status>* errors) {
  return parse_document(text, file, errors,
                        [&file](const JsonCursor& root) { return read_backend(root, file); });
}

Result<FrontendConfig> load_frontend(const std::filesystem::path& file) {
  return load_file(file, parse_frontend);
}

Result<BackendConfig> load_backend(const std::filesystem::path& file) {
  return load_file(file, parse_backend);
}

}  // namespace gpulet::config
