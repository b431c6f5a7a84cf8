// frontend.json and backend.json: how the two daemons run.
//
// frontend: {"listen":"127.0.0.1:7000","backend_listen":"127.0.0.1:7001","http":"127.0.0.1:8000",
//            "grpc":"127.0.0.1:8001","metrics":"127.0.0.1:8002","models":"models.json",
//            "profiles":"../profiles","policy":"elastic","margin":1.05,"interference":"learned",
//            "headroom":"poisson","period_s":20,"drain_timeout_s":10,
//            "idle_after_s":300,"wake_within_s":10,"late_grace_ms":20,"shared_memory":"off",
//            "model_root":"../models","model_format":"torchscript",
//            "summary_latencies":"off","trace_every":0,"control":{ as in control_config.h },
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
//            "exclusions":{"first_s":5,"longest_s":300}}
// backend:  {"node":"n0","frontend":"127.0.0.1:7001","model_store":"../build/store/n0",
//            "profiles":"../profiles","proxy":"../build/bin/gpulet-proxy","warm_proxies":2,
//            "proxy_user":"nobody","hang_timeout_s":3,"hang_factor":5,
//            "model_store_mb":20480,
//            "proxy_sandbox":"on","proxy_environment":["NAME"],
//            "proxy_memory":{"factor":3,"floor_mb":1024},
//            "tls":{"certificate":"n0.pem","key":"n0.key","authority":"ca.pem"},
//            "devices":[ as in a cluster file's node ]}
//
// Only `models` and `profiles` (frontend), `node`, `model_store` and `devices` (backend) are
// required; `profiles` of a backend is, too, where a device is simulated, and `cores` where one
// that is partitioned by cpu_quota stands beside others (alone it has all cores there are). `gpu`,
// a number or a UUID or its start, says which GPU a device is that is partitioned by mps, green or
// mig; it is required where several such devices are described, else they are the first GPUs. Paths
// are relative to the JSON file. `http`, `grpc` (the Open Inference Protocol) and `metrics` may be
// "off". `model_root` is the folder below which a change of models that comes over the network may
// name files; without it, those are the folders in which models of the models file lie.
// `model_format` is what such a file must be, and what `gpulet config check` takes models' files
// for: "torchscript", or "any" where all devices are simulated. `shared_memory` "on" lets their
// clients name shared memory of this machine. `interference` is what plans believe of gpulets that
// share a device: "linear", "learned", "measured" or "none"; without it, learned where the profiles
// hold a fit. `control` says how executables are controlled where GPUs and CPU cores serve
// together. `exclusions` says how long a node or a device takes no new gpulets after one failed
// there. `late_grace_ms` is how long after its SLO a request may still be answered with a (late)
// result; then, or at its own timeout, it is answered too_late. `headroom` is "poisson" (room for
// what chance adds to the mean rates) or "none". `tls` secures whatever clients speak to;
// `backend_tls` and a backend's `tls` belong together. A process that holds a batch and answers
// nothing for `hang_timeout_s`, and for `hang_factor` times what the batch is expected to take, is
// killed and started again. `max_payload_bytes` bounds one request; without it, the bound follows
// what a full batch of each model needs. docs/security.md tells of these and of `tokens`. Errors as
// in model_config.h. Plain values; blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/security_config.h"
#include "gpulet/control/options.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::config {

