// Setup: everything that a backend needs before it starts: its devices with their drivers, the
// model store, the profiles of simulated devices. Blocking file I/O; errors name the key or file
// and how to fix it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu_monitor.h"
#include "gpulet/backend/gpu_devices.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/tls.h"
#include "gpulet/partition/driver.h"
#include "gpulet/profile/profile.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/store/model_store.h"

namespace gpulet::backend {

// For so long, no gpulet was started, loaded or retired before a process is loaded ahead
// (parking.h).
inline constexpr Duration kQuietBeforeLoadingAhead = std::chrono::seconds(5);

struct HostedDevice {
  DeviceOffer offer;
  std::unique_ptr<partition::PartitionDriver> driver;
  std::filesystem::path proxy_program;
  std::string gpu{};  // the GPU's UUID; empty: not a GPU
  // For gpulets whose models are all ONNX; it needs less memory. Empty: proxy_program.
  std::filesystem::path onnx_program{};
};

struct Setup {
  config::BackendConfig config;
  std::vector<HostedDevice> devices;  // by number, without absent ones
  gpulet::store::ModelStore store;
  std::shared_ptr<const profile::ProfileSet> profiles;  // null: no device is simulated
  std::optional<ProxyUser> proxy_user{};                // empty: the user of this process
  net::TlsContextPointer tls{};                         // to the frontend; null: plain
  std::vector<std::string> absent{};  // configured GPUs that cannot be used: one message each
  GpuMonitorOptions gpu_monitor{};
  Duration quiet_before_loading_ahead = kQuietBeforeLoadingAhead;
};

// Starts the daemons that the devices need, and queries CUDA in a child process: call it before
// this process has other threads. A GPU that cannot be used is absent, unless no other device is
// left: then this fails.
[[nodiscard]] Result<Setup> make_setup(const config::BackendConfig& config,
                                       const GpuEnvironment& environment = {});

// The certificate and authorities for connections to frontends; null: the configuration has no
// TLS. Fails with invalid. Blocking file I/O.
[[nodiscard]] Result<net::TlsContextPointer> read_tls(const config::BackendConfig& config);

// Chooses the user for "proxy_user" of the configuration: the user of that name; if the name is
// empty and this process is root, `gpulet` if there is such a user, else `nobody`. Empty: proxies
// run as this process does, because it is not root or "root" was requested. Fails with invalid (no
// such user, or this process is not root and requests another user) or unavailable (root lacks the
// capability to change users).
[[nodiscard]] Result<std::optional<ProxyUser>> choose_proxy_user(const std::string& name);

}  // namespace gpulet::backend
