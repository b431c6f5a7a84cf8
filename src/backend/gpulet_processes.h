// GpuletProcesses: carries out the core's effects on gpulets. For each gpulet it holds a share of
// the device and a proxy: a process from the pool of warm processes or, on a device whose shares
// change in place, a worker of the one process that serves the device. It reports what becomes of
// them as events of the core.
//
// A device's process starts with its first gpulet, or ahead if there are warm proxies. It stays
// when its last gpulet has ended, with the models that it has loaded, and ends with this object. If
// it ends earlier, its gpulets end because of their device, except that a gpulet that was the only
// one loading is at fault.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "backend/setup.h"
#include "gpulet/backend/proxy.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/alive.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/serve/backend_core.h"
#include "gpulet/serve/warm_pool.h"

namespace gpulet::backend {

// Proxy processes that are started ahead of demand (serve/warm_pool.h decides when). They run at a
// low priority until they are taken, so that starting them does not delay batches. They end with
// the pool. Single-strand type on the executor given.
class ProxyPool {
 public:
  // Keeps `warm_proxies` processes of each of these programs, and of each other program from its
  // first take() on. `options`: of all processes; their program is not used.
  ProxyPool(const net::asio::any_io_executor& executor,
            const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
            ProxyOptions options);
  ProxyPool(const ProxyPool&) = delete;
  ProxyPool& operator=(const ProxyPool&) = delete;

  struct Taken {
    std::unique_ptr<Proxy> proxy;
    const char* kind;  // for the log
  };
  // Takes an idle process of this program from the pool, or starts one. Fails as
  // ProxyProcess::start.
  [[nodiscard]] Result<Taken> take(const std::filesystem::path& program, ProxyCallbacks callbacks);

  // Whether any gpulet is loading.
  void set_loading(bool any);
  // Ends the processes and starts no more.
  void close();
  [[nodiscard]] std::vector<pid_t> idle_processes() const;

 private:
  struct Warm {
    std::unique_ptr<ProxyProcess> process;
    bool idle = false;
  };
  struct ProgramPool {
    serve::WarmPool plan;
    std::vector<Warm> warm;  // in the order of their start, so idle ones come first
  };

  ProgramPool& pool_of(const std::filesystem::path& program);
  [[nodiscard]] Result<std::unique_ptr<ProxyProcess>> start_process(
      const std::filesystem::path& program, bool in_background, ProxyCallbacks callbacks) const;
  void fill();
  void start_one(const std::filesystem::path& program, ProgramPool& pool);
  void on_idle(const std::filesystem::path& program, pid_t process);
  void on_exit(const std::filesystem::path& program, pid_t process, const Status& reason);
  void set_timer();

  const net::asio::any_io_executor executor_;
  const std::uint32_t warm_proxies_;
  const ProxyOptions options_;
  std::map<std::filesystem::path, ProgramPool> pools_;
  net::Alarm timer_;
  bool closed_ = false;
};

// Single-strand type on the executor given. Events of a call are delivered after it has returned,
// never within it.
class GpuletProcesses {
 public:
  using OnEvent = std::function<void(serve::BackendEvent)>;

  GpuletProcesses(const net::asio::any_io_executor& executor, std::vector<HostedDevice> devices,
                  std::uint32_t warm_proxies, std::optional<ProxyUser> proxy_user,
                  ProxyConfinement confinement, OnEvent on_event);
  ~GpuletProcesses();
  GpuletProcesses(const GpuletProcesses&) = delete;
  GpuletProcesses& operator=(const GpuletProcesses&) = delete;

  void start(serve::StartGpulet order);
  void activate(GpuletId gpulet);
  void adjust(GpuletId gpulet, double cores);
  void run(serve::RunOnProxy order);
  void finish(GpuletId gpulet);
  void kill(GpuletId gpulet, const Status& reason);

  // Input memory of the gpulet's proxy for a batch; empty if there is none.
  [[nodiscard]] std::optional<MutableBytes> take_slot(GpuletId gpulet, std::size_t bytes);
  [[nodiscard]] bool holds(GpuletId gpulet, const Bytes& input) const;
  [[nodiscard]] std::vector<pid_t> processes() const;
  // The processes that wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_processes() const { return pool_.idle_processes(); }
  // Ends the warm processes; no gpulet will be started.
  void close_pool() { pool_.close(); }

 private:
  struct Running {
    std::uint32_t device = 0;
    std::unique_ptr<Proxy> proxy;
    bool loading = true;
    // To be reported when it ends.
    partition::DeviceHealth device_health = partition::DeviceHealth::works;
  };
  struct Started {
    Status status;
    FailureCause cause = FailureCause::unknown;  // if the status is not ok
  };
  struct End {
    Status reason;
    FailureCause cause = FailureCause::unknown;  // if other than the end of the process says
  };

  [[nodiscard]] ProxyOptions options_of(const std::filesystem::path& program, bool in_background);
  void log_output(pid_t process, const std::string& line) const;
  [[nodiscard]] bool changes_in_place(std::uint32_t device) const;
  [[nodiscard]] Status start_device(std::uint32_t device, bool in_background);
  void device_ended(std::uint32_t device, const Status& how);
  [[nodiscard]] const std::filesystem::path& program_for(std::uint32_t device,
                                                         const LoadModels& models) const;
  [[nodiscard]] Result<ProxyPool::Taken> take_proxy(std::uint32_t device,
                                                    const partition::Grant& grant,
                                                    const LoadModels& models,
                                                    ProxyCallbacks callbacks);
  // Whether the device can start a gpulet now, or may be able to later.
  [[nodiscard]] partition::DeviceHealth health_of(std::uint32_t device) const;
  // On failure there may be a grant and an entry in running_ to remove. Throws where the machine
  // has no memory or descriptors left.
  [[nodiscard]] Started start_process(serve::StartGpulet& order);
  [[nodiscard]] ProxyCallbacks callbacks_for(GpuletId gpulet, std::uint32_t device);
  void loaded(GpuletId gpulet, ProxyReady ready);
  // The reason for the end of a process: a lack of memory if the kernel killed it for that.
  [[nodiscard]] End end_of(GpuletId gpulet, std::uint32_t device, const Status& reason) const;
  void ended(GpuletId gpulet, const Status& reason);
  void update_pool();
  void post_event(serve::BackendEvent event);

  const net::asio::any_io_executor executor_;
  std::vector<HostedDevice> devices_;
  const OnEvent on_event_;
  const std::optional<ProxyUser> proxy_user_;
  const ProxyConfinement confinement_;
  AliveToken alive_;
  ProxyPool pool_;
  std::map<std::uint32_t, std::unique_ptr<DeviceProcess>> device_processes_;
  std::map<GpuletId, Running> running_;
};

}  // namespace gpulet::backend
