#include "gpulet/config/daemon_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/address.h"
#include "config/file_readers.h"
#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr std::uint32_t kLargestCount = 1U << 30U;
constexpr std::uint32_t kMostBufferedMegabytes = 1U << 20U;
constexpr std::uint32_t kMostWarmProxies = 64;
constexpr std::uint32_t kMostIoThreads = 16;
constexpr double kLongestGraceMs = 60000;
constexpr double kLongestGraceSeconds = 300;
constexpr double kLongestBudgetMs = 60000;
constexpr std::string_view kEndpointFix =
    "write host:port, for example 127.0.0.1:7000 or [::1]:7000";

// Mutual TLS needs the authority of the peers, too.
Reader tls(std::optional<TlsFiles>& field, bool mutual) {
  return [&field, mutual](const JsonCursor& cursor) {
    TlsFiles& files = field.emplace();
    ObjectReader reader(cursor);
    reader
        .required(
            "certificate",
            path(files.certificate, "the path of a certificate in PEM form, its chain after it"),
            "The certificate of this side.")
        .required("key", path(files.key, "the path of the certificate's private key in PEM form"),
                  "Its private key.");
    if (mutual) {
      reader.required("authority",
                      path(files.authority,
                           "the path of the PEM file with the certificate authority of the peers"),
                      "Signs the certificates of the peers.");
    }
    reader.read();
  };
}

TokenFiles read_tokens(const JsonCursor& cursor) {
  constexpr std::string_view kTokens = "the path of a file of tokens, one a line";
  TokenFiles files;
  ObjectReader(cursor)
      .optional(
          "admin", path(files.admin, kTokens),
          "For changes of models and of shared memory, and for traces. These tokens are valid "
          "for all other calls, too. Default: these calls need no token.")
      .optional("inference", path(files.inference, kTokens),
                "For inference. Default: it needs no token.")
      .optional("observe", path(files.observe, kTokens),
                "For the status, statistics, metrics and the dashboard. Default: they need no "
                "token.")
      .read();
  if (files == TokenFiles{})
    cursor.fail("names no file", "give \"admin\", \"inference\" or \"observe\", or leave it out");
  return files;
}

