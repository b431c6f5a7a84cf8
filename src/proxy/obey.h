// The loop of one gpulet's channel: what a process that serves one gpulet, and each lane of a
// process that serves several, do.
#pragma once

#include <functional>

#include "gpulet/core/status.h"
#include "gpulet/proxy/proxy.h"
#include "proxy/loaded.h"

namespace gpulet::proxy {

// Called once an answer that tells of a lost device was written, on whatever thread did so.
using TellLost = std::function<void(const Status& why)>;

// As serve() in gpulet/proxy/proxy.h. The executor is made on the calling thread, and has ended
// when this returns. `tell_lost` may be empty.
[[nodiscard]] Status obey(const ProxyOptions& options, MakeExecutor make_executor,
                          const TellLost& tell_lost);

}  // namespace gpulet::proxy
