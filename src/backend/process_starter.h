// ProcessStarter: the devices of a backend, and how a gpulet gets a share of one and a proxy on it:
// a process from the pool of warm processes, a new process or, on a device whose shares change in
// place, a worker of the one process that serves the device.
//
// A device's process starts with its first gpulet, or ahead if there are warm proxies. It stays
// when its last gpulet has ended, with the models that it has loaded, until end_devices().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/proxy_pool.h"
#include "backend/setup.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/alive.h"
#include "gpulet/base/status.h"
#include "gpulet/core/failure.h"
#include "gpulet/net/asio.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/partition/driver.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::backend {

// Single-strand type on the executor given.
class ProcessStarter {
 public:
  struct Hooks {
    std::function<void(pid_t process, const std::string& line)> on_output;
    // The process of a device has ended. The on_exit of its workers follow.
    std::function<void(std::uint32_t device)> on_device_ended;
  };
  struct Started {
    std::unique_ptr<Proxy> proxy{};  // loading; null if the status is not ok
    const char* kind = "";           // for the log
    Status status{};
    FailureCause cause = FailureCause::unknown;  // if the status is not ok
    bool refused = false;                        // by the driver of the device
  };

  ProcessStarter(const net::asio::any_io_executor& executor, std::vector<HostedDevice> devices,
                 std::uint32_t warm_proxies, std::optional<ProxyUser> proxy_user,
                 ProxyConfinement confinement, Hooks hooks);
  ProcessStarter(const ProcessStarter&) = delete;
  ProcessStarter& operator=(const ProcessStarter&) = delete;

  // Grants the share to `order.gpulet` and makes its proxy load the models. The caller
  // releases the grant when the proxy has ended; a failure leaves none.
  [[nodiscard]] Started start(const node::StartGpulet& order, ProxyCallbacks callbacks);
  void end_devices() { device_processes_.clear(); }

  [[nodiscard]] std::uint32_t devices() const {
    return static_cast<std::uint32_t>(devices_.size());
  }
  [[nodiscard]] partition::PartitionDriver& driver(std::uint32_t device) const {
    return *devices_[device].driver;
  }
  [[nodiscard]] const partition::Device& described(std::uint32_t device) const {
    return devices_[device].offer.device;
  }
  [[nodiscard]] bool changes_in_place(std::uint32_t device) const;
  // Whether the device can start a gpulet now, or may be able to later.
  [[nodiscard]] partition::DeviceHealth health_of(std::uint32_t device) const;
  [[nodiscard]] ProxyPool& pool() { return pool_; }
  [[nodiscard]] const ProxyPool& pool() const { return pool_; }

 private:
  [[nodiscard]] ProxyOptions options_of(const std::filesystem::path& program, bool in_background);
  [[nodiscard]] Status start_device(std::uint32_t device, bool in_background);
  void device_ended(std::uint32_t device, const Status& how);
  [[nodiscard]] const std::filesystem::path& program_for(std::uint32_t device,
                                                         const LoadModels& models) const;
  [[nodiscard]] Result<ProxyPool::Taken> take_proxy(std::uint32_t device,
                                                    const partition::Grant& grant,
                                                    const LoadModels& models,
                                                    ProxyCallbacks callbacks);
  // On failure there may be a grant to release. Throws where the machine has no memory or
  // descriptors left.
  [[nodiscard]] Started start_process(const node::StartGpulet& order, ProxyCallbacks callbacks);

  const net::asio::any_io_executor executor_;
  std::vector<HostedDevice> devices_;
  const std::optional<ProxyUser> proxy_user_;
  const ProxyConfinement confinement_;
  const Hooks hooks_;
  AliveToken alive_;
  ProxyPool pool_;
  std::map<std::uint32_t, std::unique_ptr<DeviceProcess>> device_processes_;
};

}  // namespace gpulet::backend