struct Endpoint {
  std::string host;        // an address or a name
  std::uint16_t port = 0;  // 0: any free one (tests)
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "127.0.0.1:7000", "[::1]:7000", "node7:7000".
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
// Whether only this machine reaches it: 127.x.y.z, ::1 or localhost.
[[nodiscard]] bool is_loopback(const Endpoint& endpoint);

// For how long a node or a device takes no new gpulets after one failed there: `first`, twice as
// long after each further failure, at most `longest`.
struct ExclusionTimes {
  Duration first = std::chrono::seconds(5);
  Duration longest = std::chrono::seconds(300);
};
enum class ModelFormat : std::uint8_t { torchscript, any };

struct FrontendConfig {
  Endpoint listen{"127.0.0.1", 7000};          // clients
  Endpoint backend_listen{"127.0.0.1", 7001};  // backends
  // The Open Inference Protocol, and metrics. Nothing: off.
  std::optional<Endpoint> http = Endpoint{"127.0.0.1", 8000};
  std::optional<Endpoint> grpc = Endpoint{"127.0.0.1", 8001};
  std::optional<Endpoint> metrics = Endpoint{"127.0.0.1", 8002};
  bool shared_memory = false;           // clients may register shared memory of this machine
  bool summary_latencies = false;       // metrics tell latencies as summaries, too
  std::uint32_t trace_every = 0;        // every so manieth request is traced; 0: none of itself
  std::optional<TlsFiles> tls;          // of listen, http, grpc and metrics
  std::optional<TlsFiles> backend_tls;  // of backend_listen, both ways
  TokenFiles tokens;
  std::filesystem::path audit_log;  // empty: the daemon's log
  std::filesystem::path models;
  std::optional<std::filesystem::path> model_root;
  ModelFormat model_format = ModelFormat::torchscript;  // of files named over the network
  std::filesystem::path profiles;
  std::string policy = "elastic";
  double margin = 1.05;
  std::optional<std::string> interference;            // one of the names above
  std::string headroom = "poisson";                   // one of the names above
  Duration period = std::chrono::seconds(20);         // of the scheduler
  Duration drain_timeout = std::chrono::seconds(10);  // at SIGTERM, for what is in flight
  // A model without a request for so long gives up its gpulet; 0: never.
  Duration idle_after = std::chrono::seconds(300);
  Duration wake_within = std::chrono::seconds(10);  // what a request waits for it to come back
  // How long after its SLO a request may still be answered with a result.
  Duration late_grace = std::chrono::milliseconds(20);
  control::Options control;
  ExclusionTimes exclusions;
  std::uint32_t max_queue = 4096;                    // requests waiting per model
  std::uint32_t max_requests = 65536;                // under way at once, over all clients
  std::uint32_t max_buffered_mb = 2048;              // of requests, being received or under way
  std::uint32_t max_connections = 4096;              // of each port that clients speak to
  std::uint32_t max_connections_per_address = 1024;  // of them
  // Of one request. Nothing: what the models need for a full batch.
  std::optional<std::uint32_t> max_payload_bytes;
  // How fast a frame or body must come once it has begun: averaged over each time of the grace, and
  // the whole of it.
  std::uint32_t min_bytes_per_second = 16U << 10U;
  Duration receive_grace = std::chrono::seconds(10);
  Duration max_receive = std::chrono::seconds(120);
  // A connection that has said nothing within this time is closed.
  Duration first_message = std::chrono::seconds(10);
  ClientLimits per_address;  // of each address that clients connect from
};

// How much memory of the node a gpulet's process may take on a CPU device: `factor` times what its
// models were measured to need, at least the floor, at most what the device has.
struct ProxyMemory {
  double factor = 3;
  std::uint32_t floor_mb = 1024;
  friend bool operator==(const ProxyMemory&, const ProxyMemory&) = default;
};

struct BackendConfig {
  std::string node;
  Endpoint frontend{"127.0.0.1", 7001};
  std::filesystem::path model_store;
  std::uint32_t model_store_mb = 0;  // what the store may hold; 0: as much as the disk does
  std::filesystem::path profiles;    // needed for simulated devices only; may be empty
  std::filesystem::path
      proxy;  // the proxy program; empty: gpulet-proxy beside the backend's own binary
  // Processes of each proxy program that are started before a gpulet needs them; each takes as much
  // memory as the program without a model (LibTorch: 230 MB).
  std::uint32_t warm_proxies = 2;
  // Whom proxies run as where the backend runs as root; "root" for itself. Empty: gpulet where
  // there is such a user, else nobody.
  std::string proxy_user;
  // A process that answers nothing for so long, and for so many times what its batch is expected to
  // take, hangs.
  Duration hang_timeout = std::chrono::seconds(3);
  double hang_factor = 5;
  bool proxy_sandbox = true;                   // system calls and network of proxies (confine.h)
  std::vector<std::string> proxy_environment;  // variables to pass on beside the usual ones
  std::optional<ProxyMemory> proxy_memory = ProxyMemory{};  // nothing: no limit
  std::optional<TlsFiles> tls;                              // towards the frontend, both ways
  std::vector<DeviceConfig> devices;
};

[[nodiscard]] Result<FrontendConfig> load_frontend(const std::filesystem::path& file);
[[nodiscard]] Result<BackendConfig> load_backend(const std::filesystem::path& file);

// The same from memory; `file` names the text in errors and is what its paths are relative to.
// Where `errors` is given, it gets all errors, and what could be read comes back.
[[nodiscard]] Result<FrontendConfig> parse_frontend(std::string_view text,
                                                    const std::filesystem::path& file,
                                                    std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<BackendConfig> parse_backend(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
