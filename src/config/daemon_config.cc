#include "gpulet/config/daemon_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr const char* kCertificate = "the path of a certificate in PEM form, its chain after it";
constexpr const char* kKey = "the path of the certificate's private key in PEM form";
constexpr const char* kAuthority =
    "the path of the PEM file with the certificate authority of the peers";
constexpr const char* kTokens = "the path of a file of tokens, one a line";

TlsFiles read_tls(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"certificate", "key"});
  return {resolve(file, cursor.required("certificate").text(kCertificate)),
          resolve(file, cursor.required("key").text(kKey)),
          {}};
}

TlsFiles read_mutual_tls(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"certificate", "key", "authority"});
  return {resolve(file, cursor.required("certificate").text(kCertificate)),
          resolve(file, cursor.required("key").text(kKey)),
          resolve(file, cursor.required("authority").text(kAuthority))};
}

TokenFiles read_tokens(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"admin", "inference", "observe"});
  TokenFiles files;
  if (const auto admin = cursor.find("admin")) files.admin = resolve(file, admin->text(kTokens));
  if (const auto inference = cursor.find("inference"))
    files.inference = resolve(file, inference->text(kTokens));
  if (const auto observe = cursor.find("observe"))
    files.observe = resolve(file, observe->text(kTokens));
  if (files == TokenFiles{})
    cursor.fail("names no file", "give \"admin\", \"inference\" or \"observe\", or leave it out");
  return files;
}

ClientLimits read_client_limits(const JsonCursor& cursor) {
  constexpr double kLargestRate = 1e9;
  constexpr std::uint32_t kMostRequests = 1U << 30U;
  cursor.allow_keys({"requests_per_s", "device_ms_per_s", "max_requests"});
  const NumberRange rate{.least = 0, .most = kLargestRate, .above_least = true};
  ClientLimits limits;
  if (const auto requests = cursor.find("requests_per_s"))
    limits.requests_per_s = requests->number(rate);
  if (const auto device = cursor.find("device_ms_per_s"))
    limits.device_ms_per_s = device->number(rate);
  if (const auto most = cursor.find("max_requests"))
    limits.max_requests = most->count(1, kMostRequests);
  if (!limits.any()) cursor.fail("limits nothing", "give one of its keys, or leave it out");
  return limits;
}

constexpr double kLongestPeriodSeconds = 3600;
constexpr double kLongestPatienceSeconds = 86400;
constexpr double kMostCores = 4096;
constexpr double kHighestPole = 0.999;
constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53U;

void read_number(const JsonCursor& cursor, std::string_view key, const NumberRange& range,
                 double& number) {
  if (const auto found = cursor.find(key)) number = found->number(range);
}

void read_seconds(const JsonCursor& cursor, std::string_view key, double most, Duration& duration) {
  if (const auto found = cursor.find(key)) {
    duration = from_seconds(found->number({.least = 0, .most = most, .above_least = true}));
  }
}

void read_rules(const JsonCursor& cursor, control::Options& options) {
  constexpr std::array kGpuRules{control::GpuRule::need, control::GpuRule::round_robin};
  constexpr std::array kCoreRules{control::CoreRule::feedback, control::CoreRule::steps,
                                  control::CoreRule::all, control::CoreRule::least};
  if (const auto rule = cursor.find("gpu")) {
    options.gpu = kGpuRules[rule->choice({"need", "round-robin"})];
  }
  if (const auto rule = cursor.find("cores")) {
    options.cores = kCoreRules[rule->choice({"feedback", "steps", "all", "least"})];
  }
  if (const auto spill = cursor.find("spill")) options.spill = spill->boolean();
}

control::Options read_control(const JsonCursor& cursor) {
  constexpr NumberRange kPart{.least = 0, .most = 1, .above_least = true};
  cursor.allow_keys({"gpu", "cores", "set_point", "queued_weight", "surplus", "gpu_cores",
                     "least_cores", "pole", "period_s", "steps_period_s", "percentile",
                     "patience_s", "seed", "spill"});
  control::Options options;
  read_rules(cursor, options);
  read_number(cursor, "set_point", kPart, options.set_point);
  read_number(cursor, "queued_weight", between(0, 1), options.queued_weight);
  read_number(cursor, "surplus", between(0, 1), options.surplus);
  read_number(cursor, "gpu_cores", between(0, kMostCores), options.gpu_cores);
  read_number(cursor, "least_cores", {.least = 0, .most = kMostCores, .above_least = true},
              options.least_cores);
  read_number(cursor, "pole", between(0, kHighestPole), options.pole);
  read_seconds(cursor, "period_s", kLongestPeriodSeconds, options.period);
  read_seconds(cursor, "steps_period_s", kLongestPeriodSeconds, options.steps_period);
  read_seconds(cursor, "patience_s", kLongestPatienceSeconds, options.patience);
  if (const auto percentile = cursor.find("percentile")) {
    options.percentile =
        percentile->number({.least = 0, .most = kHighestPole, .above_least = true});
  }
  if (const auto seed = cursor.find("seed")) {
    options.seed = static_cast<std::uint64_t>(seed->integer(0, kLargestSeed));
  }
  return options;
}

constexpr std::uint32_t kLargestCount = 1U << 30U;
constexpr std::uint32_t kMostBufferedMegabytes = 1U << 20U;
constexpr std::uint32_t kMostWarmProxies = 64;
constexpr double kLongestSeconds = 86400;
constexpr double kLongestGraceMs = 60000;
constexpr std::string_view kEndpointFix =
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

// Two ports cannot share an endpoint.
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

// A policy's name, or a name and its file: "inss:FILE".
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

// What a daemon must know about its devices beyond what a plan needs.
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
      places[i].fail("a device partitioned by " + device.partitioning +
                         " does not say which GPU it is, and the node has other GPU entries",
                     "add \"gpu\", for example \"gpu\":0");
    }
    if (device.partitioning == "simulated" && config.profiles.empty()) {
      places[i].fail("a simulated device needs the profile " + in_quotes(device.type) +
                         ", and this file names no profiles",
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
                in_quotes(text) + " is not an endpoint; " + std::string(kEndpointFix));
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

Result<control::Options> parse_control(std::string_view text, const std::filesystem::path& file,
                                       std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_control);
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
