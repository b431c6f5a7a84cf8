// SharedDevice: several gpulets of one device in one process, each on a lane with an executor of
// its own. What their models have in common (weights, compiled forms) is in memory once.
#pragma once

#include <memory>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

class SharedDevice {
 public:
  virtual ~SharedDevice() = default;

  // A lane with that share; it is in force until the executor is dropped, and found_share() tells
  // what it is. Lanes beyond the device (while one of them is being replaced by others) share SMs
  // with others until there is room. Each lane is used by a thread of its own. Any thread; the
  // device must outlive its lanes. Fails with unavailable.
  [[nodiscard]] virtual Result<std::unique_ptr<Executor>> add_lane(Share share) = 0;
};

}  // namespace gpulet::executor
