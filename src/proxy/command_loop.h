// The command loop of one gpulet's channel, in a process of one gpulet and in each worker of a
// process of several.
#pragma once

#include <functional>

#include "gpulet/base/status.h"
#include "gpulet/proxy/proxy.h"
#include "proxy/model_runner.h"

namespace gpulet::proxy {

// Called after an answer that reports a lost device was sent, on the thread that sent it.
using OnDeviceLost = std::function<void(const Status& why)>;

// As serve() in gpulet/proxy/proxy.h. Makes the executor on the calling thread and destroys it
// before it returns. `on_device_lost` may be empty.
[[nodiscard]] Status run_command_loop(const ProxyOptions& options, MakeExecutor make_executor,
                                      const OnDeviceLost& on_device_lost);

}  // namespace gpulet::proxy
