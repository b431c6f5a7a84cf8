// frontend.json and backend.json: how the two daemons run; and the control of model instances on
// GPUs and CPU cores (docs/control.md), which is the object "control" of frontend.json and the
// whole file of `gpulet simulate --control F`. docs/configuration.md has the keys.
//
// A member has the name of its key, durations without the unit; its initialiser is the default. The
// readers have the bounds and the help texts (config/reading.h). Comments here say what a value
// stands for that no file states, such as an empty path. Errors as in model_config.h. Values; any
// thread. The load_* functions do blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/control/node_control.h"

namespace gpulet::config {

struct Endpoint {
  std::string host;        // an address or a name
  std::uint16_t port = 0;  // 0: any free port (tests)
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "127.0.0.1:7000", "[::1]:7000", "node7:7000".
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
// True where only this machine can connect: 127.x.y.z, ::1 or localhost.
[[nodiscard]] bool is_loopback(const Endpoint& endpoint);

// PEM files. Empty: not configured.
struct TlsFiles {
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path authority;

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Files of tokens (format: access/tokens.h). Empty: these calls need no token.
struct TokenFiles {
  std::filesystem::path admin;
  std::filesystem::path inference;
  std::filesystem::path observe{};

  friend bool operator==(const TokenFiles&, const TokenFiles&) = default;
};

// The limits of one client. Zero: no limit.
struct ClientLimits {
  double requests_per_s = 0;
  double device_ms_per_s = 0;
  std::uint32_t max_requests = 0;

  [[nodiscard]] bool any() const {
    return requests_per_s > 0 || device_ms_per_s > 0 || max_requests > 0;
  }
  friend bool operator==(const ClientLimits&, const ClientLimits&) = default;
};

// The backoff of a node or a device after a failure, during which it takes no new gpulets.
struct ExclusionTimes {
  Duration first = std::chrono::seconds(5);
  Duration longest = std::chrono::seconds(300);
};

// Several frontends that share the backends (docs/cluster.md).
struct ClusterConfig {
  std::string name = "gpulet";
  std::string member;   // empty: the machine's name
  std::string address;  // empty: the machine's name and `listen`
  Endpoint peer_listen{"127.0.0.1", 7003};
  // Empty: `peer_listen`, with the machine's name unless it is on loopback.
  std::string peer_address;
  std::optional<TlsFiles> peer_tls;
  std::vector<Endpoint> etcd;  // at least one
  std::string prefix;          // empty: /gpulet/NAME/
  Duration lease = std::chrono::seconds(5);
  Duration settling = std::chrono::seconds(5);  // serve::FrontendOptions::owner_settling
  double max_group_rate = 50000;                // serve::FrontendOptions::max_group_rate
  std::filesystem::path model_store;            // empty: a folder of the user or the service
  std::string user;                             // empty: none
  std::filesystem::path password_file;
  std::optional<TlsFiles> tls;  // certificate and key may be empty
};

// How a frontend fetches the model files whose "file" is a URL (docs/guide.md).
struct RemoteStoresConfig {
  std::filesystem::path cache;  // empty: a folder of the user or the service
  std::uint32_t cache_mb = 0;   // 0: the disk's
  std::uint32_t largest_file_mb = 16384;
  Duration poll = std::chrono::seconds(60);
  Duration connect = std::chrono::seconds(10);
  std::uint32_t min_bytes_per_second = 1024;
  Duration stall = std::chrono::seconds(30);
  Duration fetch = std::chrono::seconds(3600);
  Duration first_retry = std::chrono::seconds(1);
  Duration longest_retry = std::chrono::seconds(300);
  std::uint32_t redirects = 5;
  std::filesystem::path authority;  // empty: the system's
  friend bool operator==(const RemoteStoresConfig&, const RemoteStoresConfig&) = default;
};

struct FrontendConfig {
  Endpoint listen{"127.0.0.1", 7000};
  Endpoint backend_listen{"127.0.0.1", 7001};
  // Empty: off.
  std::optional<Endpoint> http = Endpoint{"127.0.0.1", 8000};
  std::optional<Endpoint> grpc = Endpoint{"127.0.0.1", 8001};
  std::optional<Endpoint> metrics = Endpoint{"127.0.0.1", 8002};
  std::optional<std::uint32_t> io_threads;  // empty: half of the cores, at most 8; 0 below 4 cores
  bool shared_memory = false;
  bool synthetic_inputs = false;
  bool local_socket = true;
  bool summary_latencies = false;
  std::uint32_t trace_every = 0;
  std::optional<TlsFiles> tls;
  std::optional<TlsFiles> backend_tls;
  TokenFiles tokens;
  std::filesystem::path audit_log;  // empty: the daemon's log
  std::filesystem::path models;
  std::optional<std::filesystem::path> model_root;  // empty: the folders of the models
  ModelFormat model_format = ModelFormat::known;
  std::filesystem::path profiles;
  std::string policy = "auto";
  double plan_budget_ms = 200;
  std::optional<double> margin;             // empty: schedule::margin_of()
  std::optional<std::string> interference;  // empty: learned where the profiles have a fit
  bool feedback = true;
  bool estimates = true;
  std::string headroom = "poisson";
  bool use_spare = true;
  bool verify = true;
  Duration period = std::chrono::seconds(20);
  Duration drain_timeout = std::chrono::seconds(10);
  Duration drain_grace = std::chrono::seconds(5);
  Duration idle_after = std::chrono::seconds(300);
  Duration load_timeout = std::chrono::seconds(60);
  Duration wake_within = std::chrono::seconds(10);
  Duration late_grace = std::chrono::milliseconds(20);
  control::Options control;
  ExclusionTimes exclusions;
  // The object "limits".
  std::uint32_t max_queue = 4096;
  std::uint32_t max_requests = 65536;
  std::uint32_t max_buffered_mb = 2048;
  std::uint32_t max_connections = 4096;
  std::uint32_t max_connections_per_address = 1024;
  std::optional<std::uint32_t> max_payload_bytes;  // empty: a full batch of the largest model
  std::uint32_t min_bytes_per_second = 16U << 10U;
  Duration receive_grace = std::chrono::seconds(10);
  Duration max_receive = std::chrono::seconds(120);
  Duration first_message = std::chrono::seconds(10);
  ClientLimits per_address;

