// GpuletProcesses: carries out the core's effects on gpulets. For each gpulet it holds a share of
// the device and a proxy (process_starter.h), or a parked process takes it over
// (parked_processes.h). It reports what becomes of them as events of the core.
//
// If the process of a whole device ends, its gpulets end because of their device, except that a
// gpulet that was the only one loading is at fault.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/parked_processes.h"
#include "backend/process_starter.h"
#include "backend/setup.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/alive.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/node/backend_core.h"

namespace gpulet::backend {

// Single-strand type on the executor given. Events of a call are delivered after it has returned,
// never within it.
class GpuletProcesses {
 public:
  using OnEvent = std::function<void(node::BackendEvent)>;

  GpuletProcesses(const net::asio::any_io_executor& executor, std::vector<HostedDevice> devices,
                  std::uint32_t warm_proxies, ParkingOptions parking,
                  std::optional<ProxyUser> proxy_user, ProxyConfinement confinement,
                  OnEvent on_event);
  ~GpuletProcesses();
  GpuletProcesses(const GpuletProcesses&) = delete;
  GpuletProcesses& operator=(const GpuletProcesses&) = delete;

  void start(node::StartGpulet order);
  void activate(GpuletId gpulet);
  void adjust(GpuletId gpulet, double cores);
  void run(node::RunOnProxy order);
  void finish(GpuletId gpulet);
  void kill(GpuletId gpulet, const Status& reason);

  // Input memory of the gpulet's proxy for a batch; empty if there is none.
  [[nodiscard]] std::optional<MutableBytes> take_slot(GpuletId gpulet, std::size_t bytes);
  // The same for inputs of zeros, which the proxy makes.
  [[nodiscard]] std::optional<MutableBytes> take_zeros(GpuletId gpulet, std::size_t bytes);
  [[nodiscard]] bool holds(GpuletId gpulet, const Bytes& input) const;
  [[nodiscard]] std::vector<pid_t> processes() const;
  // The processes that wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_processes() const {
    return starter_.pool().idle_processes();
  }
  [[nodiscard]] std::vector<pid_t> parked_processes() const { return parked_.processes(); }
  // Ends the warm and the parked processes; no gpulet will be started.
  void close_pool();

 private:
  struct Running {
    std::unique_ptr<Proxy> proxy;
    GpuletId grant;  // of its share, at the driver; older than the gpulet if it was parked
    node::StartGpulet order{};  // that its process was started with
    ProxyReady ready{};         // with its present condition
    std::size_t in_flight = 0;  // batches
    bool loading = true;
    // To be reported when it ends.
    partition::DeviceHealth device_health = partition::DeviceHealth::works;
  };
  struct End {
    Status reason;
    FailureCause cause = FailureCause::unknown;  // if other than the end of the process says
  };

  void log_output(pid_t process, const std::string& line) const;
  void start_new(node::StartGpulet order);
  [[nodiscard]] bool reuse(const node::StartGpulet& order);
  void start_waiting();
  void device_ended(std::uint32_t device);
  [[nodiscard]] ProxyCallbacks callbacks_for(GpuletId gpulet, std::uint32_t device, GpuletId grant);
  void loaded(GpuletId gpulet, ProxyReady ready);
  void ran_batch(GpuletId gpulet, const BatchRan& ran);
  void gpulets_changed();
  // The reason for the end of a process: a lack of memory if the kernel killed it for that.
  [[nodiscard]] End end_of(const Running& running, const Status& reason) const;
  void ended(GpuletId gpulet, const Status& reason);
  void park_or_stop(GpuletId gpulet);
  void post_event(node::BackendEvent event);

  const net::asio::any_io_executor executor_;
  const OnEvent on_event_;
  AliveToken alive_;
  ProcessStarter starter_;
  ParkedProcesses parked_;
  std::vector<node::StartGpulet> waiting_;  // for parked processes to end
  std::map<GpuletId, Running> running_;
};

}  // namespace gpulet::backend
