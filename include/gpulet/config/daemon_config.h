// frontend.json and backend.json: how the two daemons run.
//
// frontend: {"listen":"127.0.0.1:7000","backend_listen":"127.0.0.1:7001","models":"models.json",
//            "profiles":"../profiles","policy":"elastic","margin":1.05,"period_s":20, "limits":{...}}
// backend:  {"node":"n0","frontend":"127.0.0.1:7001","model_store":"../build/store/n0",
//            "profiles":"../profiles","devices":[ as in a cluster file's node ]}
//
// Paths are relative to the JSON file. Errors as in model_config.h. Plain values; blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::config {

struct Endpoint {
  std::string host;  // an address or a name
  std::uint16_t port = 0;  // 0: any free one (tests)
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "127.0.0.1:7000", "[::1]:7000", "node7:7000".
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

struct FrontendConfig {
  Endpoint listen{"127.0.0.1", 7000};          // clients
  Endpoint backend_listen{"127.0.0.1", 7001};  // backends
  std::filesystem::path models;
  std::filesystem::path profiles;
  std::string policy = "elastic";
  double margin = 1.05;
  Duration period = std::chrono::seconds(20);         // of the scheduler
  Duration drain_timeout = std::chrono::seconds(10);  // at SIGTERM, for what is in flight
  std::uint32_t max_queue = 4096;                     // requests waiting per model
  std::uint32_t max_connections = 4096;
  std::uint32_t max_payload_bytes = 64U << 20U;       // of one request
};

struct BackendConfig {
  std::string node;
  Endpoint frontend{"127.0.0.1", 7001};
  std::filesystem::path model_store;
  std::filesystem::path profiles;  // needed for simulated devices only; may be empty
  std::filesystem::path proxy;     // the proxy program; empty: gpulet-proxy beside the backend's own binary
  std::vector<DeviceConfig> devices;
};

[[nodiscard]] Result<FrontendConfig> load_frontend(const std::filesystem::path& file);
[[nodiscard]] Result<BackendConfig> load_backend(const std::filesystem::path& file);

// What `gpulet config check F` calls: finds out from its keys which of the five kinds of file F is (models, cluster,
// demand, frontend, backend, workload), loads it and, for a daemon's file, the files that it names. Returns the kind.
[[nodiscard]] Result<std::string> check_file(const std::filesystem::path& file);

}  // namespace gpulet::config