ClientLimits read_client_limits(const JsonCursor& cursor) {
  constexpr NumberRange kRate = up_to(1e9);
  ClientLimits limits;
  ObjectReader(cursor)
      .optional("requests_per_s", number(limits.requests_per_s, kRate),
                "Inferences per second; each row of a batch is one. Default: no limit.")
      .optional("device_ms_per_s", number(limits.device_ms_per_s, kRate),
                "Planned milliseconds of a whole device per second: 500 is half a device "
                "(docs/security.md, \"Limits of a client\"). Default: no limit.")
      .optional("max_requests", count(limits.max_requests, 1, kLargestCount),
                "Inferences in flight. Default: no limit.")
      .read();
  if (!limits.any()) cursor.fail("limits nothing", "give one of its keys, or leave it out");
  return limits;
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
      .optional("max_queue", count(config.max_queue, 1, kLargestCount),
                "Requests that wait for one model.")
      .optional("max_requests", count(config.max_requests, 1, kLargestCount),
                "Requests in flight, over all clients.")
      .optional("max_buffered_mb", count(config.max_buffered_mb, 1, kMostBufferedMegabytes),
                "Requests that are being received or in flight, over all clients.")
      .optional("max_connections", count(config.max_connections, 1, kLargestCount),
                "Connections of each port for clients.")
      .optional("max_connections_per_address",
                count(config.max_connections_per_address, 1, kLargestCount),
                "Those of one address; of IPv6, of one network of 64 bits.")
      .optional("max_payload_bytes", count(config.max_payload_bytes, 1, kLargestCount),
                "The largest request. Default: a full batch of the largest model.")
      .optional("min_bytes_per_second", count(config.min_bytes_per_second, 1, kLargestCount),
                "The lowest rate at which a frame or body must arrive, averaged over each "
                "`receive_grace_s`.")
      .optional("receive_grace_s", seconds(config.receive_grace, kSeconds),
                "The time over which that rate is averaged.")
      .optional("max_receive_s", seconds(config.max_receive, kSeconds),
                "For a whole frame or body.")
      .optional("first_message_s", seconds(config.first_message, kSeconds),
                "For the first message of a connection, with the TLS handshake. Silent connections "
                "are closed after it.")
      .optional("per_address", into(config.per_address, read_client_limits),
                "The limits of each address of clients. Default: none.")
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
      .optional("first_s", seconds(times.first, kSeconds),
                "After the first failure. Doubled after each further one.")
      .optional("longest_s", seconds(times.longest, kSeconds), "At most.")
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
          path(files.authority, "the path of the PEM file with the server's certificate authority"),
          "Signs the certificate of the server.")
      .optional("certificate",
                path(files.certificate, "the path of this side's certificate in PEM form"),
                "The certificate of this side. Default: none.")
      .optional("key", path(files.key, "the path of the certificate's private key in PEM form"),
                "Its private key. Required with `certificate`.")
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
      .optional("name", name(config.name),
                "The name of the cluster, the same on all of its frontends.")
      .optional("member", name(config.member),
                "This frontend's name, unlike those of the others. Default: the machine's.")
      .optional("address", into(config.address, read_address),
                "HOST:PORT at which clients reach this frontend; others name it in errors and the "
                "status. Default: the machine's name and the port of `listen`.")
      .optional("peer_listen", into(config.peer_listen, read_listen),
                "The port for other frontends.")
      .optional("peer_address", into(config.peer_address, read_address),
                "HOST:PORT at which they reach it. Default: `peer_listen`, with the machine's name "
                "unless it is on loopback.")
      .optional(
          "peer_tls", tls(config.peer_tls, true),
          "Mutual TLS between frontends: the certificate must name the member and the host of "
          "`peer_address`, for clients and servers. Default: no TLS.")
      .required("etcd", into(config.etcd, read_endpoints),
                "HOST:PORT of etcd's members. One is used at a time.")
      .optional("prefix",
                into(config.prefix,
                     [](const JsonCursor& prefix) {
                       return prefix.text("the prefix of keys, such as \"/gpulet/main/\"");
                     }),
                "Of the cluster's keys in etcd. Ends with `/`. Default: `/gpulet/NAME/`.")
      .optional("lease_s", seconds(config.lease, between(kShortestLeaseS, kLongestLeaseS)),
                "How long the others wait for a frontend that is silent.")
      .optional("settling_s", seconds(config.settling, between(0, kLongestLeaseS)),
                "How long a frontend must have been there before it gets gpulets of others.")
      .optional("max_group_rate", number(config.max_group_rate, at_least(1)),
                "A group with more planned requests per second gets several owners "
                "(docs/cluster.md, \"Owners\").")
      .optional("model_store",
                path(config.model_store, "the path of a folder for model files of other frontends"),
                "Keeps model files of other frontends. Default: `models-of-cluster` in systemd's "
                "`StateDirectory`, or else `~/.cache/gpulet/models`.")
      .optional("user", name(config.user),
                "etcd's user, which needs to read and write the prefix. Default: none.")
      .optional("password_file", path(config.password_file, "the path of a file with the password"),
                "The user's password, which only the owner of the file can read. Required with "
                "`user`.")
      .optional("tls", into(config.tls, read_client_tls), "TLS to etcd. Default: no TLS.")
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
      .optional("cache", path(config.cache, "the path of a folder for model files of stores"),
                "The folder with the copies. Frontends may share one. Default: `models-of-stores` "
                "in systemd's `StateDirectory`, or else `~/.cache/gpulet/stores`.")
      .optional("cache_mb", count(config.cache_mb, 1, kLargestCount),
                "Its size. The least recently used files without a model go first. Default: the "
                "disk's.")
      .optional("largest_file_mb", count(config.largest_file_mb, 1, kMostBufferedMegabytes),
                "Larger files are refused.")
      .optional("poll_s", seconds(config.poll, between(kShortestPollS, kSeconds.most)),
                "How often to look for a new version.")
      .optional("connect_s", seconds(config.connect, kSeconds),
                "How long to wait for a connection.")
      .optional("stall_s", seconds(config.stall, between(1, kSeconds.most)),
                "A transfer that is slower than `min_bytes_per_second` for so long is broken off. "
                "The next attempt goes on where it ended.")
      .optional("min_bytes_per_second", count(config.min_bytes_per_second, 1, kLargestCount),
                "The lowest rate of a transfer.")
      .optional("fetch_s", seconds(config.fetch, between(1, kSeconds.most)),
                "The longest transfer. The next attempt goes on where it ended.")
      .optional("retry_s", seconds(config.first_retry, between(kShortestPollS, kSeconds.most)),
                "The pause after a failure. Doubled after each further one in a row.")
      .optional("longest_retry_s",
                seconds(config.longest_retry, between(kShortestPollS, kSeconds.most)),
                "The longest of these pauses.")
      .optional("redirects", count(config.redirects, 0, kMostRedirects),
                "How many are followed. Never from `https` to `http`, to a private address that is "
                "none of the store's kind, or of S3.")
      .optional(
          "authority",
          path(config.authority, "the path of the PEM file with the authorities of the stores"),
          "Signs the certificates of the stores. Default: the system's authorities.")
      .read();
  if (config.longest_retry < config.first_retry)
    cursor.fail("has a longest_retry_s below retry_s", "raise it, or lower retry_s");
  return config;
}

}  // namespace

