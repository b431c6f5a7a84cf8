// frontend.json and backend.json: how the two daemons run. docs/guide.md explains the common keys,
// docs/security.md those of TLS, tokens and limits, docs/control.md those of "control".
//
// frontend: {"listen":"127.0.0.1:7000","backend_listen":"127.0.0.1:7001","http":"127.0.0.1:8000",
//            "grpc":"127.0.0.1:8001","metrics":"127.0.0.1:8002","models":"models.json",
//            "profiles":"../profiles","policy":"auto","margin":1.03,"interference":"combined",
//            "headroom":"poisson","feedback":"on","estimates":"on","use_spare":true,"verify":true,
//            "period_s":20,"drain_grace_s":5,"drain_timeout_s":10,"idle_after_s":300,
//            "load_timeout_s":60,"wake_within_s":10,"late_grace_ms":20,
//            "shared_memory":"off",
//            "model_root":"../models","model_format":"known",
//            "summary_latencies":"off","trace_every":0,"control":{ see control_config.h },
//            "tls":{"certificate":"frontend.pem","key":"frontend.key"},
//            "backend_tls":{"certificate":"frontend.pem","key":"frontend.key","authority":"ca.pem"},
//            "tokens":{"admin":"admin.tokens","inference":"inference.tokens",
//                      "observe":"observe.tokens"},
//            "audit_log":"/var/log/gpulet/audit.jsonl",
//            "limits":{"max_queue":4096,"max_requests":65536,"max_buffered_mb":2048,
//                      "max_connections":4096,"max_connections_per_address":1024,
//                      "max_payload_bytes":67108864,"min_bytes_per_second":16384,
//                      "receive_grace_s":10,"max_receive_s":120,"first_message_s":10,
//                      "per_address":{"requests_per_s":1000,"device_ms_per_s":500,
//                                     "max_requests":256}},
//            "exclusions":{"first_s":5,"longest_s":300},
//            "remote_stores":{"cache":"/var/cache/gpulet/remote","cache_mb":20480,
//                             "largest_file_mb":16384,"poll_s":60,"connect_s":10,"stall_s":30,
//                             "min_bytes_per_second":1024,"fetch_s":3600,"retry_s":1,
//                             "longest_retry_s":300,"redirects":5,"authority":"ca.pem"}}
// backend:  {"node":"n0","frontend":"127.0.0.1:7001","model_store":"../build/store/n0",
//            "profiles":"../profiles","proxy":"../build/bin/gpulet-proxy","warm_proxies":2,
//            "proxy_user":"nobody","load_timeout_s":60,"hang_timeout_s":3,"hang_factor":5,
//            "model_store_mb":20480,
//            "proxy_sandbox":"on","native_models":"off","proxy_environment":["NAME"],
//            "proxy_memory":{"factor":3,"floor_mb":1024},
//            "parking":{"memory_mb":4096,"load_ahead":"on"},
//            "tls":{"certificate":"n0.pem","key":"n0.key","authority":"ca.pem"},
//            "devices":[ as in a node of a cluster file ]}
//
// A frontend requires `models` and `profiles`; a backend requires `node`, `model_store` and
// `devices`, and `profiles` where a device is simulated. `cores` is required where a cpu_quota
// device is not the node's only device, and `gpu` where there are several GPU entries. Paths are
// relative to the JSON file. `http`, `grpc` and `metrics` may be "off". Errors as in
// model_config.h. Values; any thread. The load_* functions do blocking file I/O.
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
#include "gpulet/control/options.h"

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
  std::filesystem::path certificate;  // the chain, with this side's certificate first
  std::filesystem::path key;          // of this side's certificate
  std::filesystem::path authority;    // signs the peer's certificates

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Files of tokens (format: net/tokens.h). Empty: these calls need no token. An admin token is valid
// for the other calls, too.
struct TokenFiles {
  std::filesystem::path admin;      // changes of models and shared memory, traces
  std::filesystem::path inference;  // inference
  std::filesystem::path observe{};  // status, statistics, metrics, dashboard

  friend bool operator==(const TokenFiles&, const TokenFiles&) = default;
};

// The limits of one client. Zero: no limit.
struct ClientLimits {
  double requests_per_s = 0;       // rows of inferences
  double device_ms_per_s = 0;      // planned time of a whole device
  std::uint32_t max_requests = 0;  // in flight

  [[nodiscard]] bool any() const {
    return requests_per_s > 0 || device_ms_per_s > 0 || max_requests > 0;
  }
  friend bool operator==(const ClientLimits&, const ClientLimits&) = default;
};