  std::optional<ClusterConfig> cluster;  // empty: the only frontend
  RemoteStoresConfig remote_stores;
  // The configuration's file, and every file and folder that a key of it names. Nothing of it is a
  // model, so no client may have it read as one.
  std::vector<std::filesystem::path> named_files{};
};

// The memory limit of a gpulet's process on a CPU device.
struct ProxyMemory {
  double factor = 3;
  std::uint32_t floor_mb = 1024;
  friend bool operator==(const ProxyMemory&, const ProxyMemory&) = default;
};

// Processes that keep their models loaded when their gpulets end. For devices on which another
// share needs another process ("mps", "cpu_quota").
struct Parking {
  std::uint32_t memory_mb = 0;  // 0: none is kept
  bool load_ahead = false;
  friend bool operator==(const Parking&, const Parking&) = default;
};

struct BackendConfig {
  std::string node;
  std::vector<Endpoint> frontends{{"127.0.0.1", 7001}};  // at least one
  std::filesystem::path model_store;
  std::uint32_t model_store_mb = 0;  // 0: the disk's
  std::filesystem::path profiles;    // empty without simulated devices
  std::filesystem::path proxy;       // empty: the programs beside the backend
  std::uint32_t warm_proxies = 2;
  std::string proxy_user;  // empty: gpulet if that user exists, else nobody
  Duration load_timeout = std::chrono::seconds(60);
  Duration hang_timeout = std::chrono::seconds(3);
  double hang_factor = 5;
  bool proxy_sandbox = true;
  bool native_models = false;
  bool local_socket = true;
  std::filesystem::path onnxruntime;  // empty: of GPULET_ONNXRUNTIME, or as programs find it
  std::vector<std::string> proxy_environment;
  std::optional<ProxyMemory> proxy_memory = ProxyMemory{};  // empty: no limit
  Parking parking;
  std::optional<TlsFiles> tls;
  std::vector<DeviceConfig> devices;
};

[[nodiscard]] Result<FrontendConfig> load_frontend(const std::filesystem::path& file);
[[nodiscard]] Result<BackendConfig> load_backend(const std::filesystem::path& file);
[[nodiscard]] Result<control::Options> load_control(const std::filesystem::path& file);

// Parse text in memory. `file` names the text in errors and is the base of its relative paths. With
// `errors`, they store all errors there and return what could be read.
[[nodiscard]] Result<FrontendConfig> parse_frontend(std::string_view text,
                                                    const std::filesystem::path& file,
                                                    std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<BackendConfig> parse_backend(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<control::Options> parse_control(std::string_view text,
                                                     const std::filesystem::path& file,
                                                     std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