FrontendConfig read_frontend(const JsonCursor& root) {
  FrontendConfig config;
  const auto limits = [&config](const JsonCursor& cursor) { read_limits(cursor, config); };
  ObjectReader(root)
      .optional("listen", into(config.listen, read_listen),
                "The port for clients with the stream protocol.")
      .optional("backend_listen", into(config.backend_listen, read_listen),
                "The port for backends.")
      .optional("http", into(config.http, read_listen_or_off),
                "The port of the Open Inference Protocol over HTTP.")
      .optional("grpc", into(config.grpc, read_listen_or_off), "That protocol over gRPC.")
      .optional("metrics", into(config.metrics, read_listen_or_off),
                "The port of the metrics for Prometheus and of the dashboard.")
      .optional("io_threads", count(config.io_threads, 0, kMostIoThreads),
                "Threads for connections of clients over the stream protocol and HTTP. 0: they run "
                "on the engine's thread. Default: half of the machine's cores, at most 8; 0 where "
                "there are fewer than 4.")
      .optional("shared_memory", choice(config.shared_memory, {"off", "on"}),
                "Clients may register shared memory of this machine.")
      .optional("synthetic_inputs", boolean(config.synthetic_inputs),
                "For experiments: clients of the stream protocol may send requests without bytes, "
                "whose inputs the models' processes make (--synthetic-inputs of `gpulet load`).")
      .optional("local_socket", choice(config.local_socket, {"off", "on"}),
                "A backend of this machine goes on over a Unix socket and reads requests from "
                "memory that the frontend shares with it. Off: TCP.")
      .required("models", path(config.models, "the path of the models file"),
                "The models and applications to serve.")
      .required("profiles", path(config.profiles, "the path of the folder of profiles"),
                "The measured latencies of the models.")
      .optional("policy", into(config.policy, read_policy),
                "How plans are made (docs/scheduling.md, \"Policies\"). `inss:FILE` names the file "
                "of a trained network.")
      .optional("plan_budget_ms", number(config.plan_budget_ms, between(0, kLongestBudgetMs)),
                "The time that the policy `auto` may take for a plan.")
      .optional("margin", number(config.margin, between(1, 10)),
                "A factor on all latencies. Default: 1 where the profile has the spread of the "
                "model's latencies, otherwise 1.03.")
      .optional("interference",
                choice(config.interference, {"linear", "learned", "measured", "inss", "none"}),
                "How plans predict that models slow each other down (docs/interference.md). "
                "Default: `learned` where the profiles have a fit.")
      .optional("feedback", choice(config.feedback, {"off", "on"}),
                "Plans follow what batches really take.")
      .optional("estimates", choice(config.estimates, {"off", "on"}),
                "Serves models without a profile by estimates.")
      .optional("headroom", choice(config.headroom, {"poisson", "none"}),
                "Capacity beyond the mean rates: what random arrivals need, or none.")
      .optional("use_spare", boolean(config.use_spare),
                "Enlarges gpulets into share of their devices that no gpulet needs.")
      .optional("verify", boolean(config.verify),
                "Plans again until 99 % of the requests are predicted to be in time.")
      .optional("period_s", seconds(config.period, kSeconds), "How often to plan.")
      .optional("drain_timeout_s", seconds(config.drain_timeout, kSeconds),
                "For requests in flight at SIGTERM.")
      .optional("drain_grace_s", seconds(config.drain_grace, between(0, kLongestGraceSeconds)),
                "Before that, how long it still accepts requests although it is not ready: load "
                "balancers need time to notice. Shorter where nobody is connected.")
      .optional("idle_after_s", seconds(config.idle_after, between(0, kSeconds.most)),
                "A model without a request for so long releases its gpulets. 0: never.")
      .optional("load_timeout_s", seconds(config.load_timeout, kSeconds),
                "For a model to load and to run for the first time, besides the time for its file. "
                "Backends have the same bound for their processes.")
      .optional("wake_within_s", seconds(config.wake_within, kSeconds),
                "How long a request waits for an idle model.")
      .optional("trace_every", count(config.trace_every, 0, kLargestCount),
                "Traces every Nth request. 0: only on request (docs/tracing.md).")
      .optional("tls", tls(config.tls, false),
                "TLS of the ports for clients: `listen`, `http`, `grpc` and `metrics`. Default: no "
                "TLS.")
      .optional("backend_tls", tls(config.backend_tls, true),
                "Mutual TLS of `backend_listen`. Default: no TLS.")
      .optional(
          "tokens", into(config.tokens, read_tokens),
          "Files of the tokens that calls need (docs/security.md, \"Tokens\"). Default: none.")
      .optional("control", into(config.control, read_control),
                "Control of CPU cores (docs/control.md). The same keys make up the file of "
                "option `--control` of `gpulet simulate`.")
      .optional("limits", limits, "Beyond a limit, requests are refused or connections closed.")
      .optional("exclusions", into(config.exclusions, read_exclusions),
                "How long a node or a device takes no new gpulets after a failure.")
      .optional("model_root", path(config.model_root, "the path of a folder of model files"),
                "The folder below which clients may name model files. Default: the folders of the "
                "models in the models file.")
      .optional("model_format",
                choice(config.model_format, {"known", "torchscript", "native", "any"}),
                "What a model file may be: TorchScript or ONNX; TorchScript; these or a package of "
                "AOTInductor; anything, for frontends whose devices are all simulated.")
      .optional("late_grace_ms", milliseconds(config.late_grace, between(0, kLongestGraceMs)),
                "How long after its objective a result is still delivered. It counts as late.")
      .optional("audit_log", path(config.audit_log, "the path of the audit log"),
                "One JSON object for each call that changes something. Default: in the daemon's "
                "log.")
      .optional("summary_latencies", choice(config.summary_latencies, {"off", "on"}),
                "Also exports latencies as summaries (docs/metrics.md).")
      .optional("cluster", into(config.cluster, read_cluster),
                "Several frontends that share the backends (docs/cluster.md). Default: this is the "
                "only frontend.")
      .optional(
          "remote_stores", into(config.remote_stores, read_remote_stores),
          "How model files whose `file` is a URL are fetched (docs/guide.md, \"Model files from "
          "a store\").")
      .read();
  check_endpoints(root, config);
  config.named_files = root.named_files();
  return config;
}