// The backoff of a node or a device after a failure, during which it takes no new gpulets: `first`,
// doubled after each further failure, at most `longest`.
struct ExclusionTimes {
  Duration first = std::chrono::seconds(5);
  Duration longest = std::chrono::seconds(300);
};
// Several frontends that share the backends (docs/cluster.md).
struct ClusterConfig {
  std::string name = "gpulet";
  std::string member;   // this frontend's name in it; empty: the machine's
  std::string address;  // for clients, as others name it; empty: the machine's and `listen`
  Endpoint peer_listen{"127.0.0.1", 7003};  // other frontends
  // For other frontends. Empty: `peer_listen`, with the machine's name unless it is on loopback.
  std::string peer_address;
  std::optional<TlsFiles> peer_tls;  // peer_listen, mutual
  std::vector<Endpoint> etcd;        // at least one
  std::string prefix;                // of the keys in etcd; empty: /gpulet/NAME/
  Duration lease = std::chrono::seconds(5);
  Duration settling = std::chrono::seconds(5);  // serve::FrontendOptions::owner_settling
  double max_group_rate = 50000;                // serve::FrontendOptions::max_group_rate
  // Keeps model files of other frontends. Empty: a folder of the user or the service.
  std::filesystem::path model_store;
  std::string user;  // empty: none
  std::filesystem::path password_file;
  std::optional<TlsFiles> tls;  // to etcd; certificate and key may be empty
};
// How a frontend fetches the model files whose "file" is a URL (docs/guide.md).
struct RemoteStoresConfig {
  std::filesystem::path cache;  // keeps the files; empty: a folder of the user or the service
  std::uint32_t cache_mb = 0;   // its capacity; 0: the disk's
  std::uint32_t largest_file_mb = 16384;
  Duration poll = std::chrono::seconds(60);     // between looks for a new version
  Duration connect = std::chrono::seconds(10);  // to wait for a connection
  // A fetch fails where fewer bytes a second arrive for `stall`, or where it takes longer than
  // `fetch`. The next attempt goes on where it ended.
  std::uint32_t min_bytes_per_second = 1024;
  Duration stall = std::chrono::seconds(30);
  Duration fetch = std::chrono::seconds(3600);
  // The pause after a failure: `first_retry`, doubled after each further one up to `longest_retry`.
  Duration first_retry = std::chrono::seconds(1);
  Duration longest_retry = std::chrono::seconds(300);
  std::uint32_t redirects = 5;      // that are followed at most
  std::filesystem::path authority;  // certificates of stores; empty: the system's
  friend bool operator==(const RemoteStoresConfig&, const RemoteStoresConfig&) = default;
};

struct FrontendConfig {
  Endpoint listen{"127.0.0.1", 7000};          // clients
  Endpoint backend_listen{"127.0.0.1", 7001};  // backends
  // The Open Inference Protocol and metrics. Empty: off.
  std::optional<Endpoint> http = Endpoint{"127.0.0.1", 8000};
  std::optional<Endpoint> grpc = Endpoint{"127.0.0.1", 8001};
  std::optional<Endpoint> metrics = Endpoint{"127.0.0.1", 8002};
  bool shared_memory = false;           // clients may register shared memory of this machine
  bool summary_latencies = false;       // also export latencies as summaries
  std::uint32_t trace_every = 0;        // trace every Nth request; 0: only on request
  std::optional<TlsFiles> tls;          // listen, http, grpc and metrics
  std::optional<TlsFiles> backend_tls;  // backend_listen, mutual
  TokenFiles tokens;
  std::filesystem::path audit_log;  // empty: the daemon's log
  std::filesystem::path models;
  // The folder below which clients may name model files. Empty: the folders of the models in the
  // models file.
  std::optional<std::filesystem::path> model_root;
  // The format of model files. `any` suits frontends whose devices are all simulated.
  ModelFormat model_format = ModelFormat::known;
  std::filesystem::path profiles;
  std::string policy = "auto";
  double plan_budget_ms = 200;   // of the policy auto
  std::optional<double> margin;  // empty: schedule::margin_of()
  // "linear", "learned", "measured", "inss" or "none". Empty: learned where the profiles have a
  // fit.
  std::optional<std::string> interference;
  bool feedback = true;                               // plans follow what batches really take
  bool estimates = true;                              // serves models without a profile
  std::string headroom = "poisson";                   // capacity beyond the mean rates, or "none"
  bool use_spare = true;                              // enlarges gpulets into free share
  bool verify = true;                                 // plans again until the promise is kept
  Duration period = std::chrono::seconds(20);         // of planning
  Duration drain_timeout = std::chrono::seconds(10);  // for requests in flight at SIGTERM
  // Before that, how long it still accepts requests although it is not ready: load balancers need
  // time to notice. Nothing waits where nobody is connected.
  Duration drain_grace = std::chrono::seconds(5);
  Duration idle_after = std::chrono::seconds(300);  // until an idle model is unloaded; 0: never
  // For a model to load and to run for the first time, besides the time for its file. A backend has
  // the same bound for its processes.
  Duration load_timeout = std::chrono::seconds(60);
  Duration wake_within = std::chrono::seconds(10);      // how long a request waits for such a model
  Duration late_grace = std::chrono::milliseconds(20);  // late results are delivered this long
  control::Options control;
  ExclusionTimes exclusions;
  std::uint32_t max_queue = 4096;                    // queued requests per model
  std::uint32_t max_requests = 65536;                // in flight, over all clients
  std::uint32_t max_buffered_mb = 2048;              // requests being received or in flight
  std::uint32_t max_connections = 4096;              // per port for clients
  std::uint32_t max_connections_per_address = 1024;  // per port for clients
  // The largest request. Empty: a full batch of the largest model.
  std::optional<std::uint32_t> max_payload_bytes;
  // The lowest rate at which a frame or body must arrive, averaged over each receive_grace.
  std::uint32_t min_bytes_per_second = 16U << 10U;
  Duration receive_grace = std::chrono::seconds(10);
  Duration max_receive = std::chrono::seconds(120);   // for a whole frame or body
  Duration first_message = std::chrono::seconds(10);  // silent connections are closed after this
  ClientLimits per_address;                           // per client address
  std::optional<ClusterConfig> cluster;               // empty: the only frontend
  RemoteStoresConfig remote_stores;
  // The configuration's file, and every file and folder that a key of it names. Nothing of it is a
  // model, so no client may have it read as one.
  std::vector<std::filesystem::path> named_files{};
};

