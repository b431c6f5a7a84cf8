// A process that serves several gpulets of one device. Each has a worker: a thread with its own
// channel, memory and executor. All executors belong to one SharedDevice.
//
// The backend adds a worker by a message over a Unix seqpacket socket, with one byte and three
// descriptors: control, memory, files (ProxyOptions). A worker's channel carries the same messages
// as the channel of a process with one gpulet. Its share is kExpectedShareVariable of its
// environment. The process takes the environment of the first worker that loads; later ones do not
// change it. A worker ends by StopProxy or with its channel, and then closes its end.
#pragma once

#include <cstddef>
#include <functional>

#include "gpulet/base/status.h"
#include "proxy/model_runner.h"
#include "proxy/proxy.h"

namespace gpulet::proxy {

// Called after an answer that reports a lost device was sent, on the thread that sent it.
using OnDeviceLost = std::function<void(const Status& why)>;

// The command loop of one gpulet's channel, in a process of one gpulet and in each worker. As
// serve() in proxy/proxy.h. Makes the executor on the calling thread and destroys it before
// it returns. `on_device_lost` may be empty.
[[nodiscard]] Status run_command_loop(const ProxyOptions& options, MakeExecutor make_executor,
                                      const OnDeviceLost& on_device_lost);

struct WorkersOptions {
  int workers_fd = -1;
  std::size_t max_workers = 48;  // further ones are rejected
};

// Called on the workers' threads.
struct WorkerEvents {
  OnDeviceLost device_lost{};  // the process cannot use its device any more
  std::function<void(const Status& why)> worker_failed{};
};

// Serves until the peer closes the socket; then stops the remaining workers, as if their channels
// had been closed, and waits for them. Does the same and fails with malformed (a message is not a
// worker) or unavailable (the socket failed).
[[nodiscard]] Status serve_workers(const WorkersOptions& options, const Program& program,
                                   const WorkerEvents& events);

}  // namespace gpulet::proxy
