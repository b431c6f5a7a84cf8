// GpuletProcesses: carries out what the core wants done with gpulets. For each, a share of its
// device and a proxy under it: a process, from the pool of those that were started ahead, or, on a
// device whose shares change in place, a lane of the one process that serves the device. What
// becomes of them is told as the core's events.
//
// The process of a device is started with its first gpulet, or ahead where any are; it stays when
// its last gpulet has gone, with the models that it has loaded, and ends with this. When it ends
// before, its gpulets end with it, for the device's sake and not for their own; but one that was
// the only one to load then is to blame.
//
// Single-strand type on the executor given. Events of a call come through `tell` after the call has
// returned, never from within it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/proxy_pool.h"
#include "gpulet/backend/device_process.h"
#include "gpulet/backend/proxy.h"
#include "gpulet/backend/setup.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/backend_events.h"

namespace gpulet::backend {

class GpuletProcesses {
 public:
  using Tell = std::function<void(serve::BackendEvent)>;

  GpuletProcesses(const net::asio::any_io_executor& executor, std::vector<HostedDevice> devices,
                  std::uint32_t warm_proxies, std::optional<ProxyUser> proxy_user,
                  ProxyConfinement confinement, Tell tell);
  ~GpuletProcesses();
  GpuletProcesses(const GpuletProcesses&) = delete;
  GpuletProcesses& operator=(const GpuletProcesses&) = delete;

  void start(serve::StartGpulet order);
  void activate(GpuletId gpulet);
  void adjust(GpuletId gpulet, double cores);
  void run(serve::RunOnProxy order);
  void finish(GpuletId gpulet);
  void kill(GpuletId gpulet, const Status& reason);

  // Memory of the gpulet's proxy for a batch; empty where there is none.
  [[nodiscard]] std::optional<MutableBytes> take_slot(GpuletId gpulet, std::size_t bytes);
  [[nodiscard]] bool holds(GpuletId gpulet, const Bytes& input) const;
  [[nodiscard]] std::vector<pid_t> processes() const;
  // Those that wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_processes() const { return pool_.processes(); }
  // No gpulet will be started any more.
  void close_pool() { pool_.close(); }

 private:
  struct Running {
    std::uint32_t device = 0;
    std::unique_ptr<Proxy> proxy;
    bool loading = true;
    // What its device is to blame for when it ends.
    partition::DeviceHealth end = partition::DeviceHealth::works;
  };
  struct Taken {
    std::unique_ptr<Proxy> proxy;
    const char* kind;  // for the log
  };

  [[nodiscard]] bool changes_in_place(std::uint32_t device) const;
  [[nodiscard]] Status start_device(std::uint32_t device, bool in_background);
  void device_ended(std::uint32_t device, const Status& how);
  // Where the environment counts from the program's start, a process that was started for it.
  [[nodiscard]] Result<Taken> take(std::uint32_t device, const partition::Grant& grant,
                                   ProxyCallbacks callbacks);
  // Whether a gpulet that cannot be started now could be later, for all that its device says.
  [[nodiscard]] partition::DeviceHealth health_of(std::uint32_t device) const;
  // Fails where there is no process; then nothing is left of the attempt but the grant.
  struct Started {
    Status status;
    FailureCause cause = FailureCause::unknown;  // where the status is not ok
  };
  [[nodiscard]] Started start_process(serve::StartGpulet& order);
  [[nodiscard]] ProxyCallbacks callbacks_for(GpuletId gpulet, std::uint32_t device);
  void loaded(GpuletId gpulet, serve::ProxyReady ready);
  struct End {
    Status why;
    FailureCause cause = FailureCause::unknown;  // other than what its process's end says
  };
  // What its process ended for, where the kernel ended it for want of memory; else the reason.
  [[nodiscard]] End end_of(GpuletId gpulet, std::uint32_t device, const Status& reason) const;
  void ended(GpuletId gpulet, const Status& reason);
  void tell_pool();
  void tell_later(serve::BackendEvent event);

  const net::asio::any_io_executor executor_;
  std::vector<HostedDevice> devices_;
  const Tell tell_;
  const std::optional<ProxyUser> proxy_user_;
  const ProxyConfinement confinement_;
  ProxyPool pool_;
  std::map<std::uint32_t, std::unique_ptr<DeviceProcess>> device_processes_;
  std::map<GpuletId, Running> running_;
  std::shared_ptr<int> alive_ =
      std::make_shared<int>(0);  // gone: posted events have nobody to tell
};

}  // namespace gpulet::backend