// The memory limit of a gpulet's process on a CPU device: `factor` times the measured memory of its
// models, at least `floor_mb`, at most the device's memory.
struct ProxyMemory {
  double factor = 3;
  std::uint32_t floor_mb = 1024;
  friend bool operator==(const ProxyMemory&, const ProxyMemory&) = default;
};

// Processes that keep their models loaded when their gpulets end, for later gpulets of the same
// models and share. For devices on which another share needs another process ("mps", "cpu_quota").
struct Parking {
  std::uint32_t memory_mb = 0;  // of their models, on each device; 0: none is kept
  bool load_ahead = false;      // also at the sizes beside those of running gpulets
  friend bool operator==(const Parking&, const Parking&) = default;
};

struct BackendConfig {
  std::string node;
  std::vector<Endpoint> frontends{{"127.0.0.1", 7001}};  // all of one cluster; at least one
  std::filesystem::path model_store;
  std::uint32_t model_store_mb = 0;  // capacity of the store; 0: the disk's
  std::filesystem::path profiles;    // empty without simulated devices
  // The proxy program of all models. Empty: beside the backend, gpulet-proxy-onnx for gpulets of
  // ONNX models, else gpulet-proxy.
  std::filesystem::path proxy;
  // Proxy processes of each program that are started in advance, of gpulet-proxy-onnx from its
  // first gpulet on. Each takes the memory of the program without a model (LibTorch: 230 MB, ONNX
  // Runtime: 25 MB).
  std::uint32_t warm_proxies = 2;
  // The user of proxies where the backend runs as root. Empty: gpulet if that user exists, else
  // nobody.
  std::string proxy_user;
  // For a process to load one model and run it for the first time, besides the time for its file.
  // A process that takes longer is killed, and the model counts as one that cannot be loaded.
  Duration load_timeout = std::chrono::seconds(60);
  // A process hangs where it has not responded for `hang_timeout` and for `hang_factor` times the
  // expected duration of its batch. It is killed and started again.
  Duration hang_timeout = std::chrono::seconds(3);
  double hang_factor = 5;
  bool proxy_sandbox = true;   // restricts proxies' system calls and network
  bool native_models = false;  // proxies run models that are native code (.pt2)
  // ONNX Runtime's library; empty: of GPULET_ONNXRUNTIME, or as programs find it.
  std::filesystem::path onnxruntime;
  std::vector<std::string> proxy_environment;               // additional variables to pass on
  std::optional<ProxyMemory> proxy_memory = ProxyMemory{};  // empty: no limit
  Parking parking;
  std::optional<TlsFiles> tls;  // to the frontend, mutual
  std::vector<DeviceConfig> devices;
};

[[nodiscard]] Result<FrontendConfig> load_frontend(const std::filesystem::path& file);
[[nodiscard]] Result<BackendConfig> load_backend(const std::filesystem::path& file);

// Parse text in memory. `file` names the text in errors and is the base of its relative paths. With
// `errors`, they store all errors there and return what could be read.
[[nodiscard]] Result<FrontendConfig> parse_frontend(std::string_view text,
                                                    const std::filesystem::path& file,
                                                    std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<BackendConfig> parse_backend(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
