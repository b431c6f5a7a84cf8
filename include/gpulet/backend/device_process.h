// DeviceProcess: the one process that serves all gpulets of a device whose shares change in place,
// seen from its parent. Each gpulet is a lane in it.
//
// The program is started as `PROGRAM --lanes-fd 3`, with the rights of a ProxyProcess
// (proxy_process.h). It holds no gpulet at first; what its lanes have loaded stays in it after they
// have gone, for those that come.
//
// A lane's end leaves the process and the others alone. One that does not end when it should can
// only be ended with the process, which is killed then; and a process that tells of a lost device
// has lost it for all. When the process ends, for whatever reason, each lane's on_exit says so.
//
// Single-strand type on the executor given; lanes and process may be destroyed in any order, also
// inside their callbacks. The parent's thread that starts it must outlive it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "gpulet/backend/proxy.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"

namespace gpulet::backend {

class DeviceProcess {
 public:
  // Called once, after the process has ended and before its lanes tell so; not called any more once
  // this is destroyed.
  using OnEnd = std::function<void(const Status& how)>;

  // Fails as ProxyProcess::start.
  [[nodiscard]] static Result<std::unique_ptr<DeviceProcess>> start(
      const net::asio::any_io_executor& executor, const ProxyOptions& options, OnEnd on_end);

  [[nodiscard]] pid_t pid() const;
  // Whether it goes on: not once it has ended, must end, or lost its device.
  [[nodiscard]] bool takes_lanes() const;

  // A gpulet's lane; load() makes it serve. Its share is kExpectedShareVariable of the environment
  // that comes with the models; the rest of that counts for the first lane only. Fails with
  // unavailable.
  [[nodiscard]] Result<std::unique_ptr<Proxy>> add_lane(ProxyCallbacks callbacks);

  // Kills it; `reason` is what it ended for.
  void kill(Status reason);

  // Kills it, and waits for its end.
  ~DeviceProcess();
  DeviceProcess(const DeviceProcess&) = delete;
  DeviceProcess& operator=(const DeviceProcess&) = delete;

 private:
  class Impl;
  class Lane;
  class LaneProxy;
  explicit DeviceProcess(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with its lanes
};

}  // namespace gpulet::backend
