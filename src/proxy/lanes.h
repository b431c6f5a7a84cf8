// A process that serves several gpulets of one device, each on a lane: a thread with a channel,
// memory and an executor of its own, all over one SharedDevice.
//
// Lanes come over a Unix seqpacket socket, each as a message of one byte and three descriptors:
// control, memory, files (ProxyOptions). What comes over a lane's channel is what comes over that
// of a process with one gpulet; its share is kExpectedShareVariable of its environment. The
// process's own environment is that of the first lane that got one; those of later lanes change
// nothing in it. A lane ends by StopProxy or with its channel, and closes its end of it then.
#pragma once

#include <cstddef>
#include <functional>

#include "gpulet/core/status.h"
#include "gpulet/proxy/proxy.h"
#include "proxy/obey.h"

namespace gpulet::proxy {

struct LanesOptions {
  int lanes_fd = -1;
  std::size_t most_lanes = 48;  // more are told that there is no room, and closed
};

// Called on the lanes' threads.
struct LaneEvents {
  TellLost device_lost{};  // nothing that this process does on its device will succeed
  std::function<void(const Status& why)> lane_failed{};
};

// Until the peer closes the socket: lanes that are left are abandoned then, as if their channels
// had been closed, and waited for. So they are where it fails: with malformed (what came is no
// lane), or unavailable (the socket failed).
[[nodiscard]] Status serve_lanes(const LanesOptions& options, const Program& program,
                                 const LaneEvents& events);

}  // namespace gpulet::proxy
