// Cluster: a frontend daemon and backend daemons in this process, on a thread of their own, over
// loopback sockets and with real proxy processes of simulated devices. Ports are ephemeral, files
// are in a temporary directory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/daemon.h"
#include "frontend/daemon.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/asio.h"

namespace gpulet::testing {

struct ClusterModel {
  std::string name;
  double base_ms = 4;  // tests/support/serve/world.h, card_profile
  double slo_ms = 100;
  double rate = 20;
  std::size_t bytes = 1;  // of the input and of the output
};

// A models file as text, the files that it names by paths relative to it, and what the plan
// believes of the models.
struct ClusterFiles {
  explicit ClusterFiles() = default;  // a list in braces is one of ClusterModels
  std::string models;
  std::map<std::string, std::string> beside;  // contents by name
  profile::Profile profile;
};

// What a test wants otherwise in the daemons' files.
struct ClusterChanges {
  std::function<void(config::FrontendConfig&)> frontend;
  std::function<void(config::BackendConfig&)> backend;
};

class Cluster {
 public:
  explicit Cluster(const std::vector<ClusterModel>& models, frontend::CoreObserver observer = {},
                   ClusterChanges changes = {});
  // Any models, on devices that the plan believes to be like `profile`, and applications of them as
  // models.json has them.
  Cluster(const std::vector<config::ModelConfig>& models, const profile::Profile& profile,
          frontend::CoreObserver observer = {}, const std::string& applications = "[]",
          ClusterChanges changes = {});
  explicit Cluster(const ClusterFiles& files, ClusterChanges changes = {});
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // A node with that many simulated devices, inside this process: "card", or "slow_card", which
  // takes twice as long for everything (where the models are ClusterModels).
  void add_backend(const std::string& node, std::uint32_t devices = 1,
                   const std::string& type = "card");
  // A node whose device is one core of this machine. Its backend fetches the models' files, but its
  // proxies do not look inside.
  void add_storing_backend(const std::string& node);
  // The same with proxies that crash or hang where an input says so: executor/crashing_proxy.cc.
  void add_crashing_backend(const std::string& node, std::uint32_t devices = 1);
  // A node whose device is one core of this machine and whose proxies run the models for real.
  void add_real_backend(const std::string& node);
  // The same with gpulet-proxy-onnx.
  void add_onnx_backend(const std::string& node);
  // The same with proxies that compute: executor/arithmetic_proxy.cc.
  void add_arithmetic_backend(const std::string& node, std::uint32_t devices = 1);
  // A node with one GPU divided by "mps" or "green", all of it stand-ins:
  // tests/support/gpu/fake_gpu_proxy.cc.
  void add_gpu_backend(const std::string& node, const std::string& partitioning,
                       const backend::GpuEnvironment& places);
  // A node of simulated devices as a process of its own; its process id.
  pid_t spawn_backend(const std::string& node, std::uint32_t devices = 1);

  // Waits until every model is served, or throws.
  void wait_until_serving(Duration patience = std::chrono::seconds(30));
  // Runs on the daemons' thread and waits for it.
  void on_daemons(const std::function<void()>& what);
  [[nodiscard]] serve::FrontendStatus status();
  [[nodiscard]] std::vector<pid_t> proxies(const std::string& node);
  [[nodiscard]] std::uint16_t client_port() const { return client_port_; }
  [[nodiscard]] std::uint16_t backend_port() const { return backend_port_; }
  [[nodiscard]] std::uint16_t http_port() const { return frontend_->http_port(); }
  [[nodiscard]] std::uint16_t grpc_port() const { return frontend_->grpc_port(); }
  [[nodiscard]] std::uint16_t metrics_port() const { return frontend_->metrics_port(); }
  [[nodiscard]] const frontend::Setup& setup() const { return setup_; }
  [[nodiscard]] Time started_at() const { return started_at_; }
  // Stops the frontend as SIGTERM does, and waits.
  void stop_frontend();

 private:
  // In that directory, which it removes at its end.
  Cluster(const std::filesystem::path& directory, const std::vector<ClusterModel>& models,
          frontend::CoreObserver observer, ClusterChanges changes);
  Cluster(std::filesystem::path directory, const std::vector<config::ModelConfig>& models,
          const std::vector<profile::Profile>& profiles, frontend::CoreObserver observer,
          const std::string& applications = "[]", ClusterChanges changes = {});
  // `models` is the text of the models file.
  Cluster(std::filesystem::path directory, const std::string& models,
          const std::vector<profile::Profile>& profiles, frontend::CoreObserver observer,
          ClusterChanges changes);
  void add_cpu_backend(const std::string& node, const std::string& proxy);
  [[nodiscard]] std::filesystem::path write_backend_config(const std::string& node,
                                                           const std::string& proxy,
                                                           const std::string& devices) const;
  [[nodiscard]] std::filesystem::path write_simulated_config(const std::string& node,
                                                             std::uint32_t devices,
                                                             const std::string& type) const;
  // The same with another program as the proxy.
  void add_card_backend(const std::string& node, std::uint32_t devices, const std::string& proxy);
  void start_backend(const std::string& node, const std::filesystem::path& config_file,
                     const backend::GpuEnvironment& places = {});

  std::filesystem::path directory_;
  ClusterChanges changes_;
  frontend::Setup setup_;
  net::asio::io_context io_{1};
  std::unique_ptr<frontend::FrontendDaemon> frontend_;
  std::map<std::string, std::unique_ptr<backend::BackendDaemon>> backends_;
  std::vector<pid_t> processes_;
  std::uint16_t client_port_ = 0;
  std::uint16_t backend_port_ = 0;
  Time started_at_{};
  std::jthread thread_;
};

}  // namespace gpulet::testing