namespace {

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
  if (cursor.type() == JsonCursor::Type::text) {
    static_cast<void>(cursor.choice({"off"}));
    return std::nullopt;
  }
  ProxyMemory memory;
  ObjectReader(cursor)
      .optional("factor", number(memory.factor, between(1, kMostTimes)),
                "Times the profiled memory of its models.")
      .optional("floor_mb", count(memory.floor_mb, 1, kLargestCount), "At least.")
      .read();
  return memory;
}

Parking read_parking(const JsonCursor& cursor) {
  Parking parking;
  ObjectReader(cursor)
      .required("memory_mb", count(parking.memory_mb, 0, kLargestCount),
                "Of the models in parked processes, on each device. 0: none is kept.")
      .optional("load_ahead", choice(parking.load_ahead, {"off", "on"}),
                "Also loads processes at the sizes beside those of running gpulets.")
      .read();
  return parking;
}

}  // namespace

BackendConfig read_backend(const JsonCursor& root) {
  BackendConfig config;
  const auto only_frontend = [&config](const JsonCursor& at) {
    config.frontends = {read_endpoint(at)};
  };
  const auto frontends = [&config](const JsonCursor& at) { config.frontends = read_endpoints(at); };
  ObjectReader(root)
      .required("node", name(config.node), "The name of this node.")
      .optional("frontend", Reader(only_frontend, as_json(config.frontends.front())),
                "The port of a frontend for backends.")
      .optional("frontends", frontends,
                "Those of all frontends of a cluster, in place of `frontend`.")
      .required("model_store", path(config.model_store, "the path of the folder to keep models in"),
                "Keeps the model files that frontends send.")
      .optional("profiles", path(config.profiles, "the path of the folder of profiles"),
                "Required where a device is simulated.")
      .optional("proxy", path(config.proxy, "the path of the gpulet-proxy program"),
                "The proxy program of all models. Default: beside the backend, `gpulet-proxy-onnx` "
                "for gpulets of ONNX models, else `gpulet-proxy`.")
      .optional(
          "warm_proxies", count(config.warm_proxies, 0, kMostWarmProxies),
          "Processes of each proxy program that are started ahead of demand, of "
          "`gpulet-proxy-onnx` from its first gpulet on. Each takes the memory of the program "
          "without a model: LibTorch 230 MB, ONNX Runtime 25 MB.")
      .optional("proxy_user", name(config.proxy_user),
                "The user of the proxies where the backend runs as root. Default: `gpulet` if that "
                "user exists, else `nobody`.")
      .optional(
          "load_timeout_s", seconds(config.load_timeout, kSeconds),
          "For a process to load one model and to run it for the first time, besides the time "
          "for its file. A process that takes longer is killed, and the model counts as one "
          "that cannot be loaded.")
      .optional(
          "hang_timeout_s", seconds(config.hang_timeout, kSeconds),
          "A process hangs where it has not responded for so long and for `hang_factor` times "
          "the expected duration of its batch. It is killed and started again.")
      .optional("hang_factor", number(config.hang_factor, between(1, 1000)),
                "See `hang_timeout_s`.")
      .optional("model_store_mb", count(config.model_store_mb, 1, kLargestCount),
                "The size of `model_store`. The least recently used files that no gpulet uses go "
                "first. Default: the disk's.")
      .optional("proxy_sandbox", choice(config.proxy_sandbox, {"off", "on"}),
                "Proxies filter their system calls and have no network.")
      .optional("onnxruntime", path(config.onnxruntime, "the path of ONNX Runtime's library"),
                "Runs ONNX models. Default: that of `GPULET_ONNXRUNTIME`, or as programs find it.")
      .optional("native_models", choice(config.native_models, {"off", "on"}),
                "Proxies run packages of AOTInductor (`.pt2`), which are native code.")
      .optional("local_socket", choice(config.local_socket, {"off", "on"}),
                "Takes the offer of a frontend of this machine to go on over its Unix socket. Off: "
                "TCP.")
      .optional("proxy_environment", into(config.proxy_environment, read_variables),
                "Names of environment variables that proxies get in addition to the usual ones "
                "(docs/deploy.md, \"Restrictions of proxies\"). Default: none.")
      .optional(
          "proxy_memory", into(config.proxy_memory, read_proxy_memory),
          "The memory limit of a gpulet's process on a device of `cpu_quota`, where the "
          "memory controller of cgroups is available; at most the device's memory. `\"off\"`: "
          "no limit.")
      .optional("parking", into(config.parking, read_parking),
                "Keeps processes loaded when their gpulets end, for later gpulets of the same "
                "models and share, on devices of `mps` and `cpu_quota`. Default: none is kept.")
      .optional("tls", tls(config.tls, true), "Mutual TLS to the frontends. Default: no TLS.")
      .required("devices", into(config.devices, read_devices), "The devices of this node.")
      .read();
  if (root.find("frontend") && root.find("frontends"))
    root.fail("has both \"frontend\" and \"frontends\"", "remove \"frontend\"");
  check_devices(root, config);
  return config;
}

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

Result<FrontendConfig> parse_frontend(std::string_view text, const std::filesystem::path& file,
                                      std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_frontend);
}

Result<BackendConfig> parse_backend(std::string_view text, const std::filesystem::path& file,
                                    std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_backend);
}

Result<FrontendConfig> load_frontend(const std::filesystem::path& file) {
  return load_file(file, parse_frontend);
}

Result<BackendConfig> load_backend(const std::filesystem::path& file) {
  return load_file(file, parse_backend);
}

}  // namespace gpulet::config
